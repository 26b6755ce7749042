"""Automatic batches and the timeouts of their senders."""

from __future__ import annotations

import asyncio
import time

import pytest

from rmq_client import BatchPolicy, Message, Producer, SendStatus, TimedOut
from rmq_remoting.codes import RequestCode
from tests.support.fake_cluster import FakeCluster, Fault
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_BATCH = RequestCode.SEND_BATCH_MESSAGE


async def test_a_batched_send_ends_with_its_own_timeout() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy(), timeout_seconds=0.8) as producer,
    ):
        await producer.send(Message("T", b"first"))
        cluster.broker.order(_BATCH, Fault(delay_seconds=0.3))
        began = time.monotonic()
        patient = asyncio.ensure_future(producer.send(Message("T", b"patient")))
        with pytest.raises(TimedOut, match=r"to T was not stored within 0\.1 s") as caught:
            await producer.send(Message("T", b"hasty"), timeout_seconds=0.1)
        assert time.monotonic() - began < 0.25
        assert caught.value.is_outcome_unknown
        assert (await patient).status is SendStatus.SEND_OK
        assert set(cluster.broker.bodies) == {b"first", b"patient", b"hasty"}, "it went, and was stored"


async def test_a_longer_timeout_has_a_batch_of_its_own() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy(), timeout_seconds=0.1) as producer,
    ):
        await producer.send(Message("T", b"first"), timeout_seconds=5)
        cluster.broker.order(_BATCH, *(Fault(delay_seconds=0.4) for _ in range(2)))
        patient = asyncio.ensure_future(producer.send(Message("T", b"patient"), timeout_seconds=5))
        hasty = asyncio.ensure_future(producer.send(Message("T", b"hasty")))
        with pytest.raises(TimedOut):
            await hasty
        assert not patient.done()
        assert (await patient).status is SendStatus.SEND_OK


async def test_stop_waits_for_a_batch_whose_sender_was_cancelled() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        async with Producer(cluster.address, group="g", batching=BatchPolicy()) as producer:
            await producer.send(Message("T", b"first"))
            cluster.broker.order(_BATCH, Fault(delay_seconds=0.2))
            with pytest.raises(TimedOut):
                await producer.send(Message("T", b"hasty"), timeout_seconds=0.05)
            assert producer.in_flight == 0
        assert cluster.broker.bodies == [b"first", b"hasty"]


async def test_a_cancelled_send_does_not_affect_its_batch() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy()) as producer,
    ):
        await producer.send(Message("T", b"first"))
        cluster.broker.order(_BATCH, Fault(delay_seconds=0.1))
        sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(3)]
        await until(lambda: cluster.broker.requests(_BATCH))
        sends[1].cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert [getattr(outcomes[n], "status", None) for n in (0, 2)] == [SendStatus.SEND_OK] * 2
