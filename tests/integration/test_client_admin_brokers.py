"""Administration of brokers: static topics, cold reads, entries of queues, epochs, in-sync sets, copies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_client import (
    AccessRule,
    Admin,
    BrokerError,
    ClientError,
    ClientSettings,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    TopicNotFound,
    UsageError,
    blocking,
)
from tests.support.answering_controller import answering_controller
from tests.support.clusters import running_cluster
from tests.support.signed_requests import AUTHENTICATION, ROOT

_LOGICAL = "__syslo__global__"


# --- static topics ---


async def test_a_static_topic_is_created_grown_and_moved(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {}, "broker-b": {}}) as cluster,
        Admin(cluster.address) as admin,
    ):
        made = await admin.create_static_topic("S", 2, ["broker-a"])
        assert [queue.leader for queue in made.queues] == ["broker-a", "broker-a"]
        async with Producer(cluster.address, group="p") as producer:
            sent = [await producer.send(Message("S", b"%d" % number)) for number in range(6)]
        assert {result.queue.broker_name for result in sent} <= {"broker-a", _LOGICAL}

        grown = await admin.create_static_topic("S", 3, ["broker-a", "broker-b"])
        assert [queue.leader for queue in grown.queues] == ["broker-a", "broker-a", "broker-b"]
        assert grown.epoch > made.epoch

        planned = await admin.move_static_topic("S", ["broker-b"], dry_run=True)
        assert [(move.queue_id, move.begin) for move in planned] == [(0, None), (1, None)]
        assert await admin.static_topic("S") == grown
        moves = await admin.move_static_topic("S", ["broker-b"])
        assert [(move.queue_id, move.source, move.target) for move in moves] == [
            (0, "broker-a", "broker-b"),
            (1, "broker-a", "broker-b"),
        ]
        assert all(move.begin == 10_000 for move in moves)
        moved = await admin.static_topic("S")
        assert [queue.leader for queue in moved.queues] == ["broker-b"] * 3
        assert [part.begin for part in moved.queues[0].parts] == [0, 10_000]
        assert await admin.move_static_topic("S", ["broker-b"]) == []

        for wrong, told in (
            (admin.create_static_topic("S", 3, ["broker-b"]), "has 3 queues already"),
            (admin.create_static_topic("S", 4, ["broker-a"]), "has no broker-b"),
            (admin.move_static_topic("S", ["broker-z"]), "broker-z has no master"),
        ):
            with pytest.raises(UsageError, match=told):
                await wrong
        with pytest.raises(TopicNotFound):
            await admin.static_topic("Unknown")


async def test_an_interrupted_move_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {}, "broker-b": {}}) as cluster,
        Admin(cluster.address) as admin,
    ):
        await admin.create_static_topic("S", 2, ["broker-a"])
        assert await admin.repair_static_topic("S") == []

        async def fails(*arguments: object) -> None:
            raise ClientError("the tool was killed")

        with monkeypatch.context() as broken:
            broken.setattr(Admin, "_locate", fails)
            with pytest.raises(ClientError, match="was killed"):
                await admin.move_static_topic("S", ["broker-b"])
        assert (await admin.static_topic("S")).queues[0].parts[-1].begin is None
        planned = await admin.repair_static_topic("S", dry_run=True)
        assert [(move.queue_id, move.begin) for move in planned] == [(0, None), (1, None)]
        assert [move.begin for move in await admin.repair_static_topic("S")] == [10_000, 10_000]
        repaired = await admin.static_topic("S")
        assert [queue.leader for queue in repaired.queues] == ["broker-b", "broker-b"]
        assert [part.begin for part in repaired.queues[0].parts] == [0, 10_000]
        assert await admin.repair_static_topic("S") == []


async def test_an_ordinary_topic_is_not_static(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.address) as admin:
        with pytest.raises(UsageError, match="topic T is not static"):
            await admin.static_topic("T")
        with pytest.raises(UsageError, match="topic T is not static"):
            await admin.create_static_topic("T", 2, ["broker-a"])


# --- brokers ---


async def test_cold_reads_are_counted_and_limited(tmp_path: Path) -> None:
    async with (
        running_cluster(
            tmp_path, coldDataFlowControlEnable="true", accessMessageInMemoryHotRatio=0
        ) as cluster,
        Admin(cluster.address) as admin,
    ):
        async with Producer(cluster.address, group="p") as producer:
            queue = (await producer.send(Message("T", b"x" * 1000))).queue
        async with PullConsumer(cluster.address, group="g") as consumer:
            await consumer.pull(queue, 0)
        await admin.set_cold_read_threshold("g", 4096)
        found = await admin.cold_reads("broker-a")
        assert found.thresholds == {"g": 4096} and found.adapted == {}
        [group] = found.groups
        assert (group.group, group.period_bytes) == ("g", found.period_bytes)
        assert group.period_bytes > 1000 and group.last_read is not None
        assert found.group_threshold == 3_145_728
        await admin.remove_cold_read_threshold("g", broker_name="broker-a")
        assert (await admin.cold_reads("broker-a")).thresholds == {}

        assert await admin.set_read_ahead(False) == ["broker-a"]
        assert (await admin.broker_settings("broker-a"))["dataReadAheadEnable"] == "false"
        await admin.set_read_ahead(True, broker_name="broker-a")
        assert (await admin.broker_settings("broker-a"))["dataReadAheadEnable"] == "true"


async def test_runtime_figures_and_entries_of_a_queue(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.address) as admin:
        queue = MessageQueue("T", "broker-a", 0)
        async with Producer(cluster.address, group="p") as producer:
            for tag in ("a", "b", ""):
                await producer.send(Message("T", b"x", tags=tag or None))
        runtime = await admin.broker_runtime("broker-a")
        assert (runtime.version, runtime.stored_messages) == ("V5_3_3", 3)
        assert runtime.started is not None and runtime.log_end > runtime.log_start == 0
        assert set(runtime.requests) == {"send", "pull", "lite_pull", "query", "ack"}

        found = await admin.queue_entries(queue, 1, max_entries=5)
        assert (found.min_offset, found.max_offset) == (0, 3)
        assert [entry.offset for entry in found.entries] == [1, 2]
        first, second = found.entries
        assert first.physical_offset + first.size_bytes == second.physical_offset
        assert (first.tags_code, second.tags_code) == (98, 0)
        assert first.matches is None and found.filter_text is None
        outside = await admin.queue_entries(queue, 3, group="nobody")
        assert outside.entries == ()
        assert "no consumer of group nobody" in str(outside.filter_text)


async def test_epochs_need_a_controller(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.address) as admin:
        with pytest.raises(BrokerError, match="enableControllerMode"):
            await admin.broker_epochs("broker-a")


async def test_in_sync_sets_of_a_controller(tmp_path: Path) -> None:
    async with (
        answering_controller() as controller,
        running_cluster(tmp_path) as cluster,
        Admin(cluster.address) as admin,
    ):
        address = controller.address
        state = await admin.controller_state(address)
        assert (state.group, state.is_leader, state.leader_id) == ("g", True, "n0")
        assert state.peers == ("n0:127.0.0.1:9878",)
        found = (await admin.in_sync_sets(address))["broker-a"]
        assert controller.asked == [b'["broker-a"]']
        assert (found.master_id, found.master_epoch, found.epoch) == (1, 3, 7)
        assert [(each.broker_id, each.in_sync, each.alive) for each in found.members] == [
            (1, True, True),
            (2, False, False),
        ]
        await admin.in_sync_sets(address, ["broker-b"])
        assert controller.asked[-1] == b'["broker-b"]'
        controller.leader = ""
        with pytest.raises(ClientError, match="knows no leader now"):
            await admin.in_sync_sets(address)


async def test_a_controller_elects_forgets_and_is_changed(tmp_path: Path) -> None:
    async with (
        answering_controller() as controller,
        running_cluster(tmp_path, {"broker-a": {}}) as cluster,
        Admin(cluster.address) as admin,
    ):
        address = controller.address
        assert (await admin.elect_master(address, "broker-a", 3)).master_id == 3
        with pytest.raises(BrokerError, match=r"election of broker 2 of group broker-a: .*not alive"):
            await admin.elect_master(address, "broker-a", 2)
        with pytest.raises(UsageError, match="know no broker broker-z; they know: broker-a"):
            await admin.elect_master(address, "broker-z", 1)
        await admin.forget_brokers(address, "broker-a", [2, 3])
        await admin.forget_brokers(address, "gone", cluster="OldCluster", alive=True)
        some, whole = controller.forgotten
        assert (some.cluster_name, some.broker_controller_ids_to_clean) == ("DefaultCluster", "2;3")
        assert (some.clean_living_broker, some.invoke_time > 0) == (False, True)
        assert (whole.cluster_name, whole.broker_name) == ("OldCluster", "gone")
        assert (whole.broker_controller_ids_to_clean, whole.clean_living_broker) == (None, True)
        with pytest.raises(UsageError, match="excludes broker_ids"):
            await admin.forget_brokers(address, "broker-a", [2], alive=True)
        await admin.update_controller_settings(address, {"scanNotActiveBrokerInterval": "3000"})
        assert (await admin.controller_settings(address))["scanNotActiveBrokerInterval"] == "3000"


# --- access control ---


async def test_users_and_rules_are_copied(tmp_path: Path) -> None:
    settings = ClientSettings(credentials=ROOT)
    async with (
        running_cluster(tmp_path, {"broker-a": {}, "broker-b": {}}, **AUTHENTICATION) as cluster,
        Admin(cluster.address, settings=settings) as admin,
    ):
        rule = AccessRule("Topic:orders", ("Pub",))
        for name in ("till", "audit"):
            await admin.create_user(name, f"{name}-secret", broker_name="broker-a")
        await admin.create_rules("till", [rule], broker_name="broker-a")

        assert await admin.copy_users("broker-a", "broker-b", ["till"]) == ["till"]
        copied = (await admin.user("till"))["broker-b"]
        assert copied.password == "till-secret"
        assert set(await admin.copy_users("broker-a", "broker-b")) >= {"till", "audit"}
        assert await admin.copy_rules("broker-a", "broker-b", ["till"]) == ["till"]
        assert (await admin.user_rules("till"))["broker-b"].rules == (rule,)
        with pytest.raises(UsageError, match="has no user nobody; there are"):
            await admin.copy_users("broker-a", "broker-b", ["nobody"])
        with pytest.raises(UsageError, match="has no rules of audit"):
            await admin.copy_rules("broker-a", "broker-b", ["audit"])


async def test_the_blocking_face(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:

        def ask() -> None:
            with blocking.Admin(cluster.address) as admin:
                assert admin.broker_runtime("broker-a").version == "V5_3_3"
                assert admin.create_static_topic("S", 1, ["broker-a"]).queues[0].leader == "broker-a"
                assert admin.cold_reads("broker-a").groups == ()

        await asyncio.to_thread(ask)
