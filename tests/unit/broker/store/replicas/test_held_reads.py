"""Consumers wait after a start until replicas have the log, within a time."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.store.replicas.held_reads import HeldReads
from rmq_broker.store.replicas.replica_set import ReplicaSet
from rmq_broker.store.write_health import WriteHealth
from tests.support.broker_settings import broker_settings

_END = 100


def _started(**keys: object) -> tuple[ReplicaSet, HeldReads]:
    held: list[HeldReads] = []
    settings = broker_settings(brokerRole="SYNC_MASTER", **keys)
    replicas = ReplicaSet(
        settings,
        lambda: _END,
        WriteHealth(),
        lambda: held[0].confirmed(replicas.confirmed_offset),
    )
    held.append(HeldReads(replicas))
    replicas.start()
    held[0].start(_END)
    return replicas, held[0]


async def test_consumers_are_served_once_a_replica_has_the_log() -> None:
    replicas, held = _started(minInSyncReplicas=2)
    assert held.are_held
    position = replicas.join("b", _END - 10)
    assert held.are_held
    replicas.acknowledge(position, _END)
    assert not held.are_held
    replicas.stop()


@pytest.mark.virtual_time
async def test_consumers_are_served_after_a_while_without_a_replica() -> None:
    replicas, held = _started(minInSyncReplicas=2)
    await asyncio.sleep(9)
    assert held.are_held
    await asyncio.sleep(2)
    assert not held.are_held
    replicas.stop()


async def test_a_master_that_goes_on_alone_holds_nothing() -> None:
    replicas, held = _started()
    assert not held.are_held
    replicas.stop()
