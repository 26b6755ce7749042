"""The push consumer against brokers in memory: refused messages."""

from __future__ import annotations

from rmq_client import (
    ConsumeContext,
    ConsumeResult,
    MessageExt,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.waiting import until
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.push_consumers import consumer_of, put
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


async def test_refused_messages_are_redelivered() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        calls: list[tuple[bytes, int]] = []
        topics: list[str] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            topics.append(message.topic)
            if message.body == b"001" and message.reconsume_times == 0:
                return ConsumeResult.LATER
            if message.body == b"001" and message.reconsume_times == 1:
                raise RuntimeError("not yet")
            return ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen) as consumer:
            await until(lambda: len(calls) == 5)
            await consumer.commit()
        assert [call for call in calls if call[0] == b"001"] == [(b"001", 0), (b"001", 1), (b"001", 2)]
        assert cluster.broker.offsets["g", "T", 0] == 3, "messages sent back count as consumed"
        assert cluster.broker.offsets["g", "%RETRY%g", 0] == 2
        assert set(topics) == {"T"}, "not the retry topic"
        first = cluster.broker.sent_back[0]
        assert (first.group, first.origin_topic, first.delay_level) == ("g", "T", 0)
        assert first.max_reconsume_times is None


async def test_messages_that_cannot_be_sent_back_are_sent_to_the_retry_topic() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x", tags="a")
        cluster.broker.auto_create = True
        cluster.broker.topics["TBW102"] = 4
        cluster.broker.order(RequestCode.CONSUMER_SEND_MSG_BACK, Fault(code=ResponseCode.SYSTEM_ERROR))
        got: list[MessageExt] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            got.extend(messages)
            return ConsumeResult.LATER if len(got) == 1 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, max_reconsume_times=7):
            await until(lambda: len(got) == 2)
        (sent,) = cluster.broker.sends
        assert (sent.target.topic, sent.target.reconsume_times) == ("%RETRY%g", 1)
        assert sent.target.max_reconsume_times == 7
        assert (got[1].topic, got[1].tags, got[1].reconsume_times) == ("T", "a", 1)
        assert got[1].properties["ORIGIN_MESSAGE_ID"] == got[0].msg_id
        assert got[1].properties["DELAY"] == "3"


async def test_messages_that_no_broker_accepts_are_retried_here() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        refusals = [Fault(code=ResponseCode.SYSTEM_ERROR)] * 2
        cluster.broker.order(RequestCode.CONSUMER_SEND_MSG_BACK, *refusals)
        calls: list[tuple[bytes, int]] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            later = message.body == b"001" and message.reconsume_times < 2
            return ConsumeResult.LATER if later else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen) as consumer:
            await until(lambda: len(calls) == 4)
            await consumer.commit()
            assert cluster.broker.offsets["g", "T", 0] == 1
            await until(lambda: len(calls) == 5)
        assert [call for call in calls if call[0] == b"001"] == [(b"001", 0), (b"001", 1), (b"001", 2)]
        assert cluster.broker.offsets["g", "T", 0] == 3


async def test_ack_index_and_delay_level_of_the_context() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 8, queues=1)
        done: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            assert context.queue.queue_id == 0
            if messages[0].reconsume_times == 0 and len(messages) == 4:
                context.ack_index = 1
                context.delay_level = 5
                messages = messages[:2]
            done.extend(message.body for message in messages)

        async with consumer_of(cluster, listen, consume_message_batch_max_size=4):
            await until(lambda: len(done) == 8)
        assert [header.delay_level for header in cluster.broker.sent_back] == [5] * 4
        assert sorted(done) == [b"%03d" % number for number in range(8)]
        assert cluster.broker.offsets["g", "T", 0] == 8


async def test_a_negative_delay_level_makes_a_dead_letter() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 2, queues=1)

        def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            context.delay_level = -1
            return ConsumeResult.LATER

        async with consumer_of(cluster, listen):
            await until(lambda: len(cluster.broker.dead_letters) == 2)
        assert cluster.broker.offsets["g", "T", 0] == 2


async def test_too_many_attempts_make_a_dead_letter() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        calls: list[int] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            calls.append(messages[0].reconsume_times)
            return ConsumeResult.LATER

        async with consumer_of(cluster, listen, max_reconsume_times=2):
            await until(lambda: cluster.broker.dead_letters)
        assert calls == [0, 1, 2]
