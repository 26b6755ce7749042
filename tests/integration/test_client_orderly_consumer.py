"""The ordered push consumer against brokers in memory: order, locks, moving queues, dead letters."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    ConsumeResult,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    PushConsumer,
    UsageError,
)
from rmq_remoting.bodies.lock import LockBatchRequestBody
from rmq_remoting.bodies.offsets import ResetOffsetBody
from rmq_remoting.bodies.route import BrokerData
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader
from rmq_remoting.message_codec import encode_stored_message
from tests.support.waiting import until
from tests.unit.client.fake_cluster import FakeBroker, FakeCluster, FakeNamesrv, Fault
from tests.unit.client.push_consumers import QUICK, consumer_of, put, until_assigned
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_QUEUE = MessageQueue("T", "broker-a", 0)


class _Ledger:
    """Records the messages of each queue, and asserts that no two calls for one queue overlap."""

    def __init__(self) -> None:
        self.bodies: dict[int, list[bytes]] = defaultdict(list)
        self.overlaps = 0
        self._busy: set[int] = set()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return sum(map(len, self.bodies.values()))

    def enter(self, queue_id: int) -> None:
        with self._lock:
            self.overlaps += queue_id in self._busy
            self._busy.add(queue_id)

    def leave(self, messages: list[MessageExt]) -> None:
        with self._lock:
            self._busy.discard(messages[0].queue_id)
            self.bodies[messages[0].queue_id] += [message.body for message in messages]

    def listen(self, messages: list[MessageExt]) -> None:
        self.enter(messages[0].queue_id)
        self.leave(messages)

    async def listen_async(self, messages: list[MessageExt]) -> None:
        self.enter(messages[0].queue_id)
        await asyncio.sleep(0)
        self.leave(messages)


def _call(cluster: FakeCluster, code: RequestCode, header: Any, body: bytes = b"") -> Any:
    (client_id,) = cluster.broker.clients
    return cluster.broker.call_client(client_id, RemotingCommand.request(code, header.encode(), body))


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_each_queue_is_ordered_and_queues_run_side_by_side(kind: str) -> None:
    async with FakeCluster({"broker-a": {"T": 4}}) as cluster:
        bodies = put(cluster, 200)
        ledger = _Ledger()
        listener = ledger.listen if kind == "function" else ledger.listen_async
        async with consumer_of(cluster, listener, orderly=True):
            await until(lambda: ledger.count == 200)
        assert ledger.overlaps == 0
        for queue_id in range(4):
            assert ledger.bodies[queue_id] == bodies[queue_id::4]
            assert cluster.broker.offsets["g", "T", queue_id] == 50
        assert cluster.broker.locks == {}, "all given back"


async def test_a_refused_message_is_repeated_before_the_next() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        calls: list[tuple[bytes, int]] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            if message.body == b"001" and message.reconsume_times == 1:
                raise RuntimeError("not yet")
            later = message.body == b"001" and message.reconsume_times == 0
            return ConsumeResult.LATER if later else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True, suspend_current_queue_time_ms=20):
            await until(lambda: len(calls) == 5)
        assert calls == [(b"000", 0), (b"001", 0), (b"001", 1), (b"001", 2), (b"002", 0)]
        assert cluster.broker.offsets["g", "T", 0] == 3
        assert cluster.broker.sent_back == []


async def test_after_enough_attempts_a_message_goes_to_the_dead_letters() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 2, queues=1)
        cluster.broker.topics["%RETRY%g"] = 1
        cluster.broker.order(RequestCode.SEND_MESSAGE_V2, Fault(code=ResponseCode.SYSTEM_ERROR))
        calls: list[tuple[bytes, int]] = []

        def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            context.suspend_current_queue_time_ms = 10
            return ConsumeResult.LATER if message.body == b"000" else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True, max_reconsume_times=1):
            await until(lambda: (b"001", 0) in calls)
        # Once more than allowed: the first time, no broker accepted the dead letter.
        first = [call for call in calls if call[0] == b"000"]
        assert first[:3] == [(b"000", 0), (b"000", 1), (b"000", 2)]
        assert cluster.broker.offsets["g", "T", 0] == 2
        (sent,) = cluster.broker.sends
        assert sent.target.topic == "%RETRY%g"
        assert [message.body for message in cluster.broker.dead_letters] == [b"000"]


async def test_commits_by_hand() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 4, queues=1)
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
            context.auto_commit = False
            context.suspend_current_queue_time_ms = 10
            seen.append(messages[0].body)
            if len(seen) == 2:
                return ConsumeResult.ROLLBACK
            return ConsumeResult.COMMIT if messages[0].body == b"002" else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True) as consumer:
            await until(lambda: len(seen) == 6)
            await consumer.commit()
            assert cluster.broker.offsets["g", "T", 0] == 3
        assert seen == [b"000", b"001", b"000", b"001", b"002", b"003"]
        assert cluster.broker.offsets["g", "T", 0] == 3, "the last one is not committed"


async def test_a_queue_is_taken_only_with_its_lock() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        bodies = put(cluster, 4, queues=2)
        cluster.broker.locks["g", _QUEUE] = "another-client"
        ledger = _Ledger()
        async with consumer_of(cluster, ledger.listen, orderly=True) as consumer:
            await until_assigned(consumer, 1)
            await until(lambda: ledger.bodies[1] == bodies[1::2])
            assert not ledger.bodies[0]
            del cluster.broker.locks["g", _QUEUE]
            await until(lambda: ledger.bodies[0] == bodies[::2])


async def test_a_consumer_that_stops_while_it_asks_for_locks_leaves_none_behind() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        cluster.broker.order(RequestCode.LOCK_BATCH_MQ, Fault(delay_seconds=0.1))
        async with consumer_of(cluster, print, orderly=True):
            await until(lambda: cluster.broker.requests(RequestCode.LOCK_BATCH_MQ))
        assert cluster.broker.locks == {}
        codes = [
            code
            for code in cluster.broker.codes()
            if code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        ]
        assert codes[-1] == RequestCode.UNLOCK_BATCH_MQ


async def test_locks_are_renewed_also_while_the_listener_hangs() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 2, queues=2)
        release = threading.Event()

        def listen(messages: list[MessageExt]) -> None:
            release.wait()

        async with consumer_of(cluster, listen, orderly=True):
            await until(lambda: len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)) > 5)
            last = LockBatchRequestBody.decode(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)[-1].body)
            assert {queue.queue_id for queue in last.mq_set} == {0, 1}
            release.set()


async def test_a_lost_lock_drops_held_messages_and_keeps_the_order() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        bodies = put(cluster, 6, queues=1)
        seen: list[bytes] = []
        release = asyncio.Event()

        async def listen(messages: list[MessageExt]) -> None:
            if messages[0].body == b"002" and not release.is_set():
                await release.wait()
            seen.append(messages[0].body)

        async with consumer_of(cluster, listen, orderly=True) as consumer:
            await until(lambda: len(seen) == 2)
            cluster.broker.locks["g", _QUEUE] = "another-client"
            await until_assigned(consumer, 0)
            cluster.broker.offsets["g", "T", 0] = 4  # the other consumer has continued
            release.set()
            await until(lambda: len(seen) == 3)
            assert cluster.broker.offsets["g", "T", 0] == 4, "the result of the call did not count"
            del cluster.broker.locks["g", _QUEUE]
            await until(lambda: len(seen) == 5)
        assert seen == [*bodies[:3], *bodies[4:]]


async def test_a_queue_lost_while_it_is_given_up_commits_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 6, queues=2)
        release = threading.Event()
        ledger = _Ledger()

        def slow(messages: list[MessageExt]) -> None:
            if messages[0].queue_offset:
                release.wait()

        timing = replace(QUICK, drop_wait_seconds=0.05)
        settings = ClientSettings(instance_name="second")
        broker = cluster.broker
        async with consumer_of(cluster, slow, orderly=True, timing=timing) as first:
            await until(lambda: broker.offsets.get(("g", "T", 0)) == broker.offsets.get(("g", "T", 1)) == 1)
            (owner,) = set(broker.locks.values())
            async with consumer_of(cluster, ledger.listen, orderly=True, settings=settings):
                await until_assigned(first, 1)
                (left,) = {0, 1} - {queue.queue_id for queue in await first.assigned_queues()}
                (other,) = set(broker.clients) - {owner}
                # As if the broker's lock had expired, and another member had locked the queue first.
                broker.locks["g", MessageQueue("T", "broker-a", left)] = other
                await until(lambda: broker.offsets["g", "T", left] == 3)
                await until(lambda: "another consumer has its lock" in caplog.text)
                unlocks = len(broker.requests(RequestCode.UNLOCK_BATCH_MQ))
                release.set()
                await until(lambda: len(broker.requests(RequestCode.UNLOCK_BATCH_MQ)) > unlocks)
                assert broker.offsets["g", "T", left] == 3, "not back to where the first one was"
        assert len(ledger.bodies[left]) == 2


async def test_a_moving_queue_has_one_consumer_at_a_time() -> None:
    async with FakeCluster({"broker-a": {"T": 4}}) as cluster:
        ledger = _Ledger()
        total = 0

        async def listen(messages: list[MessageExt]) -> None:
            ledger.enter(messages[0].queue_id)
            await asyncio.sleep(0.002)
            ledger.leave(messages)

        def send() -> None:
            nonlocal total
            for _ in range(40):
                cluster.broker.put("T", b"%06d" % total, queue_id=total % 4)
                total += 1

        async with consumer_of(cluster, listen, orderly=True) as first:
            send()
            for number in range(4):
                settings = ClientSettings(instance_name=f"member-{number}")
                async with consumer_of(cluster, listen, orderly=True, settings=settings) as other:
                    send()
                    await until_assigned(other, 2)
                    send()
                    await until_assigned(first, 2)
                send()
                await until_assigned(first, 4)
            await until(lambda: ledger.count >= total, timeout_seconds=20)
        assert ledger.overlaps == 0
        for queue_id in range(4):
            expected = [b"%06d" % number for number in range(queue_id, total, 4)]
            assert ledger.bodies[queue_id] == expected, "in order, nothing lost, nothing twice"


async def test_a_revoked_queue_stays_locked_until_the_listener_returns() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 4, queues=2)
        release = threading.Event()
        ledger, other_ledger = _Ledger(), _Ledger()

        def slow(messages: list[MessageExt]) -> None:
            release.wait()
            ledger.listen(messages)

        timing = replace(QUICK, drop_wait_seconds=0.05)
        second = ClientSettings(instance_name="second")
        async with consumer_of(cluster, slow, orderly=True, timing=timing) as first:
            await until_assigned(first, 2)
            (owner,) = set(cluster.broker.locks.values())
            async with consumer_of(cluster, other_ledger.listen, orderly=True, settings=second) as other:
                await until_assigned(first, 1)
                (left,) = {0, 1} - {queue.queue_id for queue in await first.assigned_queues()}
                await until(lambda: len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)) > 20)
                assert set(cluster.broker.locks.values()) == {owner}, "the listener still has it"
                assert other_ledger.count == 0
                release.set()
                await until_assigned(other, 1)
                await until(lambda: other_ledger.count == 1)
                # Results after the queue was given up counted, since no other member could have begun.
                assert len(ledger.bodies[left]) == 1
                assert cluster.broker.offsets["g", "T", left] >= 1


async def test_a_reset_queue_stays_locked_until_the_old_call_returns() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        bodies = put(cluster, 5, queues=1)
        broker = cluster.broker
        begun, release = asyncio.Event(), asyncio.Event()
        ledger = _Ledger()

        async def slow(messages: list[MessageExt]) -> None:
            begun.set()
            await release.wait()

        timing = replace(QUICK, drop_wait_seconds=0.05)
        names = [ClientSettings(instance_name=name) for name in ("second", "first")]
        async with consumer_of(cluster, slow, orderly=True, timing=timing, settings=names[0]) as old:
            await begun.wait()
            (owner,) = set(broker.locks.values())
            reset = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ResetOffsetRequestHeader(topic="T", group="g").encode(),
                ResetOffsetBody(offset_table={_QUEUE: 2}).encode(),
                oneway=True,
            )
            broker.clients[owner].connection.send_oneway(reset)
            await until(lambda: broker.offsets.get(("g", "T", 0)) == 2)
            async with consumer_of(cluster, ledger.listen, orderly=True, settings=names[1]):
                await until_assigned(old, 0)
                locks = len(broker.requests(RequestCode.LOCK_BATCH_MQ))
                await until(lambda: len(broker.requests(RequestCode.LOCK_BATCH_MQ)) > locks + 5)
                assert broker.locks == {("g", _QUEUE): owner}
                assert ledger.count == 0
                release.set()
                await until(lambda: ledger.count == 3)
        assert ledger.bodies[0] == bodies[2:]


async def test_locks_are_requested_from_masters_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def as_slave(broker: FakeBroker) -> BrokerData:
        return BrokerData(broker_name=broker.name, broker_addrs={1: broker.address}, cluster="c")

    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        bodies = put(cluster, 2, queues=2)
        ledger = _Ledger()
        with monkeypatch.context() as patched:
            patched.setattr(FakeNamesrv, "_data", staticmethod(as_slave))
            settings = ClientSettings(route_refresh_seconds=0.1)
            async with consumer_of(cluster, ledger.listen, orderly=True, settings=settings):
                await until(lambda: "queues not locked count=2 cause=no master of broker-a" in caplog.text)
                assert not cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)
                patched.undo()
                await until(lambda: ledger.count == 2)
        assert sorted(body for own in ledger.bodies.values() for body in own) == bodies


async def test_locks_are_renewed_while_a_stop_waits_for_the_listener() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 2, queues=1)
        begun, release = asyncio.Event(), asyncio.Event()

        async def listen(messages: list[MessageExt]) -> None:
            begun.set()
            await release.wait()

        broker = cluster.broker
        async with consumer_of(cluster, listen, orderly=True) as consumer:
            await begun.wait()
            stopping = asyncio.ensure_future(consumer.stop())
            locks = len(broker.requests(RequestCode.LOCK_BATCH_MQ))
            await until(lambda: len(broker.requests(RequestCode.LOCK_BATCH_MQ)) > locks + 3)
            assert broker.locks
            release.set()
            await stopping
        assert broker.locks == {}
        assert broker.codes()[-1] != RequestCode.LOCK_BATCH_MQ
        assert broker.offsets["g", "T", 0] == 1


async def test_an_administrator_resets_the_offsets_of_an_ordered_group() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        bodies = put(cluster, 5, queues=1)
        ledger = _Ledger()
        begun, release = asyncio.Event(), asyncio.Event()

        async def listen(messages: list[MessageExt]) -> None:
            ledger.enter(0)
            if messages[0].body == b"004":
                begun.set()
                await release.wait()
            ledger.leave(messages)

        async with consumer_of(cluster, listen, orderly=True):
            await begun.wait()
            header = ResetOffsetRequestHeader(topic="T", group="g")
            (client_id,) = cluster.broker.clients
            request = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                header.encode(),
                ResetOffsetBody(offset_table={_QUEUE: 1}).encode(),
                oneway=True,
            )
            cluster.broker.clients[client_id].connection.send_oneway(request)
            await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 1)
            release.set()
            await until(lambda: ledger.count == 9)
        assert ledger.bodies[0] == [*bodies, *bodies[1:]]
        assert ledger.overlaps == 0


async def test_an_administrator_gets_the_running_info_of_an_ordered_consumer() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        message = cluster.broker.put("T", b"x")
        seen: list[bytes] = []

        def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
            context.auto_commit = False
            seen.append(messages[0].body)
            return ConsumeResult.ROLLBACK if len(seen) == 2 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True):
            await until(lambda: seen)
            (client_id,) = cluster.broker.clients
            asking = GetConsumerRunningInfoRequestHeader(
                consumer_group="g", client_id=client_id, jstack_enable=False
            )
            answer = await _call(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, asking)
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "true"
            queue = info.mq_table[_QUEUE]
            assert queue.locked
            assert queue.last_lock_timestamp > 0
            assert (queue.transaction_msg_count, queue.transaction_msg_max_offset) == (1, 0)
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g", client_id=client_id, msg_id="x"
            )
            answer = await _call(
                cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, encode_stored_message(message)
            )
            result = ConsumeMessageDirectlyResult.decode(answer.body)
            assert (result.consume_result, result.order, result.auto_commit) == (
                CMResult.CR_ROLLBACK,
                True,
                False,
            )


async def test_invalid_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="max_reconsume_times=-1"):
        PushConsumer("a:1", group="g", topics=["T"], listener=print, max_reconsume_times=-1)
