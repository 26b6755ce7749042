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
