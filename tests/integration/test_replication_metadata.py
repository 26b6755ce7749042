"""A replica with its master's topics, groups and offsets, and the deliveries of a replica that took over."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from rmq_broker.clock import Clocks, now_ms
from rmq_broker.replication.metadata.build import MetadataReplication
from rmq_broker.topics.names import TIMER_TOPIC
from rmq_remoting.bodies.assignment import MessageRequestMode, SetMessageRequestModeRequestBody
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawClient
from tests.support.signed_requests import AUTHENTICATION, ask_as
from tests.support.waiting import until

_SECONDS: Final = 20.0
# The replica applies offsets once its log is flushed as far as they rest on it.
_FLUSHES_SOON: Final = {"flushIntervalCommitLog": 20, "flushCommitLogLeastPages": 0}


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a name server."""
    async with running_namesrv(tmp_path / "namesrv") as server:
        yield server.address


@asynccontextmanager
async def _master(folder: Path, namesrv: str, **keys: object) -> AsyncIterator[RunningBroker]:
    keys = {"namesrvAddr": namesrv, "readyWaitMillis": 3000, **_FLUSHES_SOON, **keys}
    async with running_broker(folder, **keys) as broker:
        yield broker


@asynccontextmanager
async def _replica(
    folder: Path, namesrv: str, clocks: Clocks | None = None, /, **keys: object
) -> AsyncIterator[tuple[RunningBroker, MetadataReplication]]:
    """A replica that follows the master's log and metadata."""
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": namesrv, **_FLUSHES_SOON, **keys}
    broker = RunningBroker(broker_configuration(folder, readyWaitMillis=3000, **keys), clocks)
    try:
        await broker.start()
        metadata = broker.broker.replication.metadata
        assert metadata is not None
        yield broker, metadata
    finally:
        await broker.stop()


def _no_period_ends() -> Clocks:
    """Clocks with which a replica asks its master only when that tells of changes."""
    steady_ms = now_ms()
    return Clocks(now_ms, time.time, lambda: steady_ms)


async def _commit(client: RawClient, offset: int, group: str = "CG") -> None:
    command = request(
        Code.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic="T", queueId=0, commitOffset=offset
    )
    succeeded(await client.ask(command))


async def _create_group(client: RawClient, group: str = "CG") -> None:
    body = SubscriptionGroupConfig(group_name=group).encode()
    succeeded(await client.ask(request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)))


async def test_topics_groups_and_modes_follow_the_master(tmp_path: Path, namesrv: str) -> None:
    """At once: the master tells of changes."""
    async with (
        _master(tmp_path / "m", namesrv) as master,
        _replica(tmp_path / "r", namesrv, _no_period_ends()) as (replica, _),
        master.client() as client,
    ):
        await until(lambda: replica.topics.data_version == master.topics.data_version, _SECONDS)
        for topic in ("T", "Gone"):
            succeeded(await client.ask(create_topic(topic, 3)))
            sent(await client.ask(send(topic)))
        await _create_group(client)
        mode = SetMessageRequestModeRequestBody(consumer_group="CG", topic="T", mode=MessageRequestMode.POP)
        succeeded(await client.ask(request(Code.SET_MESSAGE_REQUEST_MODE, mode.encode())))
        forbid = request(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, group="CG", topic="T", readable="false")
        succeeded(await client.ask(forbid))
        await until(lambda: replica.pops.modes.encode() == master.pops.modes.encode(), _SECONDS)
        await until(lambda: replica.groups.encode() == master.groups.encode(), _SECONDS)
        assert replica.topics.get("T") == master.topics.get("T")
        await until(lambda: replica.store.max_offset("Gone", 0) == 1, _SECONDS)

        succeeded(await client.ask(request(Code.DELETE_TOPIC_IN_BROKER, topic="Gone")))
        await until(lambda: "Gone" not in replica.topics, _SECONDS)
        assert replica.store.max_offset("Gone", 0) == 0
        assert replica.topics.data_version == master.topics.data_version

    # A restart as the master finds all of it in the files.
    async with running_broker(tmp_path / "r") as promoted:
        assert "T" in promoted.topics and "Gone" not in promoted.topics
        assert promoted.pops.modes.get("T", "CG").mode is MessageRequestMode.POP
        assert promoted.groups.forbidden("CG", "T")


async def test_a_commit_at_the_replica_reaches_the_master_that_returns(tmp_path: Path, namesrv: str) -> None:
    async with _replica(tmp_path / "r", namesrv) as (replica, metadata), replica.client() as consumer:
        async with _master(tmp_path / "m", namesrv) as master, master.client() as client:
            succeeded(await client.ask(create_topic("T", 1)))
            await _create_group(client)
            for _ in range(5):
                sent(await client.ask(send("T")))
            await _commit(client, 2)
            metadata.sync.wake()
            await until(lambda: replica.offsets.query("CG", "T", 0) == 2, _SECONDS)
        await _commit(consumer, 4)
        async with _master(tmp_path / "m", namesrv) as master:
            assert master.offsets.query("CG", "T", 0) == 2
            await until(lambda: master.offsets.query("CG", "T", 0) == 4, _SECONDS)
            metadata.sync.wake()
            await until(lambda: not replica.offsets.own_commits, _SECONDS)


