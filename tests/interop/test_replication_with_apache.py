"""One broker of Apache's and one of ours in a group: each follows the other, and each takes over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import list_files
from rmq_remoting.codes import ResponseCode
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import create_topic, pull, pulled, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawClient, raw_client
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(180, func_only=True)]

_FILE_BYTES = 256 * 1024
_FILES = {
    "mappedFileSizeCommitLog": str(_FILE_BYTES),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "brokerIP2": LOOPBACK,
    "haSendHeartbeatInterval": "200",
}
_BODY = b"x" * 1000


def _ours(folder: Path, namesrv: str, **keys: object) -> RunningBroker:
    return RunningBroker(broker_configuration(folder, **{"namesrvAddr": namesrv, **_FILES, **keys}))


def _apaches(
    program: JavaProgram, home: Path, namesrv: str, role: Mapping[str, str], broker_id: int = 0
) -> ApacheBroker:
    return ApacheBroker(program, namesrv, home=home, broker_id=broker_id, settings={**_FILES, **role})


def _log(root: Path, end: int) -> bytes:
    """The commit log of a store up to an offset."""
    files = list_files(root / "commitlog")
    return b"".join(path.read_bytes() for path in files)[:end]


async def _fill(client: RawClient, count: int, mark: bytes) -> None:
    for number in range(count):
        sent(await client.ask(send("T", mark + b"%d" % number + _BODY)))


async def _bodies(client: RawClient) -> list[bytes]:
    found: list[bytes] = []
    while (answer := await client.ask(pull("T", offset=len(found)))).code == ResponseCode.SUCCESS:
        found += [message.body.rstrip(b"x") for message in pulled(answer)]
    return found


async def test_each_follows_the_other_and_takes_over(tmp_path: Path, apache_program: JavaProgram) -> None:
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        address = namesrv.address
        # Apache's broker is the master. It waits for our replica.
        role = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
        java = _apaches(apache_program, tmp_path / "java", address, role)
        async with java, raw_client(java.port) as client:
            succeeded(await client.ask(create_topic("T", 1)))
            assert (await client.ask(send("T", b"before" + _BODY))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            replica = _ours(tmp_path / "ours", address, brokerRole="SLAVE", brokerId=1)
            await replica.start()
            try:
                await until(lambda: replica.broker.replication.has_master, 30)
                await _fill(client, 400, b"first ")
                end = replica.store.max_phy_offset()
                await until(lambda: replica.store.max_offset("T", 0) == 401, 20)
                assert _log(java.store_path, end) == _log(tmp_path / "ours" / "store", end)
            finally:
                await replica.stop()
        # Ours takes over, and waits for the replica of Apache's.
        ours = _ours(tmp_path / "ours", address, brokerRole="SYNC_MASTER", slaveTimeout=60_000)
        await ours.start()
        try:
            java = _apaches(apache_program, tmp_path / "java", address, {"brokerRole": "SLAVE"}, broker_id=1)
            async with java, ours.client() as client:
                succeeded(await client.ask(create_topic("T", 1)))
                await until(ours.store.replicas.in_sync, 60)
                await _fill(client, 400, b"second ")
                end = ours.store.max_phy_offset()
                assert _log(java.store_path, end) == _log(tmp_path / "ours" / "store", end)
        finally:
            await ours.stop()
        # Apache's broker takes over again.
        java = _apaches(apache_program, tmp_path / "java", address, {"brokerRole": "ASYNC_MASTER"})
        async with java, raw_client(java.port) as client:
            expected = [
                b"before",
                *(b"first %d" % n for n in range(400)),
                *(b"second %d" % n for n in range(400)),
            ]
            deadline = time.monotonic() + 20
            while await _bodies(client) != expected:
                assert time.monotonic() < deadline


@pytest.mark.long
async def test_a_group_of_apaches_is_replaced_node_by_node(
    tmp_path: Path, apache_program: JavaProgram
) -> None:
    """As docs/moving.md tells it: each broker of ours continues the store of one of Apache's."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        address = namesrv.address
        role = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
        java = _apaches(apache_program, first, address, role)
        async with java, raw_client(java.port) as client:
            succeeded(await client.ask(create_topic("T", 1)))
            java_replica = _apaches(apache_program, second, address, {"brokerRole": "SLAVE"}, broker_id=1)
            async with java_replica:
                await _until_replicated(client, 60)
                await _fill(client, 300, b"first ")
                await java_replica.stop()
            # The replica first.
            replica = _ours(second, address, brokerRole="SLAVE", brokerId=1)
            await replica.start()
            try:
                await _until_replicated(client, 30)
                await _fill(client, 300, b"second ")
                await until(lambda: replica.store.max_offset("T", 0) >= 600, 20)
                await java.stop()
            finally:
                await replica.stop()
        # Then the master: the replica takes over, and the store of the old master becomes the replica's.
        master = _ours(second, address, brokerRole="SYNC_MASTER", slaveTimeout=60_000)
        await master.start()
        try:
            replica = _ours(first, address, brokerRole="SLAVE", brokerId=1)
            await replica.start()
            try:
                await until(master.store.replicas.in_sync, 30)
                async with master.client() as client:
                    await _fill(client, 300, b"third ")
                    bodies = await _bodies(client)
                marks = (b"first ", b"second ", b"third ")
                assert [body for body in bodies if body] == [
                    b"%b%d" % (mark, number) for mark in marks for number in range(300)
                ]
                end = master.store.max_phy_offset()
                await until(lambda: replica.store.entries_end == end, 20)
                assert _log(first / "store", end) == _log(second / "store", end)
            finally:
                await replica.stop()
        finally:
            await master.stop()


async def _until_replicated(client: RawClient, timeout_seconds: float) -> None:
    """Send messages with empty bodies until a replica acknowledges one."""
    deadline = time.monotonic() + timeout_seconds
    while (await client.ask(send("T", b"x"))).code != ResponseCode.SUCCESS:
        assert time.monotonic() < deadline
