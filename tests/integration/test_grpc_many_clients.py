"""Thousands of gRPC clients at one proxy, each with a telemetry stream and a held receive."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import grpc
import pytest

from rmq_proxy.protocol import definition_pb2 as pb
from tests.support.clusters import running_cluster
from tests.support.grpc_client import GrpcClient
from tests.support.own_servers import OwnProxy
from tests.support.waiting import until

_CLIENTS: Final = 3000
# Clients of one process share connections, as gRPC's library does it by default.
_CHANNELS: Final = 30
_MOST_KIB_PER_CLIENT: Final = 150.0
_SECONDS: Final = 60.0


def _resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS:")).split()[1])


@pytest.mark.long
async def test_thousands_of_clients_take_bounded_memory_and_end_gracefully(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 1}}, popPollingSize=_CLIENTS) as cluster,
        OwnProxy(cluster.address, settings={"grpcShutdownTimeSeconds": "20"}) as proxy,
        contextlib.AsyncExitStack() as stack,
    ):
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(proxy.address, options=options))
            for _ in range(_CHANNELS)
        ]
        clients = [
            GrpcClient(channels[number % _CHANNELS], f"client-{number}", "5.0.7")
            for number in range(_CLIENTS)
        ]
        await clients[0].consume("G", "T")
        await clients[0].receive("G", "T")
        before = _resident_kib(proxy.process.pid)
        for client in clients[1:]:
            await client.consume("G", "T")
        receiving = [
            asyncio.ensure_future(client.receive("G", "T", wait_s=_SECONDS, deadline=2 * _SECONDS))
            for client in clients
        ]
        # A receive that is refused or cancelled would not be held.
        await until(lambda: cluster.broker.pops.held_pops.count == _CLIENTS, _SECONDS)
        kib_per_client = (_resident_kib(proxy.process.pid) - before) / _CLIENTS
        print(f"{kib_per_client:.1f} KiB per client")
        assert kib_per_client < _MOST_KIB_PER_CLIENT
        async with asyncio.timeout(_SECONDS):
            await proxy.stop()
            outcomes = await asyncio.gather(*receiving)
        assert {status.code for status, _ in outcomes} == {pb.MESSAGE_NOT_FOUND}
        assert not proxy.logged_errors(), proxy.logged_errors()[:3]
