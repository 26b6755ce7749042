"""Administration of topics and groups, with two brokers of ours that all tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rmq_client import (
    Admin,
    AlreadyExists,
    ConsumeResult,
    GroupNotFound,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TopicNotFound,
    UsageError,
)
from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.support.waiting import until

_BROKERS = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("admin")
    with cluster_in_a_thread(folder, {name: {"T": 2} for name in _BROKERS}) as running:
        yield running


@pytest.fixture
async def admin(cluster: RunningCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.address) as started:
        yield started


async def test_creating_a_topic_leaves_an_existing_one_as_it_is(admin: Admin) -> None:
    await admin.create_topic("created", queues=3)
    with pytest.raises(AlreadyExists, match=r"created exists on broker-a, broker-b.*update_topic"):
        await admin.create_topic("created", queues=5)
    await admin.create_topic("created", queues=5, exists_ok=True)
    settings = await admin.topic_settings("created")
    assert {each.write_queues for each in settings.values()} == {3} and set(settings) == set(_BROKERS)


async def test_a_topic_is_created_on_the_brokers_that_lack_it(admin: Admin) -> None:
    await admin.create_topic("partly", queues=1, broker_name="broker-a")
    await admin.create_topic("partly", queues=2, exists_ok=True)
    settings = await admin.topic_settings("partly")
    assert {name: each.write_queues for name, each in settings.items()} == {"broker-a": 1, "broker-b": 2}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"queues": 0}, "queues=0"),
        ({"queues": True}, "queues=True"),
        ({"permission": 3}, "permission=3"),
        ({"broker_name": "broker-z"}, "broker-z has no master; .*broker-a, broker-b"),
    ],
)
async def test_wrong_settings_of_a_topic_are_refused_at_once(
    admin: Admin, arguments: dict[str, int], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        await admin.create_topic("wrong", **arguments)  # type: ignore[arg-type]
    assert "wrong" not in await admin.topics()


async def test_an_update_changes_only_what_is_given(admin: Admin) -> None:
    await admin.create_topic("changed", queues=2, attributes={"+message.type": "FIFO"})
    await admin.update_topic("changed", write_queues=4)
    await admin.update_topic("changed", permission=4, broker_name="broker-b")
    settings = await admin.topic_settings("changed")
    first, second = settings["broker-a"], settings["broker-b"]
    assert (first.read_queues, first.write_queues, first.permission) == (2, 4, 6)
    assert (second.read_queues, second.write_queues, second.permission) == (2, 4, 4)
    assert first.attributes == {"message.type": "FIFO"}
    with pytest.raises(TopicNotFound, match="nowhere"):
        await admin.update_topic("nowhere", permission=4)


async def test_deleting_an_unknown_topic_is_an_error(admin: Admin) -> None:
    await admin.create_topic("deleted", queues=1)
    await admin.delete_topic("deleted")
    assert "deleted" not in await admin.topics()
    with pytest.raises(TopicNotFound, match="deleted is on no broker"):
        await admin.delete_topic("deleted")
    await admin.delete_topic("deleted", missing_ok=True)


async def test_a_group_is_created_changed_and_deleted(admin: Admin) -> None:
    await admin.create_group("till", max_retries=3)
    with pytest.raises(AlreadyExists, match="till exists on broker-a, broker-b"):
        await admin.create_group("till")
    await admin.create_group("till", exists_ok=True)
    await admin.update_group("till", consume_enabled=False, broker_name="broker-a")
    settings = await admin.group_settings("till")
    assert {each.max_retries for each in settings.values()} == {3}
    assert {name: each.consume_enabled for name, each in settings.items()} == {
        "broker-a": False,
        "broker-b": True,
    }
    assert "till" in await admin.groups()
    assert "TOOLS_CONSUMER" not in await admin.groups()
    assert "TOOLS_CONSUMER" in await admin.groups(system=True)
    await admin.delete_group("till")
    assert "till" not in await admin.groups()


async def test_questions_about_an_unknown_group_name_it_and_do_not_create_it(admin: Admin) -> None:
    for question in (
        admin.group_settings("nobody"),
        admin.lag("nobody"),
        admin.lag("nobody"),
        admin.dead_letters("nobody"),
        admin.update_group("nobody", max_retries=1),
        admin.delete_group("nobody"),
        admin.reset_offsets("nobody", "T", to_latest=True),
    ):
        with pytest.raises(GroupNotFound, match="group nobody is on none of broker-a, broker-b"):
            await question
    assert "nobody" not in await admin.groups()


async def test_a_running_consumer_is_shown_and_asked(cluster: RunningCluster, admin: Admin) -> None:
    assert await admin.consumer_ids("shown", "T") == []
    assert (await admin.group_connections("shown")).clients == ()
    got: list[MessageExt] = []

    async def listen(messages: list[MessageExt]) -> ConsumeResult:
        got.extend(messages)
        return ConsumeResult.SUCCESS

    async with (
        PushConsumer(cluster.address, group="shown", topics={"T": "a || b"}, listener=listen),
        Producer(cluster.address, group="senders") as producer,
    ):
        await producer.send(Message("T", b"1", tags="a"))
        await until(lambda: len(got) == 1)
        [client_id] = await admin.consumer_ids("shown", "T")
        connections = await admin.group_connections("shown")
        assert [(each.client_id, each.brokers) for each in connections.clients] == [(client_id, _BROKERS)]
        assert connections.subscriptions["T"] == "a || b"
        state = await admin.consumer_state("shown", client_id)
        assert len([queue for queue in state.queues if queue.topic == "T"]) == 4
        assert [each.client_id for each in (await admin.producer_connections("senders"))["senders"]]
        assert "shown" in await admin.topic_groups("T")
        delivery = await admin.deliver_message("shown", client_id, got[0])
        assert delivery.succeeded and len(got) == 2
        [track] = await admin.track_message(got[0])
        assert track.group == "shown"
    assert await admin.consumer_ids("shown", "T") == []
