"""A replica acts as the master while its master is away, and hands back when the master returns."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.offsets.table import NO_OFFSET
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import create_topic, heartbeat, request, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration
from tests.support.namesrv import running_namesrv
from tests.support.pop_requests import ack, pop, popped
from tests.support.raw_client import raw_client
from tests.support.waiting import until

GROUP, PRODUCERS = "CG", "PG"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
# A topic's two queues on each broker.
_QUEUES = (0, 1)
_QUICK = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "syncBrokerMemberGroupPeriod": 50,
    "brokerHeartbeatInterval": 100,
    "messageDelayLevel": "2s 5s",
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 100,
    "flushIntervalCommitLog": 50,
    "flushCommitLogLeastPages": 0,
    "flushConsumerOffsetInterval": 100,
    "flushDelayOffsetInterval": 100,
    "readyWaitMillis": 3000,
}


@dataclass
class _Cluster:
    """A name server, broker-a with a replica, and broker-b; `start_master` starts broker-a again."""

    folder: Path
    namesrv: Namesrv
    stack: AsyncExitStack
    master: RunningBroker
    replica: RunningBroker
    other: RunningBroker

    async def start_master(self) -> None:
        self.master = _broker(self.folder / "a", self.namesrv, brokerName="broker-a")
        self.stack.push_async_callback(self.master.stop)
        await self.master.start()

    def stored_elsewhere(self, topic: str = "T") -> list[bytes]:
        """The bodies of a topic's messages on broker-b."""
        return [body for queue_id in _QUEUES for body in self.other.bodies(topic, queue_id)]

    async def ask_namesrv(self, code: RequestCode, **fields: object) -> bytes:
        """The body of the name server's answer."""
        async with raw_client(self.namesrv.port) as client:
            return succeeded(await client.ask(request(code, **fields))).body


def _broker(folder: Path, namesrv: Namesrv, **keys: object) -> RunningBroker:
    return RunningBroker(broker_configuration(folder, **{**_QUICK, "namesrvAddr": namesrv.address, **keys}))


async def _prepare(broker: RunningBroker) -> None:
    async with broker.client() as client:
        succeeded(await client.ask(create_topic("T", len(_QUEUES))))
    broker.groups.update(SubscriptionGroupConfig(group_name=GROUP))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[_Cluster]:
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
        namesrv = await stack.enter_async_context(running_namesrv(tmp_path / "namesrv", **settings))
        master = _broker(tmp_path / "a", namesrv, brokerName="broker-a")
        replica = _broker(tmp_path / "a-s", namesrv, brokerName="broker-a", brokerRole="SLAVE", brokerId=1)
        other = _broker(tmp_path / "b", namesrv, brokerName="broker-b")
        for broker in (other, master, replica):
            if broker is not master:
                stack.push_async_callback(broker.stop)
            await broker.start()
        for broker in (master, other):
            await _prepare(broker)
        await until(lambda: "T" in replica.topics and GROUP in replica.groups)
        yield _Cluster(tmp_path, namesrv, stack, master, replica, other)


async def _fill(cluster: _Cluster) -> None:
    """Send a delayed, a timed and a half message, and pop a message without acknowledging it."""
    deliver_ms = int(time.time() * 1000) + 3000
    async with cluster.master.client() as client:
        sent(await client.ask(send("T", b"plain")))
        sent(await client.ask(send("T", b"popped", queue_id=1)))
        assert len(popped(await client.ask(pop("T", GROUP, queue_id=1, invisible_ms=2500)))) == 1
        sent(await client.ask(send("T", b"delayed", properties={"DELAY": "1"})))
        sent(await client.ask(send("T", b"timed", properties={"TIMER_DELIVER_MS": str(deliver_ms)})))
        half = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": "half"}
        flag = MessageSysFlag.TRANSACTION_PREPARED
        sent(await client.ask(send("T", b"half", properties=half, sys_flag=flag, group=PRODUCERS)))


