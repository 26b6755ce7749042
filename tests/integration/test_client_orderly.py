"""The ordered push consumer: order, locks, moving queues."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

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
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader
from rmq_remoting.message_codec import encode_stored_message
from tests.support.clusters import ClusterBroker, running_cluster
from tests.support.push_consumers import QUICK, consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

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


def _take_lock(broker: ClusterBroker, queue: MessageQueue, client_id: str) -> None:
    """Lock a queue for a client as if the lock of its owner had expired."""
    broker.expire_lock(queue)
    assert broker.locks.lock("g", [queue], client_id) == [queue]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_each_queue_is_ordered_and_queues_run_side_by_side(kind: str, tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        bodies = put(cluster, 200)
        ledger = _Ledger()
        listener = ledger.listen if kind == "function" else ledger.listen_async
        async with consumer_of(cluster, listener, orderly=True):
            await until(lambda: ledger.count == 200)
        assert ledger.overlaps == 0
        for queue_id in range(4):
            assert ledger.bodies[queue_id] == bodies[queue_id::4]
            assert cluster.broker.committed(queue_id=queue_id) == 50
        assert cluster.broker.locks.counts() == {}, "all given back"


async def test_a_refused_message_is_repeated_before_the_next(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        calls: list[tuple[bytes, int]] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            if message.body == b"001" and message.reconsume_times == 1:
                raise RuntimeError("not yet")
            later = message.body == b"001" and message.reconsume_times == 0
            return ConsumeResult.LATER if later else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True, suspend_seconds=0.02):
            await until(lambda: len(calls) == 5)
        assert calls == [(b"000", 0), (b"001", 0), (b"001", 1), (b"001", 2), (b"002", 0)]
        assert cluster.broker.committed() == 3
        assert cluster.broker.sent_back == []


async def test_commits_by_hand(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 4, queues=1)
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
            context.auto_commit = False
            context.suspend_seconds = 0.01
            seen.append(messages[0].body)
            if len(seen) == 2:
                return ConsumeResult.ROLLBACK
            return ConsumeResult.COMMIT if messages[0].body == b"002" else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True) as consumer:
            await until(lambda: len(seen) == 6)
            await consumer.commit()
            assert cluster.broker.committed() == 3
        assert seen == [b"000", b"001", b"000", b"001", b"002", b"003"]
        assert cluster.broker.committed() == 3, "the last one is not committed"


async def test_a_queue_is_taken_only_with_its_lock(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        bodies = put(cluster, 4, queues=2)
        _take_lock(cluster.broker, _QUEUE, "another-client")
        ledger = _Ledger()
        async with consumer_of(cluster, ledger.listen, orderly=True) as consumer:
            await until_assigned(consumer, 1)
            await until(lambda: ledger.bodies[1] == bodies[1::2])
            assert not ledger.bodies[0]
            cluster.broker.expire_lock(_QUEUE)
            await until(lambda: ledger.bodies[0] == bodies[::2])


async def test_locks_are_renewed_also_while_the_listener_hangs(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        put(cluster, 2, queues=2)
        release = threading.Event()

        def listen(messages: list[MessageExt]) -> None:
            release.wait()

        async with consumer_of(cluster, listen, orderly=True):
            await until(lambda: len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)) > 5)
            last = LockBatchRequestBody.decode(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)[-1].body)
            assert {queue.queue_id for queue in last.mq_set} == {0, 1}
            release.set()


async def test_a_lost_lock_drops_held_messages_and_keeps_the_order(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        bodies = put(cluster, 6, queues=1)
        seen: list[bytes] = []
        release = asyncio.Event()

        async def listen(messages: list[MessageExt]) -> None:
            if messages[0].body == b"002" and not release.is_set():
                await release.wait()
            seen.append(messages[0].body)

        async with consumer_of(cluster, listen, orderly=True) as consumer:
            await until(lambda: len(seen) == 2)
            _take_lock(cluster.broker, _QUEUE, "another-client")
            await until_assigned(consumer, 0)
            cluster.broker.offsets.commit("g", "T", 0, 4)  # the other consumer has continued
            release.set()
            await until(lambda: len(seen) == 3)
            assert cluster.broker.committed() == 4, "the result of the call did not count"
            cluster.broker.expire_lock(_QUEUE)
            await until(lambda: len(seen) == 5)
        assert seen == [*bodies[:3], *bodies[4:]]


async def test_a_queue_lost_while_it_is_given_up_commits_nothing(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
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
            await until(lambda: broker.committed() == broker.committed(queue_id=1) == 1)
            owner = broker.locks.holder("g", _QUEUE)
            assert owner is not None
            async with consumer_of(cluster, ledger.listen, orderly=True, settings=settings):
                await until_assigned(first, 1)
                (left,) = {0, 1} - {queue.queue_id for queue in await first.assigned_queues()}
                (other,) = set(broker.members()) - {owner}
                # As if the broker's lock had expired, and another member had locked the queue first.
                _take_lock(broker, MessageQueue("T", "broker-a", left), other)
                await until(lambda: broker.committed(queue_id=left) == 3)
                await until(lambda: "another consumer has its lock" in caplog.text)
                unlocks = len(broker.requests(RequestCode.UNLOCK_BATCH_MQ))
                release.set()
                await until(lambda: len(broker.requests(RequestCode.UNLOCK_BATCH_MQ)) > unlocks)
                assert broker.committed(queue_id=left) == 3, "not back to where the first one was"
        assert len(ledger.bodies[left]) == 2


async def test_a_moving_queue_has_one_consumer_at_a_time(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
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


async def test_a_revoked_queue_stays_locked_until_the_listener_returns(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
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
            owner = cluster.broker.locks.holder("g", _QUEUE)
            async with consumer_of(cluster, other_ledger.listen, orderly=True, settings=second) as other:
                await until_assigned(first, 1)
                (left,) = {0, 1} - {queue.queue_id for queue in await first.assigned_queues()}
                await until(lambda: len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)) > 20)
                holders = {cluster.broker.locks.holder("g", MessageQueue("T", "broker-a", n)) for n in (0, 1)}
                assert holders == {owner}, "the listener still has it"
                assert other_ledger.count == 0
                release.set()
                await until_assigned(other, 1)
                await until(lambda: other_ledger.count == 1)
                # Results after the queue was given up counted, since no other member could have begun.
                assert len(ledger.bodies[left]) == 1
                assert cluster.broker.committed(queue_id=left)


async def test_a_reset_queue_stays_locked_until_the_old_call_returns(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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
            owner = broker.locks.holder("g", _QUEUE)
            assert owner is not None
            reset = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ResetOffsetRequestHeader(topic="T", group="g").encode(),
                ResetOffsetBody(offset_table={_QUEUE: 2}).encode(),
                oneway=True,
            )
            broker.connection_of(owner).send_oneway(reset)
            await until(lambda: broker.committed() == 2)
            async with consumer_of(cluster, ledger.listen, orderly=True, settings=names[1]):
                await until_assigned(old, 0)
                locks = len(broker.requests(RequestCode.LOCK_BATCH_MQ))
                await until(lambda: len(broker.requests(RequestCode.LOCK_BATCH_MQ)) > locks + 5)
                assert broker.locks.holder("g", _QUEUE) == owner
                assert ledger.count == 0
                release.set()
                await until(lambda: ledger.count == 3)
        assert ledger.bodies[0] == bodies[2:]


async def test_locks_are_renewed_while_a_stop_waits_for_the_listener(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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
            assert broker.locks.holder("g", _QUEUE)
            release.set()
            await stopping
        assert broker.locks.counts() == {}
        assert broker.recorded.codes()[-1] != RequestCode.LOCK_BATCH_MQ
        assert broker.committed() == 1


async def test_an_administrator_resets_the_offsets_of_an_ordered_group(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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
            (client_id,) = cluster.broker.members()
            request = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                header.encode(),
                ResetOffsetBody(offset_table={_QUEUE: 1}).encode(),
                oneway=True,
            )
            cluster.broker.connection_of(client_id).send_oneway(request)
            await until(lambda: cluster.broker.committed() == 1)
            release.set()
            await until(lambda: ledger.count == 9)
        assert ledger.bodies[0] == [*bodies, *bodies[1:]]
        assert ledger.overlaps == 0


async def test_an_administrator_gets_the_running_info_of_an_ordered_consumer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"x")
        (message,) = cluster.broker.stored()
        seen: list[bytes] = []

        def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
            context.auto_commit = False
            seen.append(messages[0].body)
            return ConsumeResult.ROLLBACK if len(seen) == 2 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True):
            await until(lambda: seen)
            (client_id,) = cluster.broker.members()
            asking = GetConsumerRunningInfoRequestHeader(
                consumer_group="g", client_id=client_id, jstack_enable=False
            )
            answer = await cluster.broker.ask_member(
                RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, asking.encode())
            )
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "true"
            queue = info.mq_table[_QUEUE]
            assert queue.locked
            assert queue.last_lock_timestamp > 0
            assert (queue.transaction_msg_count, queue.transaction_msg_max_offset) == (1, 0)
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g", client_id=client_id, msg_id="x"
            )
            answer = await cluster.broker.ask_member(
                RemotingCommand.request(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY, header.encode(), encode_stored_message(message)
                )
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
