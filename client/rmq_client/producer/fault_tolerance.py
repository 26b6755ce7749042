"""Latency fault tolerance: a producer avoids a broker for a while after slow or missing answers.

Source of the rules: Apache RocketMQ 5.3.3 (and 4.9 for the classic ones), MQFaultStrategy and
LatencyFaultToleranceImpl.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self, TypeVar

from ..errors import UsageError
from .selection import OnBroker, RoundRobin


class LastResort(Enum):
    """Brokers that are tried when all candidates are avoided."""

    REACHABLE = "any that can be reached"
    LEAST_BAD_HALF = "in turn, the half of them with the lower latency"


_CLASSIC_AVOIDANCE: Final = (
    (50, 0),
    (100, 0),
    (550, 30_000),
    (1_000, 60_000),
    (2_000, 120_000),
    (3_000, 180_000),
    (15_000, 600_000),
)
_V5_AVOIDANCE: Final = (
    (50, 0),
    (100, 0),
    (550, 2_000),
    (1_800, 5_000),
    (3_000, 6_000),
    (5_000, 10_000),
    (15_000, 30_000),
)


@dataclass(frozen=True, slots=True)
class FaultTolerance:
    """How long a broker is avoided; use `FaultTolerance.v5()`, or `classic()` for the rules of 4.x.

    `avoidance`: ascending pairs of a latency and the time that a broker with at least that latency is
    avoided, in milliseconds. A broker that does not answer, or refuses for reasons of its own, counts as one
    with `isolation_latency_ms`. `start_detector`: such a broker is probed in the background, every
    `detect_interval_ms` with a timeout of `detect_timeout_ms`, and counts as unreachable until it answers.
    """

    avoidance: tuple[tuple[int, int], ...] = _V5_AVOIDANCE
    isolation_latency_ms: int = 10_000
    last_resort: LastResort = LastResort.REACHABLE
    start_detector: bool = False
    detect_interval_ms: int = 2_000
    detect_timeout_ms: int = 200

    def __post_init__(self) -> None:
        """Check the values."""
        latencies = [latency for latency, _ in self.avoidance]
        if latencies != sorted(set(latencies)) or any(min(pair) < 0 for pair in self.avoidance):
            raise UsageError(
                f"avoidance {self.avoidance}: the latencies must ascend, and no value may be below 0"
            )
        for name in ("isolation_latency_ms", "detect_interval_ms", "detect_timeout_ms"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: must be at least 1 ms")

    @classmethod
    def v5(cls, *, start_detector: bool = False) -> Self:
        """Rules of Apache's client 5.3.3: short pauses, and any reachable broker as the last resort."""
        return cls(start_detector=start_detector)

    @classmethod
    def classic(cls, *, start_detector: bool = False) -> Self:
        """Rules of Apache's clients 4.x: pauses of minutes, and the better half as the last resort."""
        return cls(_CLASSIC_AVOIDANCE, 30_000, LastResort.LEAST_BAD_HALF, start_detector)

    def avoided_ms(self, latency_ms: float) -> int:
        """Return for how long a broker with this latency is avoided."""
        for least, duration in reversed(self.avoidance):
            if latency_ms >= least:
                return duration
        return 0


@dataclass(slots=True)
class _Fault:
    """Faults of one broker. Times are those of the clock, in seconds."""

    latency_ms: float
    avoided_until: float
    is_reachable: bool = True
    probe_at: float = 0.0


L = TypeVar("L", bound=OnBroker)


class BrokerHealth:
    """The brokers that one producer avoids now. Belongs to the producer's loop."""

    def __init__(self, settings: FaultTolerance, clock: Callable[[], float]) -> None:
        """`clock` returns seconds of a monotonic clock."""
        self._settings = settings
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._next_of_half = itertools.count().__next__

    # --- events ---

    def answered(self, broker_name: str, elapsed_seconds: float) -> None:
        """Note any answer of a broker."""
        latency_ms = elapsed_seconds * 1000
        if broker_name in self._faults or self._settings.avoided_ms(latency_ms):
            self._note(broker_name, latency_ms, latency_ms, is_reachable=True)

    def failed(self, broker_name: str, elapsed_seconds: float, *, refused: bool) -> None:
        """Note a missing answer, or a refusal that another broker may not repeat (`refused`)."""
        is_reachable = not refused and not self._settings.start_detector
        isolation_ms = self._settings.isolation_latency_ms
        self._note(broker_name, elapsed_seconds * 1000, isolation_ms, is_reachable=is_reachable)

    def _note(self, broker_name: str, latency_ms: float, counted_ms: float, *, is_reachable: bool) -> None:
        now = self._clock()
        fault = self._faults.get(broker_name)
        if fault is None:
            fault = self._faults[broker_name] = _Fault(latency_ms, now)
        fault.latency_ms = latency_ms
        fault.is_reachable = is_reachable
        # A fast answer does not end an avoidance.
        fault.avoided_until = max(fault.avoided_until, now + self._settings.avoided_ms(counted_ms) / 1000)

    # --- selection of brokers ---

    def is_available(self, broker_name: str) -> bool:
        """Whether the broker is not avoided."""
        fault = self._faults.get(broker_name)
        return fault is None or self._clock() >= fault.avoided_until

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the broker answered the last time or, without a detector, may answer now."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def choose(self, round_robin: RoundRobin[L], failed: Collection[str] = ()) -> L | None:
        """Return the next item that is not avoided and not on the brokers `failed`; None if there is none."""
        if not self._faults:
            return round_robin.take_off(failed)
        chosen = round_robin.take_where(
            lambda item: item.broker_name not in failed and self.is_available(item.broker_name)
        )
        if chosen is not None:
            return chosen
        candidates = [name for name in round_robin.broker_names if name not in failed]
        last_resort = self._last_resort(candidates)
        return round_robin.take_where(lambda item: item.broker_name in last_resort)

    def _last_resort(self, candidates: Sequence[str]) -> Collection[str]:
        if self._settings.last_resort is LastResort.REACHABLE:
            return {name for name in candidates if self.is_reachable(name)}
        faults = self._faults
        least_bad = sorted(candidates, key=lambda name: (faults[name].latency_ms, faults[name].avoided_until))
        half = least_bad[: max(1, len(least_bad) // 2)]
        return half and [half[self._next_of_half() % len(half)]]

    # --- for the detector ---

    def to_probe(self) -> list[str]:
        """Return the brokers to probe now, each one again after the interval."""
        now = self._clock()
        due = [
            name for name, fault in self._faults.items() if not fault.is_reachable and fault.probe_at <= now
        ]
        for name in due:
            self._faults[name].probe_at = now + self._settings.detect_interval_ms / 1000
        return due

    def reached(self, broker_name: str) -> None:
        """Note an answered probe."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.is_reachable = True

    def forget(self, broker_name: str) -> None:
        """Drop a broker that is in no route any more."""
        self._faults.pop(broker_name, None)
