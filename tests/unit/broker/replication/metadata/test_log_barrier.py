"""Answers of the master wait until the replica's log is flushed as far as the master's log went."""

from __future__ import annotations

import pytest

from rmq_broker.replication.metadata.log_barrier import LogBarrier


class _Replica:
    """A replica whose log is flushed up to `flushed`."""

    def __init__(self) -> None:
        self.flushed = 0
        self.barrier = LogBarrier(lambda: self.flushed)
        self.applied: list[str] = []

    def hold(self, name: str, answer: str) -> None:
        async def apply() -> None:
            self.applied.append(answer)

        self.barrier.hold(name, apply)

    async def reach(self, flushed: int) -> list[str]:
        self.flushed = flushed
        for _, apply in self.barrier.take_reached():
            await apply()
        return self.applied


async def test_an_answer_waits_for_the_log() -> None:
    replica = _Replica()
    replica.hold("offsets", "first")
    assert replica.barrier.needs_end
    assert await replica.reach(1000) == []  # the end of the master's log is not known yet
    replica.barrier.master_ends_at(1500)
    assert not replica.barrier.needs_end
    assert await replica.reach(1499) == []
    assert await replica.reach(1500) == ["first"]
    assert not len(replica.barrier)


async def test_a_later_answer_does_not_delay_an_earlier_one() -> None:
    """A replica that always lags would never apply an answer otherwise."""
    replica = _Replica()
    for number, name in enumerate(("first", "second", "third"), start=1):
        replica.hold("offsets", name)
        replica.barrier.master_ends_at(100 * number)
    assert await replica.reach(99) == []
    assert await replica.reach(250) == ["first"]
    assert await replica.reach(300) == ["first", "third"]
    assert not len(replica.barrier)


async def test_only_the_newest_answer_that_is_reached_is_applied() -> None:
    replica = _Replica()
    replica.hold("offsets", "first")
    replica.barrier.master_ends_at(100)
    replica.hold("offsets", "second")
    replica.barrier.master_ends_at(200)
    replica.hold("offsets", "third")
    assert replica.barrier.needs_end
    assert await replica.reach(500) == ["first"]
    replica.barrier.master_ends_at(300)
    assert await replica.reach(500) == ["first", "third"]


async def test_answers_are_dropped_if_the_master_lost_the_end_of_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica = _Replica()
    replica.hold("offsets", "lost")
    replica.barrier.master_ends_at(500)
    replica.hold("delays", "new")
    replica.barrier.master_ends_at(400)
    assert await replica.reach(600) == ["new"]
    assert "part=offsets log_end=400 before=500" in caplog.text


async def test_answers_of_another_master_are_dropped() -> None:
    replica = _Replica()
    replica.hold("offsets", "old")
    replica.barrier.clear()
    replica.barrier.master_ends_at(0)
    assert await replica.reach(10) == []
