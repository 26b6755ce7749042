"""Who has the smallest living id, and when a replica may act."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.acting.smallest_broker import SmallestBroker
from tests.support.clock import Clock
from tests.support.waiting import loop_passes


def _smallest(broker_id: int = 1, *, is_enabled: bool = True, clock: Clock | None = None) -> SmallestBroker:
    now_ms = clock or Clock()
    return SmallestBroker(broker_id, is_enabled=is_enabled, clock=lambda: now_ms() / 1000)


async def test_a_replica_acts_while_it_has_the_smallest_id() -> None:
    smallest = _smallest(2)
    assert not smallest.may_act
    for members, may_act in (
        ({0: "a", 1: "b", 2: "c"}, False),
        ({1: "b", 2: "c"}, False),
        ({2: "c"}, True),
        ({1: "b", 2: "c"}, False),
    ):
        smallest.changed.clear()
        assert smallest.members_are(members) and smallest.changed.is_set()
        assert not smallest.members_are(members)
        assert smallest.may_act is may_act and smallest.address == members[min(members)]


async def test_a_name_server_without_members_tells_nothing() -> None:
    smallest = _smallest()
    smallest.told(1, "b")
    assert not smallest.members_are({}) and smallest.may_act


@pytest.mark.parametrize(("broker_id", "is_enabled"), [(0, True), (1, False)])
async def test_a_master_and_a_replica_without_the_setting_heed_nothing(
    broker_id: int, is_enabled: bool
) -> None:
    smallest = _smallest(broker_id, is_enabled=is_enabled)
    assert not smallest.told(broker_id, "a")
    assert smallest.broker_id is None and not smallest.may_act


async def test_a_replica_leaves_everything_to_a_master_that_starts() -> None:
    clock = Clock()
    smallest = _smallest(clock=clock)
    smallest.told(1, "b")
    smallest.acts = True
    smallest.master_starts()
    leaving = asyncio.create_task(smallest.acts_no_more())
    await loop_passes()
    assert smallest.changed.is_set() and not smallest.may_act and not leaving.done()
    smallest.acts = False
    await leaving
    assert smallest.keeps_own_progress
    clock.pass_seconds(29)
    assert not smallest.may_act
    clock.pass_seconds(1)  # the master has not come
    assert smallest.may_act and not smallest.keeps_own_progress


async def test_a_replica_keeps_its_progress_for_a_while_after_it_has_acted() -> None:
    clock = Clock()
    smallest = _smallest(clock=clock)
    smallest.acts = False
    assert not smallest.keeps_own_progress
    smallest.acts = True
    assert smallest.keeps_own_progress
    smallest.told(0, "a")
    smallest.acts = False
    clock.pass_seconds(9)
    smallest.acts = False
    assert smallest.keeps_own_progress
    clock.pass_seconds(1)
    assert not smallest.keeps_own_progress
