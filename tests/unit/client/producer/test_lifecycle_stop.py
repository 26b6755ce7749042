"""A producer that is stopped while calls look up routes: it waits for them."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client import Message, NotRunning, Producer, SendHook, SendStatus, TimedOut
from rmq_client.hooks.send import SendContext
from rmq_client.producer.in_flight import InFlightCalls
from rmq_remoting.codes import RequestCode
from tests.support.fake_cluster import FakeCluster, Fault
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import loop_passes, until

_ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


async def test_stop_waits_for_sends_that_look_up_a_route() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g")
        await producer.start()
        cluster.namesrv.order(_ROUTE, Fault(delay_seconds=0.2))
        send = asyncio.ensure_future(producer.send(Message("T", b"x")))
        await until(lambda: cluster.namesrv.requests(_ROUTE))
        await producer.stop()
        assert (await send).status is SendStatus.SEND_OK


async def test_stop_waits_for_one_way_sends_that_look_up_a_route() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g")
        await producer.start()
        cluster.namesrv.order(_ROUTE, Fault(delay_seconds=0.2))
        send = asyncio.ensure_future(producer.send_oneway(Message("T", b"x")))
        await until(lambda: cluster.namesrv.requests(_ROUTE))
        await producer.stop()
        assert send.done()
        assert await send
        await until(lambda: cluster.broker.bodies == [b"x"])


async def test_stop_waits_for_a_send_with_a_hanging_name_server() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g", timeout_seconds=0.3)
        await producer.start()
        cluster.namesrv.order(_ROUTE, Fault(silent=True))
        send = asyncio.ensure_future(producer.send(Message("T", b"x")))
        await until(lambda: cluster.namesrv.requests(_ROUTE))
        async with asyncio.timeout(2):
            await producer.stop()
        assert isinstance(send.exception(), TimedOut)


async def test_a_route_lookup_cancelled_by_stop_raises_not_running() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g")
        await producer.start()
        cluster.namesrv.order(_ROUTE, Fault(silent=True))
        question = asyncio.ensure_future(producer.queues("T"))
        await until(lambda: cluster.namesrv.requests(_ROUTE))
        await producer.stop()
        with pytest.raises(NotRunning, match="stopped") as caught:
            await question
        assert not caught.value.is_outcome_unknown


async def test_a_cancelled_send_is_still_cancelled() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.namesrv.order(_ROUTE, Fault(silent=True))
        send = asyncio.ensure_future(producer.send(Message("T", b"x")))
        await until(lambda: cluster.namesrv.requests(_ROUTE))
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send


class _Kept(SendHook):
    """Keeps the outcomes of sends."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def after(self, context: SendContext) -> None:
        self.errors.append(context.error)


async def test_a_dropped_one_way_message_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = _Kept()
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g", hooks=[hook])
        await producer.start()
        await producer.send_oneway(Message("T", b"x"))
        # The instance ends between the connection and the message.
        instance, producer._instance = producer._instance, None
        assert instance is not None
        await instance.release()
        monkeypatch.setattr(producer._sender, "connect", _connected)
        with pytest.raises(NotRunning, match="stopped"):
            await producer.send_oneway(Message("T", b"y"))
        assert [type(error) for error in hook.errors] == [type(None), NotRunning]
        await until(lambda: producer.in_flight == 0)


async def _connected(_: object) -> None:
    """Pretend that there is a connection."""


async def test_stop_waits_for_batches_in_flight() -> None:
    under_way = InFlightCalls()
    await under_way.wait_idle()
    with under_way:
        with under_way:
            waiting = asyncio.ensure_future(under_way.wait_idle())
            await loop_passes()
        await loop_passes()
        assert not waiting.done()
    await waiting
