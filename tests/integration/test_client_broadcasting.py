"""Broadcasting: every member gets every message, and keeps its own offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_client import ClientSettings, ConsumeResult, MessageExt, MessageQueue
from rmq_remoting.bodies.heartbeat import HeartbeatData, MessageModel
from rmq_remoting.bodies.offsets import OffsetSerializeWrapper
from rmq_remoting.codes import RequestCode
from tests.support.clusters import running_cluster
from tests.support.push_consumers import Inbox, consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


def _offsets_file(folder: Path) -> Path:
    (file,) = folder.rglob("offsets.json")
    return file


async def test_every_consumer_gets_every_message(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        bodies = put(cluster, 20)
        one, two = Inbox(), Inbox()
        second = ClientSettings(instance_name="second")
        options = {"broadcasting": True, "offsets_folder": tmp_path}
        async with (
            consumer_of(cluster, one, **options) as first_consumer,
            consumer_of(cluster, two, settings=second, **options) as second_consumer,
        ):
            await until_assigned(first_consumer, 4)
            await until_assigned(second_consumer, 4)
            await until(lambda: one.bodies == two.bodies == bodies)
        (data,) = HeartbeatData.decode(
            cluster.broker.requests(RequestCode.HEART_BEAT)[0].body
        ).consumer_data_set
        assert data.message_model is MessageModel.BROADCASTING
        assert [subscription.topic for subscription in data.subscription_data_set] == ["T"]
        assert cluster.broker.offsets.offsets_of("g", "T") == {}, "brokers keep no offsets of it"
        assert not cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)


async def test_a_broadcasting_consumer_resumes_at_its_offsets(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        inbox = Inbox()
        options = {"broadcasting": True, "offsets_folder": tmp_path}
        async with consumer_of(cluster, inbox, **options):
            await until(lambda: len(inbox.messages) == 3)
        file = _offsets_file(tmp_path)
        assert file.parent.name == "g"
        assert file.parent.parent.name.endswith("@DEFAULT")
        stored = OffsetSerializeWrapper.decode(file.read_bytes()).offset_table
        assert stored == {MessageQueue("T", "broker-a", 0): 3}
        cluster.broker.put("T", b"meanwhile")
        async with consumer_of(cluster, inbox, **options):
            await until(lambda: len(inbox.messages) == 4)
        assert inbox.messages[-1].body == b"meanwhile"


async def test_refused_broadcast_messages_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            seen.append(messages[0].body)
            return ConsumeResult.LATER if len(seen) == 2 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, broadcasting=True, offsets_folder=tmp_path) as consumer:
            await until(lambda: len(seen) == 3)
            await consumer.commit()
        assert len(seen) == 3
        assert cluster.broker.sent_back == []
        assert caplog.text.count("message skipped, broadcast") == 1


async def test_in_order_without_locks(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        bodies = put(cluster, 5, queues=1)
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            seen.append(messages[0].body)
            return ConsumeResult.LATER if len(seen) == 2 else ConsumeResult.SUCCESS

        async with consumer_of(
            cluster,
            listen,
            broadcasting=True,
            orderly=True,
            offsets_folder=tmp_path,
            suspend_seconds=0.01,
            max_reconsume_times=0,
        ):
            await until(lambda: len(seen) == 6)
        assert seen == [*bodies[:2], *bodies[1:]]
        assert not cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)


async def test_unreadable_offsets_stop_the_consumption(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        inbox = Inbox()
        options = {"broadcasting": True, "offsets_folder": tmp_path}
        async with consumer_of(cluster, inbox, **options):
            await until(lambda: len(inbox.messages) == 3)
        file = _offsets_file(tmp_path)
        file.write_bytes(b"{")
        async with consumer_of(cluster, inbox, **options):
            await until(lambda: "repair the file, or remove it" in caplog.text)
            assert len(inbox.messages) == 3
            file.unlink()
            await until(lambda: len(inbox.messages) == 6)
