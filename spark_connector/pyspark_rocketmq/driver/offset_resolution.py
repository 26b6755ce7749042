"""Resolution of options: the queues that they select, and the offset of a position in each queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

from ..errors import OptionError, listed
from ..offsets import EARLIEST, LATEST, QueueKey, QueueOffsets
from ..options import Anchor, AtOffsets, AtTime, Mode, Position, ReadOptions
from .cluster import Cluster
from .routes import Offered

log = logging.getLogger(__name__)

_PLACEHOLDERS: Final = {EARLIEST: Anchor.EARLIEST, LATEST: Anchor.LATEST}


def selected_queues(cluster: Cluster, options: ReadOptions) -> list[QueueKey]:
    """Return the queues to read, in order. Wait for topics that have no route yet.

    Raises OptionError for assigned queues that do not exist, TopicMissing, SourceUnavailable, ClientError.
    """
    existing = cluster.queues(_topics(cluster, options))
    if options.assign is None:
        return existing
    # A broker without any of these queues may be down: its assigned queues are kept.
    brokers = {(queue.topic, queue.broker) for queue in existing}
    strange = [
        queue for queue in options.assign if queue not in existing and (queue.topic, queue.broker) in brokers
    ]
    if strange:
        raise OptionError("assign", listed(strange), "queues that exist and are readable")
    return list(options.assign)


def offered_queues(cluster: Cluster, options: ReadOptions, *, fresh: bool = False) -> Offered:
    """Return what the name servers offer of the queues to read.

    `fresh`: as of now, rather than from the cache. Raises StaticTopic, SourceUnavailable, ClientError.
    """
    offered = cluster.offered(_topics(cluster, options, fresh=fresh), fresh=fresh)
    return replace(offered, queues=tuple(queue for queue in offered.queues if options.wants(queue)))


def _topics(cluster: Cluster, options: ReadOptions, *, fresh: bool = True) -> Iterable[str]:
    if options.subscribe is not None:
        return options.subscribe
    if options.subscribe_pattern is not None:
        return cluster.topics_matching(options.subscribe_pattern, fresh=fresh)
    return sorted({queue.topic for queue in options.assign or ()})


def batch_bounds(cluster: Cluster, options: ReadOptions) -> tuple[QueueOffsets, QueueOffsets]:
    """Return start and end of a batch read.

    Raises OptionError, TopicMissing, StaticTopic, SourceUnavailable, ClientError.
    """
    queues = selected_queues(cluster, options)
    start = resolve(cluster, queues, options.starting(Mode.BATCH), Anchor.EARLIEST, options.group)
    end = resolve(cluster, queues, options.ending, Anchor.LATEST, options.group, "ending")
    if isinstance(options.ending, AtOffsets):
        _reject_end_after_newest(end, cluster.newest(queues))
    if not isinstance(options.starting(Mode.BATCH), AtOffsets):
        # The brokers are asked for starts and ends one after the other. Messages may expire in between, and
        # the group's committed offset may be lower than the oldest message. Both would put the start of a
        # queue behind its end.
        end = end.merged({queue: start[queue] for queue in start.ahead_of(end)})
    return start, end


def resolve(
    cluster: Cluster,
    queues: Sequence[QueueKey],
    position: Position,
    otherwise: Anchor,
    group: str,
    edge: Literal["starting", "ending"] = "starting",
) -> QueueOffsets:
    """Return the offset of `position` in each of the queues.

    `otherwise` applies to queues that the position does not name. In a queue for which `group` has not
    committed, the position of the group is the oldest message. `edge`: the options that the position comes
    from. Raises OptionError for named queues that do not exist, SourceUnavailable, ClientError.
    """
    if isinstance(position, Anchor):
        return _at_anchor(cluster, queues, position, group)
    if isinstance(position, AtTime):
        return cluster.at_times(dict.fromkeys(queues, position.timestamp_ms))
    if isinstance(position, AtOffsets):
        _check_named(position.offsets, queues, f"{edge}Offsets")
        named = _at_offsets(cluster, queues, position.offsets, group)
    else:
        times_ms = position.timestamps_ms
        _check_named(times_ms, queues, f"{edge}OffsetsByTimestamp")
        named = cluster.at_times({queue: times_ms[queue] for queue in queues if queue in times_ms})
    rest = [queue for queue in queues if queue not in named]
    return named.merged(_at_anchor(cluster, rest, otherwise, group))


def _check_named(named: Iterable[QueueKey], queues: Sequence[QueueKey], option: str) -> None:
    """Raise OptionError for missing queues, if other queues of the same topic and broker exist."""
    missing = sorted(set(named).difference(queues))
    brokers = {(queue.topic, queue.broker) for queue in queues}
    strange = [queue for queue in missing if (queue.topic, queue.broker) in brokers]
    if strange:
        raise OptionError(option, listed(strange), "for queues that exist and are readable")
    if missing:
        log.warning(
            "offsets of missing queues ignored, their brokers are down or lack the topic option=%s queues=%s",
            option,
            listed(missing),
        )


def _at_anchor(cluster: Cluster, queues: Sequence[QueueKey], anchor: Anchor, group: str) -> QueueOffsets:
    if anchor is Anchor.EARLIEST:
        return cluster.oldest(queues)
    if anchor is Anchor.LATEST:
        return cluster.newest(queues)
    committed = cluster.committed(group, queues)
    return committed.merged(cluster.oldest([queue for queue in queues if queue not in committed]))


def _at_offsets(
    cluster: Cluster, queues: Sequence[QueueKey], offsets: QueueOffsets, group: str
) -> QueueOffsets:
    named = QueueOffsets({queue: offsets[queue] for queue in queues if queue in offsets})
    for placeholder, anchor in _PLACEHOLDERS.items():
        meant = [queue for queue, offset in named.items() if offset == placeholder]
        named = named.merged(_at_anchor(cluster, meant, anchor, group))
    return named


def _reject_end_after_newest(end: QueueOffsets, newest: QueueOffsets) -> None:
    beyond = end.ahead_of(newest)
    if beyond:
        wrong = listed(f"{queue} to {end[queue]}, which ends at {newest[queue]}" for queue in beyond)
        raise OptionError("endingOffsets", end.to_json(), "at or before the end of each queue", wrong)
