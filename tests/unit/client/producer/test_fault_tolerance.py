"""Avoidance of slow brokers: the tables of Apache's clients, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pytest

from rmq_client import FaultTolerance, LastResort, UsageError
from rmq_client.producer.fault_detector import FaultDetector
from rmq_client.producer.fault_tolerance import BrokerHealth
from rmq_client.producer.selection import RoundRobin


@dataclass(frozen=True)
class _Item:
    broker_name: str
    number: int = 0


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _rotation(*names: str, queues: int = 2) -> RoundRobin[_Item]:
    return RoundRobin([_Item(name, number) for name in names for number in range(queues)], start=0)


def _names(
    health: BrokerHealth, round_robin: RoundRobin[_Item], count: int, failed: Collection[str] = ()
) -> list[str]:
    return [chosen.broker_name for _ in range(count) if (chosen := health.choose(round_robin, failed))]


def _health(settings: FaultTolerance) -> tuple[BrokerHealth, _Clock]:
    clock = _Clock()
    return BrokerHealth(settings, clock), clock


@pytest.mark.parametrize(
    ("settings", "pairs"),
    [
        (
            FaultTolerance.classic(),
            [
                (0, 0),
                (49, 0),
                (50, 0),
                (549, 0),
                (550, 30),
                (1_000, 60),
                (2_000, 120),
                (2_999, 120),
                (3_000, 180),
                (14_999, 180),
                (15_000, 600),
                (10**6, 600),
            ],
        ),
        (
            FaultTolerance.v5(),
            [
                (0, 0),
                (100, 0),
                (549, 0),
                (550, 2),
                (1_799, 2),
                (1_800, 5),
                (3_000, 6),
                (5_000, 10),
                (14_999, 10),
                (15_000, 30),
            ],
        ),
    ],
)
def test_latencies_map_to_avoidance_times(settings: FaultTolerance, pairs: list[tuple[int, int]]) -> None:
    for latency_ms, avoided_seconds in pairs:
        assert settings.avoided_seconds(latency_ms / 1000) == avoided_seconds
        health, clock = _health(settings)
        health.answered("a", latency_ms / 1000)
        assert health.is_available("a") == (avoided_seconds == 0)
        clock.now += avoided_seconds - 0.001
        assert health.is_available("a") == (avoided_seconds == 0)
        clock.now += 0.001
        assert health.is_available("a")


@pytest.mark.parametrize(
    ("settings", "avoided_seconds"), [(FaultTolerance.classic(), 600), (FaultTolerance.v5(), 10)]
)
def test_a_broker_without_an_answer_is_isolated(settings: FaultTolerance, avoided_seconds: int) -> None:
    health, clock = _health(settings)
    health.failed("a", 0.001, refused=False)
    clock.now += avoided_seconds - 0.001
    assert not health.is_available("a")
    clock.now += 0.001
    assert health.is_available("a")


def test_a_fast_answer_does_not_end_an_avoidance() -> None:
    health, clock = _health(FaultTolerance.v5())
    health.answered("a", 2.0)
    clock.now += 4.9
    health.answered("a", 0.001)
    assert not health.is_available("a")
    clock.now += 0.1
    assert health.is_available("a")


def test_other_brokers_get_even_shares() -> None:
    health, _ = _health(FaultTolerance.v5())
    round_robin = _rotation("a", "b", "c", queues=3)
    health.failed("b", 1.0, refused=False)
    taken = Counter(health.choose(round_robin) for _ in range(600))
    assert set(taken.values()) == {100}
    assert {item.broker_name for item in taken if item is not None} == {"a", "c"}


def test_a_retry_avoids_the_brokers_that_failed_in_this_send() -> None:
    health, _ = _health(FaultTolerance.v5())
    round_robin = _rotation("a", "b", "c")
    health.failed("b", 1.0, refused=False)
    for _ in range(6):
        chosen = health.choose(round_robin, ["a"])
        assert chosen is not None
        assert chosen.broker_name == "c"
    assert health.choose(round_robin, ["a", "b", "c"]) is None


def test_the_v5_last_resort_is_any_reachable_broker() -> None:
    health, _ = _health(FaultTolerance.v5())
    round_robin = _rotation("a", "b", "c")
    health.failed("a", 1.0, refused=True)
    health.answered("b", 3.0)
    health.answered("c", 20.0)
    assert set(_names(health, round_robin, 12)) == {"b", "c"}
    for name in "bc":
        health.failed(name, 1.0, refused=True)
    assert health.choose(round_robin) is None


def test_the_classic_last_resort_is_the_better_half_in_turn() -> None:
    health, _ = _health(FaultTolerance.classic())
    round_robin = _rotation("a", "b", "c", "d")
    for name, seconds in (("a", 4.0), ("b", 0.9), ("c", 3.5), ("d", 0.6)):
        health.answered(name, seconds)
    assert _names(health, round_robin, 8) == ["d", "b"] * 4
    assert _names(health, round_robin, 8, ["d"]) == ["b"] * 8
    assert health.choose(round_robin, ["a", "b", "c", "d"]) is None


def test_a_single_broker_is_the_last_resort() -> None:
    health, _ = _health(FaultTolerance.classic())
    health.failed("a", 1.0, refused=False)
    assert health.choose(_rotation("a")) is not None


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: FaultTolerance(avoidance=((0.1, 1), (0.05, 2))), "latencies must ascend"),
        (lambda: FaultTolerance(avoidance=((0.1, -1),)), "avoidance=-1: must be at least 0 s"),
        (
            lambda: FaultTolerance(isolation_latency_seconds=0),
            "isolation_latency_seconds=0: must be above 0 s",
        ),
        (
            lambda: FaultTolerance(detect_timeout_seconds=0),
            "detect_timeout_seconds=0: must be at least 0.001 s",
        ),
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], FaultTolerance], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make()


def test_the_presets_differ_in_the_last_resort() -> None:
    assert FaultTolerance().last_resort is FaultTolerance.v5().last_resort is LastResort.REACHABLE
    assert FaultTolerance.classic().last_resort is LastResort.LEAST_BAD_HALF


# --- the detector ---


class _Probes:
    def __init__(self) -> None:
        self.answers: dict[str, bool | None] = {}
        self.asked: list[str] = []

    async def __call__(self, broker_name: str) -> bool | None:
        self.asked.append(broker_name)
        return self.answers[broker_name]


async def test_the_detector_probes_unreachable_brokers_until_they_answer() -> None:
    health, clock = _health(FaultTolerance.v5(start_detector=True))
    probes = _Probes()
    detector = FaultDetector(health, probes, interval_seconds=2.0)
    health.failed("a", 1.0, refused=False)
    health.answered("b", 3.0)
    probes.answers = {"a": False}
    await detector.detect()
    await detector.detect()
    assert probes.asked == ["a"], "not again before the interval is over, and b has answered"
    assert not health.is_reachable("a")

    clock.now += 2.0
    probes.answers = {"a": True}
    await detector.detect()
    assert health.is_reachable("a")
    assert not health.is_available("a"), "it can be a last resort again; the avoidance goes on"
    clock.now += 2.0
    await detector.detect()
    assert probes.asked == ["a", "a"]


async def test_the_detector_drops_brokers_without_a_route() -> None:
    health, _ = _health(FaultTolerance.v5(start_detector=True))
    probes = _Probes()
    probes.answers = {"a": None}
    health.failed("a", 1.0, refused=False)
    await FaultDetector(health, probes, interval_seconds=2.0).detect()
    assert health.is_available("a")
    assert health.to_probe() == []


def test_without_a_detector_only_a_refusal_makes_a_broker_unreachable() -> None:
    health, _ = _health(FaultTolerance.v5())
    health.failed("a", 1.0, refused=False)
    assert health.is_reachable("a")
    health.failed("a", 1.0, refused=True)
    assert not health.is_reachable("a")
    health.answered("a", 0.01)
    assert health.is_reachable("a")
