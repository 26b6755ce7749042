"""A master and its replicas: the log is the same, sends wait for replicas, and logs that differ are found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rmq_broker.replication.metrics import ReplicationCollector
from rmq_broker.replication.protocol import report
from rmq_broker.store.replicas import held_reads
from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.pop_requests import pop, popped
from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawClient
from tests.support.stores import BORN_HOST, template
from tests.support.waiting import until

_BODY = b"x" * 1000


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a name server."""
    async with running_namesrv(tmp_path / "namesrv") as server:
        yield server.address


def _replica(folder: Path, namesrv: str, **keys: object) -> RunningBroker:
    """A replica, not started."""
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": namesrv, "readyWaitMillis": 3000, **keys}
    return RunningBroker(broker_configuration(folder, **keys))


@asynccontextmanager
async def _running(broker: RunningBroker) -> AsyncIterator[RunningBroker]:
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _log(broker: RunningBroker) -> bytes:
    """The whole commit log."""
    store = broker.store
    begin, end = store.min_phy_offset(), store.max_phy_offset()
    parts = []
    while begin < end:
        part = store.commit_log.get_data(begin, end - begin)
        assert part
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


async def _same_log(master: RunningBroker, replica: RunningBroker) -> None:
    """Wait until the replica has the master's log and its entries; both must be equal byte for byte."""
    await until(lambda: replica.store.entries_end == master.store.max_phy_offset(), 20)
    assert _log(replica) == _log(master)


async def _fill(client: RawClient, count: int, mark: bytes = b"") -> None:
    for number in range(count):
        sent(await client.ask(send("T", mark + b"%d" % number + _BODY)))


async def _ha_status(broker: RunningBroker) -> HARuntimeInfo:
    async with broker.client() as client:
        answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_HA_STATUS)))
    return HARuntimeInfo.decode(answer.body)


