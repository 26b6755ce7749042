"""The producer against brokers in memory: refused, late and lost answers, and brokers that are gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq_client import (
    Admin,
    BatchPolicy,
    BrokerUnreachable,
    ClientError,
    FaultTolerance,
    InFlightLimits,
    Message,
    MessageQueue,
    NameServerUnreachable,
    Producer,
    Rejected,
    RetryPolicy,
    SendStatus,
    TimedOut,
    UsageError,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.connection import Connection
from tests.support.fake_cluster import FakeCluster, Fault
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_SEND = RequestCode.SEND_MESSAGE_V2


async def test_a_failed_batch_fails_all_its_sends() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy()) as producer,
    ):
        await producer.queues("T")
        cluster.broker.order(RequestCode.SEND_BATCH_MESSAGE, Fault(code=ResponseCode.MESSAGE_ILLEGAL))
        outcomes = await asyncio.gather(
            *(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [Rejected] * 3
        assert producer.in_flight == 0


async def test_one_way_sends_raise_without_a_broker() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.queues("T")
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable, match="cannot connect"):
            await producer.send_oneway(Message("T", b"x"))


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST]
)
async def test_an_unavailable_broker_is_replaced_by_another(code: ResponseCode) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.brokers["broker-a"].order(_SEND, Fault(code=code))
        results = [await producer.send(Message("T", b"x")) for _ in range(2)]
        assert "broker-b" in {result.queue.broker_name for result in results}
        assert sum(len(broker.requests(_SEND)) for broker in cluster.brokers.values()) == 3


async def test_a_single_broker_is_retried() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, Fault(code=ResponseCode.SYSTEM_BUSY), Fault(cut=True))
        result = await producer.send(Message("T", b"x"))
        assert result.queue_offset == 0
        assert len(cluster.broker.requests(_SEND)) == 3
        ids = {header.properties for header in cluster.broker.sends}
        assert len(ids) == 1


async def test_all_attempts_fail() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=1)) as producer,
    ):
        cluster.broker.order(
            _SEND, *(Fault(code=ResponseCode.SYSTEM_BUSY, remark="too much") for _ in range(2))
        )
        with pytest.raises(Exception, match=r"answered 2 \(SYSTEM_BUSY\): too much") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.retryable  # type: ignore[attr-defined]
        assert len(cluster.broker.requests(_SEND)) == 2


async def test_a_rejected_message_is_not_retried() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, Fault(code=ResponseCode.MESSAGE_ILLEGAL, remark="bad"))
        with pytest.raises(Rejected, match="bad"):
            await producer.send(Message("T", b"x"))
        cluster.broker.order(_SEND, Fault(code=4711))
        with pytest.raises(Exception, match=r"4711 \(unknown code\)"):
            await producer.send(Message("T", b"x"))
        assert len(cluster.broker.requests(_SEND)) == 2


async def test_a_send_to_a_chosen_queue_is_not_retried() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        broker = cluster.brokers["broker-a"]
        broker.order(_SEND, Fault(code=ResponseCode.SYSTEM_BUSY))
        with pytest.raises(Exception, match="SYSTEM_BUSY"):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0))
        assert cluster.brokers["broker-b"].seen == []


async def test_one_timeout_bounds_all_attempts() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", timeout_seconds=1.0) as producer,
    ):
        for broker in cluster.brokers.values():
            broker.order(_SEND, *(Fault(silent=True) for _ in range(3)))
        began = time.monotonic()
        with pytest.raises(TimedOut, match="no response from"):
            await producer.send(Message("T", b"x"))
        assert 0.9 < time.monotonic() - began < 2.5  # three attempts of a second take more
        assert producer.in_flight == 0
        cluster.namesrv.order(RequestCode.GET_ROUTEINFO_BY_TOPIC, Fault(silent=True))
        with pytest.raises(TimedOut, match="did not return the route of topic Other"):
            await producer.send(Message("Other", b"x"))


async def test_a_late_answer_is_ignored() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, Fault(delay_seconds=0.4))
        with pytest.raises(TimedOut):
            await producer.send(Message("T", b"late"), timeout_seconds=0.1)
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
        await until(lambda: b"late" in cluster.broker.bodies)
        assert (await producer.send(Message("T", b"more"))).status is SendStatus.SEND_OK


async def test_a_broker_that_was_restarted_is_found_again() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.send(Message("T", b"1"))
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable):
            await producer.send(Message("T", b"2"), timeout_seconds=0.3)
        await cluster.broker.listen()
        async with asyncio.timeout(10):
            while True:
                try:
                    await producer.send(Message("T", b"3"))
                    break
                except BrokerUnreachable:
                    await asyncio.sleep(0.01)
        await until(lambda: cluster.broker.requests(RequestCode.HEART_BEAT))


async def test_statuses_other_than_send_ok_are_no_errors() -> None:
    async with FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
        flush = ResponseCode.FLUSH_DISK_TIMEOUT
        fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "9"}
        broker = cluster.brokers["broker-a"]
        stored = broker.send

        def unsafely(connection: object, request: object) -> object:
            return request.response(flush, ext_fields=fields)  # type: ignore[attr-defined]

        await broker.close()
        broker.send = unsafely  # type: ignore[method-assign,assignment]
        await broker.listen()
        async with Producer(cluster.address, group="g") as producer:
            queue = MessageQueue("T", "broker-a", 0)
            result = await producer.send(Message("T", b"x"), queue=queue)
            assert (result.status, result.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 9)
        policy = RetryPolicy(unless_stored_safely=True)
        async with Producer(cluster.address, group="g", retry=policy) as producer:
            results = [await producer.send(Message("T", b"x")) for _ in range(4)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            assert all(result.status is SendStatus.SEND_OK for result in results)
        broker.send = stored  # type: ignore[method-assign]


async def test_sends_above_the_bounds_wait() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", limits=InFlightLimits(max_messages=2)) as producer,
    ):
        cluster.broker.order(_SEND, Fault(delay_seconds=0.1), Fault(delay_seconds=0.1))
        sends = [asyncio.ensure_future(producer.send(Message("T", b"%d" % n))) for n in range(5)]
        await until(lambda: len(cluster.broker.requests(_SEND)) == 2)
        assert producer.in_flight == 2
        await asyncio.gather(*sends)
        assert producer.in_flight == 0


async def test_waiting_for_admission_ends_in_time() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", limits=InFlightLimits(max_messages=1)) as producer,
    ):
        cluster.broker.order(_SEND, Fault(delay_seconds=0.5))
        first = asyncio.ensure_future(producer.send(Message("T", b"1")))
        await until(lambda: producer.in_flight == 1)
        with pytest.raises(TimedOut, match=r"1 messages .* are in flight; send slower"):
            await producer.send(Message("T", b"2"), timeout_seconds=0.05)
        await first


async def test_cancelled_sends_leave_nothing_behind() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, *(Fault(silent=True) for _ in range(20)))
        sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(20)]
        await until(lambda: len(cluster.broker.requests(_SEND)) == 20)
        for send in sends:
            send.cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert producer.in_flight == 0
        assert (await producer.send(Message("T", b"y"))).status is SendStatus.SEND_OK


async def test_admin_creates_topics() -> None:
    async with FakeCluster({"broker-a": {}, "broker-b": {}}) as cluster, Admin(cluster.address) as admin:
        await admin.create_topic("T", queues=3)
        assert [broker.topics for broker in cluster.brokers.values()] == [{"T": 3}, {"T": 3}]
        await admin.create_topic("U", queues=1, broker_name="broker-b")
        assert "U" not in cluster.brokers["broker-a"].topics
        assert await admin.topics() == ["T", "U"]
        with pytest.raises(UsageError, match=r"broker-c has no master; brokers known .*: broker-a, broker-b"):
            await admin.create_topic("V", broker_name="broker-c")
        cluster.brokers["broker-a"].listed = False
        with pytest.raises(Exception, match="created on broker-a, but the name servers do not list"):
            await admin.create_topic("W", timeout_seconds=0.2)


async def test_a_hanging_broker_does_not_use_up_the_timeout() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", timeout_seconds=3.0) as producer,
    ):
        cluster.brokers["broker-a"].order(_SEND, *(Fault(silent=True) for _ in range(10)))
        results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(10)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_retry_avoids_all_brokers_that_failed_in_this_send() -> None:
    brokers = {name: {"T": 4} for name in ("broker-a", "broker-b", "broker-c")}
    async with FakeCluster(brokers) as cluster, Producer(cluster.address, group="g") as producer:
        for name in ("broker-a", "broker-b"):
            cluster.brokers[name].order(_SEND, *(Fault(code=ResponseCode.SYSTEM_BUSY) for _ in range(100)))
        for _ in range(12):
            assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-c"


async def test_a_failed_broker_is_avoided_for_a_while() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", fault_tolerance=FaultTolerance.v5()) as producer,
    ):
        bad = cluster.brokers["broker-a"]
        bad.order(_SEND, Fault(code=ResponseCode.SERVICE_NOT_AVAILABLE))
        for _ in range(20):
            await producer.send(Message("T", b"x"))
        assert len(bad.requests(_SEND)) == 1
        for _ in range(5):
            await producer.send_oneway(Message("T", b"x"))
        await until(lambda: len(cluster.brokers["broker-b"].bodies) == 25)
        chosen = MessageQueue("T", "broker-a", 0)
        assert (await producer.send(Message("T", b"x"), queue=chosen)).queue == chosen, "who chooses gets it"


async def test_refusals_caused_by_the_message_avoid_no_broker() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", fault_tolerance=FaultTolerance.v5()) as producer,
    ):
        for broker in cluster.brokers.values():
            broker.order(_SEND, Fault(code=ResponseCode.MESSAGE_ILLEGAL))
        for _ in range(2):
            with pytest.raises(Rejected):
                await producer.send(Message("T", b"x"))
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == set(cluster.brokers)


async def test_the_detector_finds_recovered_brokers() -> None:
    tolerance = FaultTolerance(
        avoidance=((0, 0), (10, 0.2)),
        start_detector=True,
        detect_interval_seconds=0.02,
        detect_timeout_seconds=0.5,
    )
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", fault_tolerance=tolerance) as producer,
    ):
        bad = cluster.brokers["broker-a"]
        bad.order(_SEND, Fault(cut=True))
        bad.order(RequestCode.GET_MAX_OFFSET, Fault(code=ResponseCode.SYSTEM_ERROR))
        for _ in range(2):
            await producer.send(Message("T", b"x"))
        await until(lambda: len(bad.requests(RequestCode.GET_MAX_OFFSET)) == 2)
        before = len(bad.bodies)
        async with asyncio.timeout(20):
            while len(bad.bodies) == before:
                await producer.send(Message("T", b"x"))


@pytest.mark.parametrize(
    ("fault", "is_unknown", "is_stored"),
    [
        (Fault(cut=True), True, False),
        (Fault(cut=True, after=True), True, True),
        (Fault(silent=True), True, False),
        (Fault(silent=True, after=True), True, True),
        (Fault(code=ResponseCode.SYSTEM_BUSY), False, False),
        (Fault(code=ResponseCode.MESSAGE_ILLEGAL), False, False),
        (Fault(code=ResponseCode.SYSTEM_ERROR), True, False),
    ],
)
async def test_errors_tell_whether_the_message_may_be_stored(
    fault: Fault, is_unknown: bool, is_stored: bool
) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=0), timeout_seconds=0.3) as producer,
    ):
        cluster.broker.order(_SEND, fault)
        with pytest.raises(ClientError) as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.is_outcome_unknown == is_unknown
        assert (cluster.broker.bodies == [b"x"]) == is_stored


async def test_an_unknown_outcome_stays_unknown_after_later_attempts() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=1)) as producer,
    ):
        cluster.broker.order(_SEND, Fault(cut=True, after=True), Fault(code=ResponseCode.SYSTEM_BUSY))
        with pytest.raises(ClientError, match="SYSTEM_BUSY") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.is_outcome_unknown


async def test_a_refused_connection_has_a_known_outcome() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.queues("T")
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send(Message("T", b"x"))
        assert not caught.value.is_outcome_unknown


@asynccontextmanager
async def _behind_proxy(cluster: FakeCluster) -> AsyncIterator[FaultProxy]:
    host, port = cluster.broker.address.split(":")
    async with fault_proxy(host, int(port)) as proxy:
        cluster.broker.announced = proxy.address
        yield proxy


async def _quiet_connection(producer: Producer, proxy: FaultProxy) -> Connection:
    """Return the connection through the proxy, once its first heartbeat is answered."""
    instance = producer._instance
    assert instance is not None
    connection = instance._client.existing(proxy.address)
    assert connection is not None
    await until(lambda: not connection.pending_requests)
    return connection


async def test_the_network_is_cut_before_a_send_arrives() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=0)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        connection = await _quiet_connection(producer, proxy)
        proxy.stall()
        sending = asyncio.ensure_future(producer.send(Message("T", b"x" * 3_000_000), timeout_seconds=10))
        await until(lambda: connection.pending_requests)
        proxy.cut()
        with pytest.raises(BrokerUnreachable) as caught:
            await sending
        assert caught.value.is_outcome_unknown
        proxy.resume()
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
        assert cluster.broker.bodies == [b"first", b"next"]


@pytest.mark.parametrize("passing_bytes", [1, 30, 500, 40_000])
async def test_the_network_is_cut_in_the_middle_of_the_request(passing_bytes: int) -> None:
    """In the length of the frame, its header, its body: the caller cannot know what the broker has."""
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", compression=None, retry=RetryPolicy(retries=0)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        await _quiet_connection(producer, proxy)
        proxy.cut_requests_after_bytes = passing_bytes
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send(Message("T", b"x" * 50_000))
        assert caught.value.is_outcome_unknown
        assert proxy.cut_requests_after_bytes is None, "so much of it has passed"
        assert cluster.broker.bodies == [b"first"], "a part of a message is none"
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
        assert cluster.broker.bodies == [b"first", b"next"]


@pytest.mark.parametrize("passing_bytes", [1, 30, 40_000])
async def test_an_interrupted_request_is_resent_whole(passing_bytes: int) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", compression=None) as producer,
    ):
        await producer.send(Message("T", b"first"))
        await _quiet_connection(producer, proxy)
        proxy.cut_requests_after_bytes = passing_bytes
        result = await producer.send(Message("T", b"x" * 50_000))
        assert result.status is SendStatus.SEND_OK
        assert proxy.cut_requests_after_bytes is None
        assert cluster.broker.bodies == [b"first", b"x" * 50_000]


async def test_the_network_is_cut_in_the_middle_of_the_answer() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=0)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        await _quiet_connection(producer, proxy)
        proxy.cut_after_bytes = 10
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.is_outcome_unknown
        assert cluster.broker.bodies == [b"first", b"x"]
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK


async def test_the_port_of_a_broker_is_not_taken_for_a_name_server() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.broker.address, group="p") as producer,
    ):
        with pytest.raises(NameServerUnreachable, match=r"is no name server .* port of a broker"):
            await producer.send(Message("T", b"x"))


@pytest.mark.parametrize("call", ["topics", "cluster_info", "name_server_settings"])
async def test_administration_does_not_take_it_for_one_either(call: str) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Admin(cluster.broker.address) as admin,
    ):
        with pytest.raises(NameServerUnreachable, match=r"is no name server .* port of a broker"):
            await getattr(admin, call)()


async def test_an_unreachable_broker_is_explained() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="p") as producer,
    ):
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable, match=r"can this machine reach the address .*brokerIP1"):
            await producer.send(Message("T", b"x"), timeout_seconds=0.5)
