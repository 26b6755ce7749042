"""Administration by the SDK and by `rmq`, on Apache's servers and on ours."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    AlreadyExists,
    ClientSettings,
    ConsumeResult,
    GroupNotFound,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    TopicNotFound,
    Tracing,
    TrackStatus,
    UsageError,
    origin_topic,
)
from tests.interop.clusters import Cluster
from tests.support.command_line import CommandLine
from tests.support.waiting import until

_WAIT_SECONDS = 20.0


@pytest.mark.long
async def test_topics_and_groups(cluster: Cluster, name: str) -> None:
    async with Admin(cluster[0].address) as admin:
        await admin.create_topic(name, queues=3, attributes={"+message.type": "NORMAL"})
        with pytest.raises(AlreadyExists):
            await admin.create_topic(name, queues=5)
        await admin.create_topic(name, queues=5, exists_ok=True)
        await admin.update_topic(name, write_queues=4)
        [settings] = (await admin.topic_settings(name)).values()
        assert (settings.read_queues, settings.write_queues, settings.permission) == (3, 4, 6)
        assert settings.attributes == {"message.type": "NORMAL"}
        await admin.create_group(name, max_retries=3)
        with pytest.raises(AlreadyExists):
            await admin.create_group(name)
        await admin.update_group(name, consume_enabled=False)
        [group] = (await admin.group_settings(name)).values()
        assert (group.max_retries, group.consume_enabled) == (3, False)
        assert name in await admin.groups() and "TOOLS_CONSUMER" not in await admin.groups()
        assert await admin.consumer_ids(name, name) == []
        assert (await admin.group_connections(name)).clients == ()
        await admin.set_consume_mode(name, name, pop=True)
        await admin.delete_group(name)
        with pytest.raises(GroupNotFound):
            await admin.lag(name)
        assert name not in await admin.groups(), "asking did not create it"
        await admin.delete_topic(name)
        assert name not in await admin.topics()


@pytest.mark.long
async def test_offsets_of_groups(cluster: Cluster, name: str, topic: str) -> None:
    async with Admin(cluster[0].address) as admin, Producer(cluster[0].address, group="p") as producer:
        [broker] = {queue.broker_name for queue in (await admin.topic_route(topic)).read_queues}
        queue = MessageQueue(topic, broker, 1)
        for _ in range(3):
            await producer.send(Message(topic, b"x"), queue=queue)
        for group in (name, f"{name}-2"):
            await admin.create_group(group)
        changes = {each.queue: each for each in await admin.reset_offsets(name, topic, to_earliest=True)}
        assert (changes[queue].before, changes[queue].after) == (None, 0) and len(changes) == 4
        assert (await admin.lag(name, topic)).total == 3
        for dry_run in (True, False):
            changes = {each.queue: each for each in await admin.skip_backlog(name, topic, dry_run=dry_run)}
            assert (changes[queue].before, changes[queue].after) == (0, 3)
        assert (await admin.reset_queue_offset(name, queue, 1)).before == 3
        assert await admin.committed_offset(name, queue) == 1
        with pytest.raises(UsageError, match="use 0 to 3"):
            await admin.reset_queue_offset(name, queue, 4)
        assert {each.after for each in await admin.clone_offsets(name, f"{name}-2", topic)} == {0, 1}
        assert await admin.committed_offset(f"{name}-2", queue) == 1
        hour = timedelta(hours=1)
        for time, offset in ((datetime.now(UTC) - hour, 0), (datetime.now(UTC) + hour, 3)):
            for dry_run in (True, False):
                found = await admin.reset_offsets(name, topic, to_time=time, dry_run=dry_run)
                assert {each.queue: each.after for each in found}[queue] == offset
        assert {lag.group for lag in await admin.lags()} >= {name, f"{name}-2"}
        assert topic in await admin.group_topics(name) and name in await admin.topic_groups(topic)
        oldest = await admin.earliest_time(queue)
        assert oldest is not None and datetime.now(UTC) - hour < oldest


async def test_messages_of_a_running_consumer(cluster: Cluster, name: str, topic: str) -> None:
    """Dead letters, tracks, traces, direct deliveries, and the state of the consumer."""
    got: list[MessageExt] = []
    accepted = asyncio.Event()

    async def listen(messages: list[MessageExt]) -> ConsumeResult:
        got.extend(messages)
        is_wanted = messages[0].tags == "good" or accepted.is_set()
        return ConsumeResult.SUCCESS if is_wanted else ConsumeResult.LATER

    address, tracing = cluster[0].address, Tracing(linger_seconds=0.05)
    async with (
        Admin(address) as admin,
        Producer(address, group=f"p-{name}", trace=tracing) as producer,
        PushConsumer(
            address,
            group=name,
            topics=[topic],
            listener=listen,
            consume_from="first",
            max_reconsume_times=0,
            trace=tracing,
        ) as consumer,
    ):
        good = await producer.send(Message(topic, b"good", tags="good", keys=["k"]))
        await producer.send(Message(topic, b"bad", tags="bad"))
        await until(lambda: len(got) >= 2, _WAIT_SECONDS)
        [client_id] = await admin.consumer_ids(name, topic)
        [connection] = (await admin.group_connections(name)).clients
        assert (connection.client_id, connection.language) == (client_id, "PYTHON")
        assert f"p-{name}" in await admin.producer_connections()
        state = await admin.consumer_state(name, client_id)
        assert topic in state.subscriptions
        await consumer.commit()
        [message] = (await admin.query_messages(topic, "k")).messages
        assert (await admin.deliver_message(name, client_id, message)).succeeded
        [track] = [each for each in await admin.track_message(message) if each.group == name]
        assert track.status is TrackStatus.CONSUMED
        letters: list[MessageExt] = []
        async with asyncio.timeout(_WAIT_SECONDS):
            while not letters:
                letters = await admin.dead_letters(name)
        assert (letters[0].body, origin_topic(letters[0])) == (b"bad", topic)
        assert (await admin.dead_letter_counts())[name] == 1
        accepted.set()
        before = len(got)
        await admin.resend_dead_letter(letters[0])
        await until(lambda: len(got) > before, _WAIT_SECONDS)
        assert (got[-1].topic, got[-1].body, got[-1].msg_id) == (topic, b"bad", letters[0].msg_id)
        bodies = [each.body for each in await admin.messages_between(topic)]
        assert bodies == [b"good", b"bad"]
        events: list[str] = []
        async with asyncio.timeout(_WAIT_SECONDS):
            while len(events) < 3:
                with suppress(TopicNotFound):  # brokers create it for the first trace
                    events = [each.kind for each in await admin.message_trace(good.msg_id)]
        assert events[:3] == ["Pub", "SubBefore", "SubAfter"]


@pytest.mark.long
async def test_servers(cluster: Cluster, name: str, topic: str) -> None:
    async with Admin(cluster[0].address) as admin, Producer(cluster[0].address, group="p") as producer:
        [broker] = (await admin.cluster_info()).brokers
        assert (await admin.broker_settings(broker))["brokerName"] == broker
        await admin.update_broker_settings(broker, {"maxMsgsNumBatch": "65"})
        assert (await admin.broker_settings(broker))["maxMsgsNumBatch"] == "65"
        await admin.update_broker_settings(broker, {"maxMsgsNumBatch": "64"})
        assert (await admin.broker_status(broker))["brokerVersionDesc"] == "V5_3_3"
        await producer.send(Message(topic, b"x"))
        figures = await admin.broker_figures(broker, "TOPIC_PUT_NUMS", topic)
        assert figures.minute is not None
        status = await admin.replication_status(broker)
        assert status.is_master and status.replicas == () and status.log_end > 0
        assert await admin.clean_brokers("expired queues") == [broker]
        [namesrv] = (await admin.name_server_settings()).values()
        assert "listenPort" in namesrv
        await admin.put_key_value(name, "colour", "blue")
        assert await admin.key_values(name) == {"colour": "blue"}
        await admin.delete_key_value(name, "colour")
        assert await admin.wipe_write_permission(broker) > 0
        assert await admin.add_write_permission(broker) > 0


async def test_state_of_brokers(cluster: Cluster, name: str, topic: str) -> None:
    patient = ClientSettings(request_timeout_seconds=_WAIT_SECONDS)  # a JVM that has just started is slow
    async with (
        Admin(cluster[0].address, settings=patient) as admin,
        Producer(cluster[0].address, group="p", settings=patient) as producer,
    ):
        [broker] = (await admin.cluster_info()).brokers
        queue = (await producer.send(Message(topic, b"x", tags="a"))).queue
        runtime = await admin.broker_runtime(broker)
        assert (runtime.version, runtime.started is not None) == ("V5_3_3", True)
        assert runtime.stored_messages > 0 and runtime.log_end > 0
        assert runtime.requests["send"].capacity > 0

        async with asyncio.timeout(_WAIT_SECONDS):
            # Apache's broker writes the entry after its answer.
            while await admin.max_offset(queue) == 0:
                pass
        [entry] = (await admin.queue_entries(queue, 0)).entries
        assert (entry.offset, entry.tags_code) == (0, 97)

        await admin.set_cold_read_threshold(name, 4096)
        found = await admin.cold_reads(broker)
        assert found.thresholds[name] == 4096 and found.group_threshold == 3_145_728
        await admin.remove_cold_read_threshold(name)
        assert name not in (await admin.cold_reads(broker)).thresholds
        assert await admin.set_read_ahead(False) == [broker]
        assert await admin.set_read_ahead(True) == [broker]


async def test_a_static_topic(cluster: Cluster, name: str) -> None:
    async with Admin(cluster[0].address) as admin:
        [broker] = (await admin.cluster_info()).brokers
        made = await admin.create_static_topic(name, 2, [broker])
        assert [queue.leader for queue in made.queues] == [broker, broker]
        grown = await admin.create_static_topic(name, 3, [broker])
        assert len(grown.queues) == 3 and grown.epoch > made.epoch
        assert grown.queues[:2] == made.queues
        assert await admin.move_static_topic(name, [broker]) == []
        await admin.delete_topic(name)


def test_the_command_line(cluster: Cluster, name: str, topic: str, tmp_path: Path) -> None:
    rmq = CommandLine(cluster[0].address, tmp_path / "config.toml")
    rmq.ok(f"produce {topic} one --tag a --key k")
    rmq.ok(f"produce {topic} two --tag b")
    assert [each["body"] for each in rmq.ok(f"consume {topic} -o json").json_lines] == ["one", "two"]
    assert rmq.ok(f"consume {topic} --tag b --format body").text == "two\n"
    consumed = rmq.ok(f"consume {topic} --group {name} --from earliest --count 2 --format body").text
    assert sorted(consumed.split()) == ["one", "two"]
    assert rmq.ok(f"lag {name} --topic {topic} -o json").json[0]["lag"] == 0
    rmq.ok(f"offset reset {name} {topic} --to earliest --yes")
    rmq.refused(f"lag {name} --fail-above 1", 6)
    rmq.ok(f"topic stats {topic}")
    rmq.ok("cluster status")
    rmq.ok(f"topic delete {topic} --yes")
    rmq.refused(f"topic show {topic}", 3)