async def _fake_replica(master: RunningBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A replica that reads, and acknowledges what the test tells it to."""
    identity = master.broker.registrar.announcements.identity
    reader, writer = await asyncio.open_connection(LOOPBACK, int(identity.ha_address.rpartition(":")[2]))
    writer.write(report(0))
    server = master.broker.replication.server
    await until(lambda: server.connections and server.connections[0].next_offset >= 0)
    return reader, writer


# --- the log ---


async def test_a_replica_has_what_was_stored_before_and_after_it_came(tmp_path: Path, namesrv: str) -> None:
    async with (
        running_broker(tmp_path / "m", namesrvAddr=namesrv) as master,
        master.client() as client,
    ):
        succeeded(await client.ask(create_topic("T", 1)))
        await _fill(client, 200)
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _same_log(master, replica)
            await _fill(client, 200)
            await _same_log(master, replica)
            assert replica.store.max_offset("T", 0) == 400
            status = await _ha_status(master)
            assert (status.master, status.in_sync_slave_nums) == (True, 1)
            assert status.ha_connection_info[0].in_sync
            own = (await _ha_status(replica)).ha_client_runtime_info
            assert own.max_offset == master.store.max_phy_offset()
            assert own.last_read_timestamp > 0


async def test_a_replica_goes_on_where_it_stopped(tmp_path: Path, namesrv: str) -> None:
    async with (
        running_broker(tmp_path / "m", namesrvAddr=namesrv, mappedFileSizeCommitLog=64 * 1024) as master,
        master.client() as client,
    ):
        succeeded(await client.ask(create_topic("T", 1)))
        for round_number in range(3):
            await _fill(client, 150)
            keys = {"mappedFileSizeCommitLog": 64 * 1024}
            async with _running(_replica(tmp_path / "r", namesrv, **keys)) as replica:
                await _same_log(master, replica)
                assert replica.store.max_offset("T", 0) == 150 * (round_number + 1)


async def test_a_replica_refuses_sends(tmp_path: Path, namesrv: str) -> None:
    async with (
        running_broker(tmp_path / "m", namesrvAddr=namesrv),
        _running(_replica(tmp_path / "r", namesrv)) as replica,
        replica.client() as client,
    ):
        answer = await client.ask(send("TBW102", b"body"))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "replica" in (answer.remark or "")


# --- waiting for replicas ---


async def test_without_a_replica_a_sync_master_stores_and_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path, brokerRole="SYNC_MASTER") as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        answer = await client.ask(send("T"))
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert len(pulled(await client.ask(pull("T")))) == 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_send_is_answered_and_seen_once_a_replica_has_it(tmp_path: Path, flush: str) -> None:
    keys = {"brokerRole": "SYNC_MASTER", "flushDiskType": flush, "slaveTimeout": 60_000}
    async with running_broker(tmp_path, **keys) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        reader, writer = await _fake_replica(master)
        sending = asyncio.ensure_future(client.ask(send("T")))
        await reader.readexactly(12 + 1)  # the replica is sent the message before it is acknowledged
        assert master.store.max_offset("T", 0) == 0
        assert not sending.done()
        writer.write(report(master.store.max_phy_offset()))
        sent(await sending)
        assert master.store.max_offset("T", 0) == 1
        writer.close()


async def test_a_replica_that_does_not_acknowledge_in_time(tmp_path: Path) -> None:
    keys = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 50}
    async with running_broker(tmp_path, **keys) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        _, writer = await _fake_replica(master)
        assert (await client.ask(send("T"))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert master.store.max_offset("T", 0) == 0  # a failover would take the message back
        writer.close()
        await until(lambda: master.store.max_offset("T", 0) == 1)  # this broker goes on alone


async def test_messages_are_refused_below_the_minimum_of_replicas(tmp_path: Path, namesrv: str) -> None:
    keys = {"brokerRole": "SYNC_MASTER", "minInSyncReplicas": 2, "namesrvAddr": namesrv}
    async with running_broker(tmp_path / "m", **keys) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        answer = await client.ask(send("T"))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "minInSyncReplicas=2" in (answer.remark or "")
        async with _running(_replica(tmp_path / "r", namesrv)):
            await until(master.store.replicas.in_sync, 20)
            sent(await client.ask(send("T")))


async def test_a_restarted_master_shows_consumers_nothing_that_replicas_may_lack(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_reads, "_MOST_SECONDS", 600.0)
    keys = {"brokerRole": "SYNC_MASTER", "minInSyncReplicas": 2, "namesrvAddr": namesrv}
    async with running_broker(tmp_path / "m", brokerRole="SYNC_MASTER") as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        sent_alone = await client.ask(send("T", b"alone"))
        assert sent_alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
    async with running_broker(tmp_path / "m", **keys) as master, master.client() as client:
        assert (await client.ask(pull("T"))).code == ResponseCode.PULL_NOT_FOUND
        assert (await client.ask(pop("T"))).code == ResponseCode.POLLING_TIMEOUT
        async with _running(_replica(tmp_path / "r", namesrv)), master.client() as waiting:
            waiting.send(pull("T", suspend_ms=20_000))
            await until(lambda: not master.store.holds_reads, 60)
            assert [each.body for each in pulled(await waiting.receive())] == [b"alone"]
            assert len(popped(await client.ask(pop("T")))) == 1


async def test_a_silent_replica_is_dropped(tmp_path: Path) -> None:
    keys = {"brokerRole": "SYNC_MASTER", "haHousekeepingInterval": 1}
    async with running_broker(tmp_path, **keys) as master:
        reader, writer = await _fake_replica(master)
        await until(lambda: not master.store.replicas.positions)
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_flow_control_limits_a_replica(tmp_path: Path) -> None:
    keys = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": 5000, "haTransferBatchSize": 1000}
    async with running_broker(tmp_path, **keys) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        await _fill(client, 20)
        _, writer = await _fake_replica(master)
        (connection,) = master.broker.replication.server.connections
        await until(lambda: connection.sent_bytes >= 5000)
        assert connection.sent_bytes < 2 * 5000 + 1012  # a second may have begun meanwhile
        await until(lambda: connection.next_offset == master.store.max_phy_offset(), 20)
        writer.close()


async def test_metrics_of_both_ends(tmp_path: Path, namesrv: str) -> None:
    async with running_broker(tmp_path / "m", namesrvAddr=namesrv) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        _, writer = await _fake_replica(master)
        await _fill(client, 5)

        def families(broker: RunningBroker) -> dict[str, list[float]]:
            collector = ReplicationCollector(broker.broker.replication, broker.store, _now_ms)
            return {
                family.name: [value for _, value in family.series if isinstance(value, int | float)]
                for family in collector.collect()
            }

        shown = families(master)
        assert shown["rmq_replicas_connected"] == [1]
        assert shown["rmq_replica_lag_messages"] == [5]
        assert shown["rmq_replica_lag_bytes"] == [master.store.max_phy_offset()]
        assert 0 <= shown["rmq_replica_lag_seconds"][0] < 60
        writer.close()
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _same_log(master, replica)
            assert families(replica) == {"rmq_replica_following": [1], "rmq_replica_behind_bytes": [0]}


# --- reading from replicas ---


async def test_a_replica_serves_consumers_while_the_master_is_gone(tmp_path: Path, namesrv: str) -> None:
    async with _running(_replica(tmp_path / "r", namesrv)) as replica, replica.client() as consumer:
        async with (
            running_broker(tmp_path / "m", namesrvAddr=namesrv) as master,
            master.client() as client,
        ):
            succeeded(await client.ask(create_topic("T", 1)))
            await _fill(client, 3)
            await _same_log(master, replica)
            succeeded(await consumer.ask(create_topic("T", 1)))
            assert len(pulled(await consumer.ask(pull("T")))) == 3
            at_tail = await consumer.ask(pull("T", offset=3, suspend_ms=20_000))
            assert at_tail.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert at_tail.ext_fields["suggestWhichBrokerId"] == "0"
            # The replica may lag: a consumer that is ahead of it keeps its offset.
            ahead = await consumer.ask(pull("T", offset=7))
            assert ahead.ext_fields["nextBeginOffset"] == "7"
        await until(lambda: not replica.broker.replication.has_master, 10)
        assert len(pulled(await consumer.ask(pull("T", offset=1)))) == 2
        assert (await consumer.ask(pull("T", offset=3))).code == ResponseCode.PULL_NOT_FOUND


async def _log_of_five_messages(folder: Path) -> bytes:
    async with running_broker(folder) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        await _fill(client, 5)
        return _log(master)


async def test_a_consumer_ahead_of_a_replica_waits_there(tmp_path: Path, namesrv: str) -> None:
    """After PULL_OFFSET_MOVED it would drop the messages that it has pulled and not consumed yet."""
    data = await _log_of_five_messages(tmp_path / "m")
    async with _running(_replica(tmp_path / "r", namesrv)) as replica, replica.client() as consumer:
        succeeded(await consumer.ask(create_topic("T", 2)))
        replica.store.append_data(0, data)
        replica.store.enter_data()
        for queue_id in (0, 1):  # one queue has messages, the other one none
            for suspend_ms in (0, 200):
                began = time.monotonic()
                ahead = await consumer.ask(pull("T", queue_id=queue_id, offset=7, suspend_ms=suspend_ms))
                assert ahead.code == ResponseCode.PULL_NOT_FOUND
                assert ahead.ext_fields["nextBeginOffset"] == "7"
                assert time.monotonic() - began >= suspend_ms / 1000


async def test_a_consumer_ahead_of_a_replica_gets_the_message_once_it_is_there(
    tmp_path: Path, namesrv: str
) -> None:
    data = await _log_of_five_messages(tmp_path / "m")
    async with _running(_replica(tmp_path / "r", namesrv)) as replica, replica.client() as consumer:
        succeeded(await consumer.ask(create_topic("T", 1)))
        waiting = asyncio.ensure_future(consumer.ask(pull("T", offset=3, suspend_ms=20_000)))
        await until(lambda: replica.held_pulls.count, 10)
        middle = len(data) // 2
        replica.store.append_data(0, data[:middle])
        replica.store.enter_data()  # wakes the pull, whose message is still missing
        await asyncio.sleep(0)
        assert replica.held_pulls.count == 1
        replica.store.append_data(middle, data[middle:])
        replica.store.enter_data()
        assert pulled(await waiting)[0].queue_offset == 3


# --- logs that differ ---


async def _stopped_copy(tmp_path: Path, namesrv: str, count: int) -> None:
    """A master in `m` and a replica in `r` with the same messages, both stopped."""
    async with running_broker(tmp_path / "m", namesrvAddr=namesrv) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        await _fill(client, count)
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _same_log(master, replica)


@pytest.mark.parametrize("lost", [3, 200], ids=["within the first window", "far back"])
async def test_messages_that_the_master_lacks_are_cut_off_and_kept(
    tmp_path: Path, namesrv: str, lost: int
) -> None:
    await _stopped_copy(tmp_path, namesrv, 20)
    async with running_broker(tmp_path / "r") as former_master, former_master.client() as client:
        common = former_master.store.max_phy_offset()
        await _fill(client, lost, b"only here ")
        end = former_master.store.max_phy_offset()
    async with running_broker(tmp_path / "m", namesrvAddr=namesrv) as master, master.client() as client:
        await _fill(client, 10, b"only there ")
        replica = _replica(tmp_path / "r", namesrv)
        await replica.start()
        await until(lambda: replica.deaths, 20)
        assert "DaemonRestart" in replica.deaths.pop()
        await replica.stop()
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _same_log(master, replica)
            assert replica.store.max_offset("T", 0) == 30
    (kept,) = (tmp_path / "r" / "store" / "diverged").iterdir()
    assert int(kept.stem) == common
    assert kept.stat().st_size == end - common
    assert b"only here 0x" in kept.read_bytes()


async def test_a_log_of_another_broker_is_left_alone(tmp_path: Path, namesrv: str) -> None:
    async with running_broker(tmp_path / "r") as other, other.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        await _fill(client, 30)
        before = _log(other)
    async with running_broker(tmp_path / "m", namesrvAddr=namesrv) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        await _fill(client, 20)
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            follower = replica.broker.replication.follower
            assert follower is not None
            await until(lambda: "no record in common" in follower.status.problem, 20)
            assert _log(replica) == before


# --- who may connect ---


async def test_with_users_only_named_addresses_may_replicate(tmp_path: Path) -> None:
    keys = {
        "authenticationEnabled": "true",
        "initAuthenticationUser": '{"username":"admin","password":"secret"}',
    }
    async with running_broker(tmp_path, **keys) as master:
        port = int(master.broker.registrar.announcements.identity.ha_address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(report(0))
        with suppress(ConnectionResetError):
            assert await reader.read(1) == b""
        writer.close()
        assert not master.store.replicas.positions


async def test_a_replica_with_keys_follows_a_master_with_users(tmp_path: Path, namesrv: str) -> None:
    keys = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"admin","password":"secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
        "haAllowedReplicas": "127.0.0.0/8",
    }
    async with running_broker(tmp_path / "m", namesrvAddr=namesrv, **keys) as master:
        for _ in range(
            2
        ):  # the second time the replica compares its log, and asks for the extent of the other
            async with _running(_replica(tmp_path / "r", namesrv, **keys)) as replica:
                await until(lambda: replica.broker.replication.has_master, 20)
                master.store.put(
                    master.store.queues.get_or_create("T", 0),
                    template("T"),
                    b"body",
                    b"",
                    tags_code=0,
                    born_timestamp_ms=0,
                    born_host=BORN_HOST,
                )
                await _same_log(master, replica)
