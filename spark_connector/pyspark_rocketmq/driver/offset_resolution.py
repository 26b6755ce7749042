"""Resolution of options: the queues that they select, and the offset of a position in each queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
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
    from. Raises OptionError for named queues that do not exist, and for times without a message that must
    exist; SourceUnavailable, ClientError.
    """
    if isinstance(position, Anchor):
        return _at_anchor(cluster, queues, position, group)
    if isinstance(position, AtTime):
        times_ms = dict.fromkeys(queues, position.timestamp_ms)
        return _at_times(cluster, times_ms, "startingTimestamp" if position.must_exist else None)
    if isinstance(position, AtOffsets):
        _check_named(position.offsets, queues, f"{edge}Offsets")
        named = _at_offsets(cluster, queues, position.offsets, group)
    else:
        option = f"{edge}OffsetsByTimestamp"
        _check_named(position.timestamps_ms, queues, option)
        times_ms = {queue: ms for queue, ms in position.timestamps_ms.items() if queue in queues}
        named = _at_times(cluster, times_ms, option if position.must_exist else None)
    rest = [queue for queue in queues if queue not in named]
    return named.merged(_at_anchor(cluster, rest, otherwise, group))


def _at_times(cluster: Cluster, times_ms: Mapping[QueueKey, int], required_by: str | None) -> QueueOffsets:
    """Return the offset of each queue's first message at its time or later, or the end of the queue.

    `required_by`: the option that requires such messages. Raises OptionError for queues without one, as
    Spark's Kafka source does (KafkaOffsetReaderConsumer).
    """
    if required_by is None:
        return cluster.at_times(times_ms)
    # Ends first: a message stored between the two requests must not look like one at its time.
    ends = cluster.newest(times_ms)
    found = cluster.at_times(times_ms)
    without = [queue for queue in times_ms if found[queue] >= ends[queue]]
    if without:
        allowed = (
            "a time with a message at it or later in each queue, or startingOffsetsByTimestampStrategy=latest"
        )
        shown = listed(f"{queue} has none since {times_ms[queue]} ms" for queue in without)
        raise OptionError(required_by, listed(sorted({times_ms[queue] for queue in without})), allowed, shown)
    return found


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
