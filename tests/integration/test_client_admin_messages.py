"""Administration of offsets, messages, dead letters and servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from rmq_client import (
    Admin,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    NoQueue,
    Producer,
    PushConsumer,
    TopicNotFound,
    Tracing,
    TrackStatus,
    UsageError,
    origin_topic,
)
from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.support.waiting import until, until_answer

_HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("admin")
    topics = {name: 1 for name in ("reset", "read", "letters", "traced", "RMQ_SYS_TRACE_TOPIC")}
    with cluster_in_a_thread(folder, {"broker-a": {**topics, "read": 2}}) as running:
        yield running


@pytest.fixture
async def admin(cluster: RunningCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.address) as started:
        yield started


async def _send(
    cluster: RunningCluster, topic: str, *bodies: bytes, queue_id: int = 0, tags: str | None = None
) -> None:
    queue = MessageQueue(topic, "broker-a", queue_id)
    async with Producer(cluster.address, group="PG") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, tags=tags), queue=queue)


async def test_resets_move_a_group_to_a_time_an_end_or_an_offset(
    cluster: RunningCluster, admin: Admin
) -> None:
    queue = MessageQueue("reset", "broker-a", 0)
    await _send(cluster, "reset", b"0", b"1", b"2")
    await admin.create_group("g1")
    await admin.commit_offset("g1", queue, 1)
    [change] = await admin.skip_backlog("g1", "reset", dry_run=True)
    assert (change.queue, change.before, change.after) == (queue, 1, 3)
    assert await admin.committed_offset("g1", queue) == 1
    [change] = await admin.skip_backlog("g1", "reset")
    assert (change.before, change.after) == (1, 3)
    assert (await admin.lag("g1", "reset")).total == 0
    for arguments, expected in (
        ({"to_earliest": True}, 0),
        ({"to_time": datetime.now(UTC) + _HOUR}, 3),
        ({"to_time": datetime.now(UTC) - _HOUR}, 0),
        ({"to_latest": True}, 3),
    ):
        for dry_run in (True, False):
            [change] = await admin.reset_offsets("g1", "reset", dry_run=dry_run, **arguments)
            assert change.after == expected, arguments
        assert (await admin.lag("g1", "reset")).total == 3 - expected
    assert (await admin.reset_queue_offset("g1", queue, 2)).after == 2
    assert await admin.committed_offset("g1", queue) == 2
    with pytest.raises(UsageError, match=r"offset 4 is outside of .*: use 0 to 3"):
        await admin.reset_queue_offset("g1", queue, 4)
    with pytest.raises(UsageError, match="one target"):
        await admin.reset_offsets("g1", "reset")
    with pytest.raises(UsageError, match="no time zone"):
        await admin.reset_offsets("g1", "reset", to_time=datetime.now())


async def test_clones_copy_the_offsets_of_a_group(admin: Admin) -> None:
    queue = MessageQueue("reset", "broker-a", 0)
    for group in ("source", "target"):
        await admin.create_group(group)
    with pytest.raises(NoQueue, match="source has committed no offset"):
        await admin.clone_offsets("source", "target", "reset")
    await admin.commit_offset("source", queue, 2)
    [change] = await admin.clone_offsets("source", "target", "reset")
    assert (change.queue, change.before, change.after) == (queue, None, 2)
    assert await admin.committed_offset("target", queue) == 2
    assert {lag.group for lag in await admin.lags()} >= {"source", "target"}
    assert "reset" in await admin.group_topics("target")


async def test_messages_are_read_without_a_group(cluster: RunningCluster, admin: Admin) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    await _send(cluster, "read", b"0", b"1", tags="a")
    await _send(cluster, "read", b"2", queue_id=1, tags="a")
    await _send(cluster, "read", b"3", queue_id=1, tags="b")
    bodies = [message.body for message in await admin.messages_between("read")]
    assert bodies == [b"0", b"1", b"2", b"3"]
    assert len(await admin.messages_between("read", max_messages=2)) == 2
    assert [m.body for m in await admin.messages_between("read", begin=before, expression="b")] == [b"3"]
    assert await admin.messages_between("read", begin=before + _HOUR) == []
    assert await admin.messages_between("read", end=before - _HOUR) == []
    queue = MessageQueue("read", "broker-a", 0)
    piece = await admin.read_queue(queue, 1)
    assert (len(piece.messages), piece.next_offset, piece.max_offset) == (1, 2, 2)
    assert piece.messages[0].queue_offset == 1
    past = await admin.read_queue(queue, 99)
    assert past.messages == () and past.next_offset == 2
    oldest = await admin.earliest_time(queue)
    assert oldest is not None and oldest >= before
    assert "TOOLS_CONSUMER" not in [lag.group for lag in await admin.lags()]


async def test_dead_letters_are_listed_and_sent_again(cluster: RunningCluster, admin: Admin) -> None:
    got: list[MessageExt] = []
    accept = False

    async def listen(messages: list[MessageExt]) -> ConsumeResult:
        got.extend(messages)
        return ConsumeResult.SUCCESS if accept else ConsumeResult.LATER

    async with PushConsumer(
        cluster.address,
        group="refusing",
        topics=["letters"],
        listener=listen,
        max_reconsume_times=0,
        consume_from="first",
    ):
        await _send(cluster, "letters", b"refused", tags="t")
        await until(lambda: cluster.broker.messages("%DLQ%refusing") != [])
        # The broker registers the new topic after the message is stored.
        [letter] = await until_answer(lambda: admin.dead_letters("refusing"))
        assert (letter.body, letter.tags, origin_topic(letter)) == (b"refused", "t", "letters")
        assert await admin.dead_letter_counts() == {"refusing": 1}
        accept = True
        await admin.resend_dead_letter(letter)
        await until(lambda: len(got) == 2)
    again = got[-1]
    assert (again.topic, again.body, again.tags, again.msg_id) == ("letters", b"refused", "t", letter.msg_id)
    await admin.resend_dead_letter(letter, to_topic="read")
    assert b"refused" in [message.body for message in await admin.messages_between("read")]
    with pytest.raises(UsageError, match="is no dead letter"):
        await admin.resend_dead_letter(again)


async def test_traces_and_tracks_of_a_message(cluster: RunningCluster, admin: Admin) -> None:
    got: list[MessageExt] = []

    async def listen(messages: list[MessageExt]) -> None:
        got.extend(messages)

    tracing = Tracing(linger_seconds=0.01)
    async with (
        Producer(cluster.address, group="tracing", trace=tracing) as producer,
        PushConsumer(
            cluster.address, group="traced-g", topics=["traced"], listener=listen, trace=tracing
        ) as consumer,
    ):
        sent = await producer.send(Message("traced", b"1", keys=["k"]))
        await until(lambda: len(got) == 1)
        await consumer.commit()
        message = got[0]
        [track] = await admin.track_message(message)
        assert (track.group, track.status) == ("traced-g", TrackStatus.CONSUMED)
    with pytest.raises(TopicNotFound, match="no trace topic other: start producers and consumers"):
        await admin.message_trace(sent.msg_id, trace_topic="other")
    events = await admin.message_trace(sent.msg_id)
    assert [event.kind for event in events] == ["Pub", "SubBefore", "SubAfter"]
    pub, begin, end = events
    assert (pub.group, pub.topic, pub.succeeded) == ("tracing", "traced", True)
    assert begin.call_id == end.call_id and (end.outcome, end.succeeded) == ("success", True)


async def test_settings_and_state_of_a_broker(admin: Admin) -> None:
    assert (await admin.broker_settings("broker-a"))["brokerName"] == "broker-a"
    await admin.update_broker_settings("broker-a", {"longPollingMaxHoldMillis": "21000"})
    assert (await admin.broker_settings("broker-a"))["longPollingMaxHoldMillis"] == "21000"
    assert (await admin.broker_status("broker-a"))["brokerVersionDesc"] == "V5_3_3"
    figures = await admin.broker_figures("broker-a", "TOPIC_PUT_NUMS", "read")
    assert figures.day is not None and figures.day.sum > 0
    replication = await admin.replication_status("broker-a")
    assert replication.is_master and replication.log_end > 0 and replication.replicas == ()
    for what in ("expired queues", "unused topics", "expired log"):
        assert await admin.clean_brokers(what) == ["broker-a"]
    for wrong in (
        admin.broker_settings("broker-z"),
        admin.broker_status("broker-a", 1),
        admin.update_broker_settings("broker-a", {}),
        admin.update_broker_settings("broker-a", {"two words": "1"}),
        admin.clean_brokers("everything"),
        admin.wipe_write_permission("broker-z"),
    ):
        with pytest.raises(UsageError):
            await wrong


async def test_settings_and_entries_of_name_servers(cluster: RunningCluster, admin: Admin) -> None:
    [settings] = (await admin.name_server_settings()).values()
    assert "listenPort" in settings
    await admin.update_name_server_settings({"orderMessageEnable": "true"})
    [settings] = (await admin.name_server_settings()).values()
    assert settings["orderMessageEnable"] == "true"
    assert await admin.key_values("shop") == {}
    await admin.put_key_value("shop", "colour", "blue")
    assert await admin.key_values("shop") == {"colour": "blue"}
    await admin.delete_key_value("shop", "colour")
    assert await admin.key_values("shop") == {}
    assert await admin.wipe_write_permission("broker-a") > 0
    assert await admin.add_write_permission("broker-a") > 0
