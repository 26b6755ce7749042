"""Metrics of the metadata that a replica takes over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family

if TYPE_CHECKING:
    from ...clock import ClockMs
    from .sync import MetadataSync

_BY_PART: Final = ("part",)


class MetadataCollector:
    """State of the replication of metadata, by part."""

    def __init__(self, sync: MetadataSync, steady_ms: ClockMs) -> None:
        """`steady_ms` is the clock of `sync`."""
        self._sync = sync
        self._steady_ms = steady_ms

    def collect(self) -> Iterable[Family]:
        """All families of the metadata."""
        states, now_ms = self._sync.states, self._steady_ms()
        yield Family(
            "rmq_replica_metadata_failures_total",
            "counter",
            "Failed attempts to take a part of the metadata from the master.",
            [((part,), state.failures) for part, state in states.items()],
            _BY_PART,
        )
        yield Family(
            "rmq_replica_metadata_failing",
            "gauge",
            "1: the last attempt to take the part from the master failed; 0: not.",
            [((part,), int(state.is_failing)) for part, state in states.items()],
            _BY_PART,
        )
        yield Family(
            "rmq_replica_metadata_age_seconds",
            "gauge",
            "Time since the part was taken from the master, in seconds; absent before the first time.",
            [
                ((part,), (now_ms - state.synced_ms) / 1000)
                for part, state in states.items()
                if state.synced_ms is not None
            ],
            _BY_PART,
        )
        yield Family(
            "rmq_replica_metadata_waiting",
            "gauge",
            "Answers of the master that wait until this replica's log is flushed as far as they rest on it.",
            [((), self._sync.waiting)],
        )
