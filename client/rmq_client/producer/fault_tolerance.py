"""Latency fault tolerance: a producer avoids a broker for a while after slow or missing answers.

Source of the rules: Apache RocketMQ 5.3.3 (and 4.9 for the classic ones), MQFaultStrategy and
LatencyFaultToleranceImpl.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self, TypeVar

from ..checks import (
    Seconds,
    check_each,
    check_flag,
    check_instance,
    check_seconds,
    refuse,
    set_fields,
    short_repr,
)
from .selection import OnBroker, RoundRobin


class LastResort(Enum):
    """Brokers that are tried when all candidates are avoided."""

    REACHABLE = "any that can be reached"
    LEAST_BAD_HALF = "in turn, the half of them with the lower latency"


_CLASSIC_AVOIDANCE: Final = (
    (0.05, 0.0),
    (0.1, 0.0),
    (0.55, 30.0),
    (1.0, 60.0),
    (2.0, 120.0),
    (3.0, 180.0),
    (15.0, 600.0),
)
_V5_AVOIDANCE: Final = (
    (0.05, 0.0),
    (0.1, 0.0),
    (0.55, 2.0),
    (1.8, 5.0),
    (3.0, 6.0),
    (5.0, 10.0),
    (15.0, 30.0),
)


# Event loops do not tell shorter times apart.
_LEAST_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FaultTolerance:
    """How long a broker is avoided; use `FaultTolerance.v5()`, or `classic()` for the rules of 4.x.

    `avoidance`: ascending pairs of a latency and the time that a broker with at least that latency is
    avoided. A broker that does not answer, or refuses for reasons of its own, counts as one with
    `isolation_latency_seconds`. `start_detector`: such a broker is probed in the background, every
    `detect_interval_seconds` with a timeout of `detect_timeout_seconds`, and counts as unreachable until it
    answers.
    """

    avoidance: tuple[tuple[float, float], ...]
    isolation_latency_seconds: float
    last_resort: LastResort
    start_detector: bool
    detect_interval_seconds: float
    detect_timeout_seconds: float

    __repr__ = short_repr

    def __init__(
        self,
        avoidance: Iterable[tuple[Seconds, Seconds]] = _V5_AVOIDANCE,
        isolation_latency_seconds: Seconds = 10.0,
        last_resort: LastResort = LastResort.REACHABLE,
        start_detector: bool = False,
        detect_interval_seconds: Seconds = 2.0,
        detect_timeout_seconds: Seconds = 0.2,
    ) -> None:
        """Raises InvalidArgumentError."""
        set_fields(
            self,
            avoidance=_checked_avoidance(avoidance),
            isolation_latency_seconds=check_seconds(
                "isolation_latency_seconds", isolation_latency_seconds, above=0
            ),
            last_resort=check_instance("last_resort", last_resort, LastResort, "for example REACHABLE"),
            start_detector=check_flag("start_detector", start_detector),
            detect_interval_seconds=check_seconds(
                "detect_interval_seconds", detect_interval_seconds, least=_LEAST_SECONDS
            ),
            detect_timeout_seconds=check_seconds(
                "detect_timeout_seconds", detect_timeout_seconds, least=_LEAST_SECONDS
            ),
        )

    @classmethod
    def v5(cls, *, start_detector: bool = False) -> Self:
        """Rules of Apache's client 5.3.3: short pauses, and any reachable broker as the last resort."""
        return cls(start_detector=start_detector)

    @classmethod
    def classic(cls, *, start_detector: bool = False) -> Self:
        """Rules of Apache's clients 4.x: pauses of minutes, and the better half as the last resort."""
        return cls(_CLASSIC_AVOIDANCE, 30.0, LastResort.LEAST_BAD_HALF, start_detector)

    def avoided_seconds(self, latency_seconds: float) -> float:
        """Return for how long a broker with this latency is avoided."""
        for least, duration in reversed(self.avoidance):
            if latency_seconds >= least:
                return duration
        return 0.0


def _checked_avoidance(avoidance: object) -> tuple[tuple[float, float], ...]:
    """Return the pairs in seconds."""
    pairs: list[tuple[float, float]] = []
    for pair in check_each("avoidance", avoidance, tuple, "give pairs (latency, time avoided) in seconds"):
        if len(pair) != 2:
            raise refuse("avoidance", avoidance, "must be pairs (latency, time avoided) in seconds")
        pairs.append((check_seconds("avoidance", pair[0]), check_seconds("avoidance", pair[1])))
    latencies = [latency for latency, _ in pairs]
    if latencies != sorted(set(latencies)):
        raise refuse("avoidance", avoidance, "the latencies must ascend")
    return tuple(pairs)


@dataclass(slots=True)
class _Fault:
    """Faults of one broker. Times are those of the clock, in seconds."""

    latency_seconds: float
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
        if broker_name in self._faults or self._settings.avoided_seconds(elapsed_seconds):
            self._note(broker_name, elapsed_seconds, elapsed_seconds, is_reachable=True)

    def failed(self, broker_name: str, elapsed_seconds: float, *, refused: bool) -> None:
        """Note a missing answer, or a refusal that another broker may not repeat (`refused`)."""
        is_reachable = not refused and not self._settings.start_detector
        isolation = self._settings.isolation_latency_seconds
        self._note(broker_name, elapsed_seconds, isolation, is_reachable=is_reachable)

    def _note(self, broker_name: str, latency: float, counted: float, *, is_reachable: bool) -> None:
        """Note a latency in seconds, and the one that counts."""
        now = self._clock()
        fault = self._faults.get(broker_name)
        if fault is None:
            fault = self._faults[broker_name] = _Fault(latency, now)
        fault.latency_seconds = latency
        fault.is_reachable = is_reachable
        # A fast answer does not end an avoidance.
        fault.avoided_until = max(fault.avoided_until, now + self._settings.avoided_seconds(counted))

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
        least_bad = sorted(
            candidates, key=lambda name: (faults[name].latency_seconds, faults[name].avoided_until)
        )
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
            self._faults[name].probe_at = now + self._settings.detect_interval_seconds
        return due

    def reached(self, broker_name: str) -> None:
        """Note an answered probe."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.is_reachable = True

    def forget(self, broker_name: str) -> None:
        """Drop a broker that is in no route any more."""
        self._faults.pop(broker_name, None)
