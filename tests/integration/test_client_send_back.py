"""Messages that a listener refuses: redelivered by the broker, and dead letters at last."""

from __future__ import annotations

from pathlib import Path

from rmq_client import (
    ConsumeContext,
    ConsumeResult,
    MessageExt,
)
from tests.support.clusters import running_cluster
from tests.support.push_consumers import consumer_of, put
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_DEAD = "%DLQ%g"


async def test_refused_messages_are_redelivered(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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
        assert cluster.broker.committed() == 3, "messages sent back count as consumed"
        assert cluster.broker.committed(topic="%RETRY%g") == 2
        assert set(topics) == {"T"}, "not the retry topic"
        first = cluster.broker.sent_back[0]
        assert (first.group, first.origin_topic, first.delay_level) == ("g", "T", 0)
        assert first.max_reconsume_times is None


async def test_ack_index_and_delay_level_of_the_context(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 8, queues=1)
        done: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            assert context.queue.queue_id == 0
            if messages[0].reconsume_times == 0 and len(messages) == 4:
                context.ack_index = 1
                context.delay_level = 5
                messages = messages[:2]
            done.extend(message.body for message in messages)

        async with consumer_of(cluster, listen, max_messages=4):
            await until(lambda: len(done) == 8)
        assert [header.delay_level for header in cluster.broker.sent_back] == [5] * 4
        assert sorted(done) == [b"%03d" % number for number in range(8)]
        assert cluster.broker.committed() == 8


async def test_a_negative_delay_level_makes_a_dead_letter(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 2, queues=1)

        def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            context.delay_level = -1
            return ConsumeResult.LATER

        async with consumer_of(cluster, listen):
            await until(lambda: len(cluster.broker.stored(_DEAD)) == 2)
        assert cluster.broker.committed() == 2


async def test_too_many_attempts_make_a_dead_letter(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"x")
        calls: list[int] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            calls.append(messages[0].reconsume_times)
            return ConsumeResult.LATER

        async with consumer_of(cluster, listen, max_reconsume_times=2):
            await until(lambda: cluster.broker.stored(_DEAD))
        assert calls == [0, 1, 2]