async def test_the_acting_replica_delivers_through_another_master(cluster: _Cluster) -> None:
    master, replica, other = cluster.master, cluster.replica, cluster.other
    acting = replica.broker.acting.smallest
    await _fill(cluster)
    await until(lambda: replica.store.entries_end == master.store.max_phy_offset())
    # A replica without any offsets of its master's would deliver the popped message a second time.
    await until(lambda: replica.services.pops.positions.included_up_to != NO_OFFSET)
    assert not acting.acts
    await master.stop()
    await until(lambda: acting.acts)

    body = await cluster.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    route = TopicRouteData.decode(body)
    addresses = {each.broker_name: each.broker_addrs for each in route.broker_datas}
    assert addresses["broker-a"] == {0: replica.address}
    assert {each.broker_name: each.perm for each in route.queue_datas} == {"broker-a": 4, "broker-b": 6}
    await _what_a_replica_answers(replica)

    async with other.client() as client:
        succeeded(await client.ask(heartbeat("p", None, producer_groups=[PRODUCERS])))
        await until(lambda: sorted(cluster.stored_elsewhere()) == [b"delayed", b"timed"], 30)
        retry_topic = f"%RETRY%{GROUP}_T"
        await until(lambda: other.bodies(retry_topic) == [b"popped"], 30)
        await until(lambda: b"half" in other.bodies(HALF), 30)
        check = await client.receive()
        assert check.code == RequestCode.CHECK_TRANSACTION_STATE
        assert check.ext_fields["transactionId"] == "half"
    (message,) = other.stored(retry_topic)
    assert message.reconsume_times == 1 and "1ST_POP_TIME" in message.properties
    await cluster.start_master()
    await until(lambda: not acting.acts and replica.broker.replication.has_master)
    assert cluster.master.offsets.query(GROUP, "T", 0) == 1
    await _nothing_is_delivered_again(cluster)


async def _what_a_replica_answers(replica: RunningBroker) -> None:
    async with replica.client() as client:
        refused = await client.ask(send("T", b"refused"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        rollback = {"commitOrRollback": 12, "tranStateTableOffset": 0, "commitLogOffset": 0, "msgId": ""}
        ended = request(RequestCode.END_TRANSACTION, producerGroup=PRODUCERS, **rollback)
        assert (await client.ask(ended)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        (item,) = popped(await client.ask(pop("T", GROUP, queue_id=0)))
        assert item.message.body == b"plain"
        succeeded(await client.ask(ack(item)))
        began_ms = int(time.time() * 1000)
        polled = await client.ask(pop("T", GROUP, queue_id=1, poll_ms=100, born_ms=began_ms))
        assert polled.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.NO_MESSAGE)
        locked = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
        body = {"clientId": "c", "consumerGroup": GROUP, "mqSet": [locked]}
        answer = succeeded(await client.ask(request(RequestCode.LOCK_BATCH_MQ, json.dumps(body).encode())))
        assert json.loads(answer.body) == {"lockOKMQSet": [locked]}


async def _nothing_is_delivered_again(cluster: _Cluster) -> None:
    """The returned master delivers new messages, and none that the replica has delivered."""
    master = cluster.master
    async with master.client() as client:
        sent(await client.ask(send("T", b"new", properties={"DELAY": "1"})))
    await until(lambda: b"new" in master.bodies())
    assert master.bodies() == [b"plain", b"new"]
    assert not len(master.services.transactions.halves)
    assert not len(master.services.pops.in_flight)
    assert master.bodies(f"%RETRY%{GROUP}_T") == []
    assert master.services.timers.pending.count == 0
    assert sorted(cluster.stored_elsewhere()) == [b"delayed", b"timed"]


async def test_messages_wait_until_another_master_is_there(cluster: _Cluster) -> None:
    master, replica = cluster.master, cluster.replica
    await _fill(cluster)
    await until(lambda: replica.store.entries_end == master.store.max_phy_offset())
    await cluster.ask_namesrv(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-b")
    await master.stop()
    await until(lambda: replica.broker.acting.smallest.acts)
    escape = replica.services.escape
    await until(lambda: escape.failures > 3, 30)
    assert replica.services.delivery.delay_offsets.get(1) == 0 and not replica.services.delivery.delayed.lost
    await cluster.ask_namesrv(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-b")
    await until(lambda: sorted(cluster.stored_elsewhere()) == [b"delayed", b"timed"], 30)
