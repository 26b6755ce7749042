"""Metrics of replication: on a master by replica, on a replica about itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter, gauge

from ..store.api import ColdData

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..store.api import MessageStore
    from .following import Follower
    from .service import ReplicationService

_BY_REPLICA: Final = ("replica",)
# Counting them takes less than a millisecond of a scrape.
_MOST_COUNTED: Final = 1000


class ReplicationCollector:
    """Connections, lag, and waits of sends."""

    def __init__(self, replication: ReplicationService, store: MessageStore, now_ms: ClockMs) -> None:
        self._replication = replication
        self._store = store
        self._now_ms = now_ms

    def collect(self) -> Iterable[Family]:
        """Return all families of replication."""
        follower = self._replication.follower
        if follower is None:
            yield from self._of_master()
        else:
            yield from self._of_replica(follower)

    def _of_master(self) -> Iterator[Family]:
        replicas, end = self._store.replicas, self._store.max_phy_offset()
        positions = replicas.positions
        yield gauge("rmq_replicas_connected", "Replicas that are connected.", len(positions))
        yield gauge(
            "rmq_replicas_in_sync",
            "Replicas that lack less than haMaxGapNotInSync bytes of the log.",
            len(replicas.in_sync()),
        )
        yield Family(
            "rmq_replica_lag_bytes",
            "gauge",
            "Bytes of the log that the replica has not acknowledged.",
            [((each.name,), end - each.acknowledged) for each in positions],
            _BY_REPLICA,
        )
        yield Family(
            "rmq_replica_lag_seconds",
            "gauge",
            "Age of the oldest message that the replica has not acknowledged; 0 if it has all, NaN if that "
            "message is not in memory.",
            [((each.name,), self._age_seconds(each.acknowledged, end)) for each in positions],
            _BY_REPLICA,
        )
        yield Family(
            "rmq_replica_lag_messages",
            "gauge",
            "Messages that the replica has not acknowledged; beyond 1000 an estimate by their size. NaN if "
            "they are not in memory.",
            [((each.name,), self._messages(each.acknowledged, end)) for each in positions],
            _BY_REPLICA,
        )
        yield gauge("rmq_replica_waits", "Sends that wait for replicas now.", replicas.waiting)
        statistics = replicas.statistics
        yield counter(
            "rmq_replica_timeouts_total",
            "Sends that were answered FLUSH_SLAVE_TIMEOUT.",
            statistics.timed_out,
        )
        yield counter(
            "rmq_replica_missing_total",
            "Sends that were answered SLAVE_NOT_AVAILABLE.",
            statistics.without_replica,
        )

    def _of_replica(self, follower: Follower) -> Iterator[Family]:
        status = follower.status
        yield gauge(
            "rmq_replica_following", "1: this replica follows a master; 0: not.", int(status.is_connected)
        )
        yield gauge(
            "rmq_replica_behind_bytes",
            "Bytes of the master's log that this replica lacks, by the last that it knows of the master.",
            max(0, status.master_end - self._store.max_phy_offset()),
        )

    def _messages(self, acknowledged: int, end: int) -> float:
        """Return how many messages the log has from an offset on; NaN if that cannot be told."""
        count, position = 0, max(acknowledged, self._store.min_phy_offset())
        begin = position
        while position < end and count < _MOST_COUNTED:
            try:
                record = self._store.record_now(position, entered=False)
            except (ColdData, OSError):
                return math.nan
            if record:
                count += 1
                position += len(record)
            elif (following := self._store.next_file_offset(position)) < end:
                position = following  # the blank at the end of a file
            else:
                return math.nan  # a replica of Apache's may have a part of a record
        if position < end:
            return count * (end - begin) / (position - begin)
        return count

    def _age_seconds(self, acknowledged: int, end: int) -> float:
        """Return the age of the message that begins at an offset of the log; NaN if it cannot be told."""
        if acknowledged >= end:
            return 0.0
        try:
            stored_ms = self._store.store_timestamp_now(max(acknowledged, self._store.min_phy_offset()))
        except (ColdData, OSError):
            return math.nan
        return math.nan if stored_ms <= 0 else max(0, self._now_ms() - stored_ms) / 1000