async def test_a_topic_of_the_masters_last_second_can_be_consumed(tmp_path: Path, namesrv: str) -> None:
    """The master is lost before the replica has asked for its topics again."""
    async with _replica(tmp_path / "r", namesrv) as (replica, metadata), replica.client() as consumer:
        async with _master(tmp_path / "m", namesrv, brokerRole="SYNC_MASTER") as master:
            await _create_newest(master, metadata)
            assert (await consumer.ask(pull("Newest"))).code == ResponseCode.TOPIC_NOT_EXIST
        metadata.sync.one_at_a_time.release()
        await until(lambda: "Newest" in replica.topics, _SECONDS)
        assert [message.body for message in pulled(await consumer.ask(pull("Newest")))] == [b"acknowledged"]


async def test_a_promoted_replica_has_the_topic_of_the_masters_last_second(
    tmp_path: Path, namesrv: str
) -> None:
    async with _master(tmp_path / "m", namesrv, brokerRole="SYNC_MASTER") as master:
        async with _replica(tmp_path / "r", namesrv) as (_, metadata):
            await _create_newest(master, metadata)
        async with running_broker(tmp_path / "r") as promoted:
            assert promoted.bodies("Newest") == [b"acknowledged"]
            config = promoted.topics.get("Newest")
            assert config is not None
            assert config.write_queue_nums == 4


async def _create_newest(master: RunningBroker, metadata: MetadataReplication) -> None:
    """Create a topic with a message, of which the replica takes over nothing but the log."""
    await until(lambda: master.store.replicas.positions, _SECONDS)
    await metadata.sync.sync_all()
    await metadata.sync.one_at_a_time.acquire()
    async with master.client() as client:
        succeeded(await client.ask(create_topic("Newest", 1)))
        sent(await client.ask(send("Newest", b"acknowledged")))


async def test_a_replica_that_became_the_master_delivers_what_its_master_had_not(
    tmp_path: Path, namesrv: str
) -> None:
    keys = {"messageDelayLevel": "0s 1h", "timerPrecisionMs": 100}
    async with (
        _replica(tmp_path / "r", namesrv, **keys) as (replica, metadata),
        _master(tmp_path / "m", namesrv, **keys) as master,
        master.client() as client,
    ):
        succeeded(await client.ask(create_topic("T", 1)))
        sent(await client.ask(send("T", b"delay over", properties={"DELAY": "1"})))
        sent(await client.ask(send("T", b"time over", properties={"TIMER_DELAY_MS": "100"})))
        sent(await client.ask(send("T", b"delayed", properties={"DELAY": "2"})))
        deliver_ms = str(time.time_ns() // 1_000_000 + 60_000)
        sent(await client.ask(send("T", b"timed", properties={"TIMER_DELIVER_MS": deliver_ms})))
        await until(lambda: master.store.max_offset("T", 0) == 2, _SECONDS)
        timers, delays = replica.services.timers.pending, replica.services.delivery.delay_offsets
        await until(lambda: timers.checkpoint.delivered_offset == 2, 3 * _SECONDS)
        await until(lambda: delays.get(1) == 1, _SECONDS)
        assert metadata.sync.states["timer metrics"].failures == 0

    # The waiting delayed message is due at once on the new master.
    keys = {"messageDelayLevel": "0s 0s", "timerPrecisionMs": 100}
    async with running_broker(tmp_path / "r", **keys) as promoted:
        assert promoted.store.max_offset(TIMER_TOPIC, 0) == 2
        await until(lambda: b"delayed" in promoted.bodies("T"), _SECONDS)
        await until(lambda: not promoted.services.timers.entering.behind, _SECONDS)
        assert sorted(promoted.bodies("T")) == [b"delay over", b"delayed", b"time over"]
        assert promoted.services.timers.pending.count == 1


async def test_the_keys_of_a_user_with_few_rights_suffice(tmp_path: Path, namesrv: str) -> None:
    """The user may read the cluster, and commit for groups."""
    credentials = '{"accessKey":"replica","secretKey":"replicas-secret"}'
    keys = {**AUTHENTICATION, "authorizationEnabled": "true", "haAllowedReplicas": LOOPBACK}
    async with _master(tmp_path / "m", namesrv, **keys) as master:
        async with master.client() as client:
            body = {"password": "replicas-secret"}
            created = await ask_as(client, Code.AUTH_CREATE_USER, {"username": "replica"}, body)
            assert created.code == ResponseCode.SUCCESS
            entries = [
                {"resource": "Cluster:*", "actions": ["Get"], "decision": "Allow"},
                {"resource": "Topic:*", "actions": ["Update"], "decision": "Allow"},
                {"resource": "Group:*", "actions": ["Update"], "decision": "Allow"},
            ]
            acl = {"subject": "User:replica", "policies": [{"policyType": "Custom", "entries": entries}]}
            granted = await ask_as(client, Code.AUTH_CREATE_ACL, {"subject": "User:replica"}, acl)
            assert granted.code == ResponseCode.SUCCESS, granted.remark
        master.topics.update(TopicConfig(topic_name="T"))
        master.groups.update(SubscriptionGroupConfig(group_name="CG"))
        keys = {"innerClientAuthenticationCredentials": credentials}
        async with _replica(tmp_path / "r", namesrv, **keys) as (replica, metadata):
            await until(lambda: "CG" in replica.groups and "T" in replica.topics, _SECONDS)
            async with replica.client() as consumer:
                await _commit(consumer, 0)
            metadata.sync.wake()
            await until(lambda: master.offsets.query("CG", "T", 0) == 0, _SECONDS)
            failing = {name for name, state in metadata.sync.states.items() if state.failures}
            assert not failing - {"connection"}
