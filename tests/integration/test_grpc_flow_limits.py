"""Flow limits of the gRPC port: calls in progress, by kind, while a broker answers slowly or holds calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_proxy.client_settings import ClientSettings
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.proxy import Proxy
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, grpc_client, message, resource
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until, until_answer

_LIMITS = {
    f"grpc{kind}ThreadQueueCapacity": 1 for kind in ("Producer", "Consumer", "ClientManager", "Transaction")
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def proxy(cluster: RunningCluster) -> AsyncIterator[Proxy]:
    async with running_proxy(cluster.address, **_LIMITS) as running:
        yield running


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[GrpcClient]:
    async with grpc_client(proxy.address) as connected:
        yield connected


class _SlowSends:
    """Sends to brokers wait until `answer` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = asyncio.Event()
        self.waiting = 0
        request = RemotingClient.request

        async def slow(
            client: RemotingClient, address: str, command: RemotingCommand, timeout_seconds: float
        ) -> RemotingCommand:
            if command.code == RequestCode.SEND_MESSAGE_V2:
                self.waiting += 1
                await self.answer.wait()
            return await request(client, address, command, timeout_seconds)

        monkeypatch.setattr(RemotingClient, "request", slow)


def _metrics(proxy: Proxy) -> dict[tuple[str, str], float]:
    """Return the metrics of calls by name and label."""
    return {
        (family.name, str(labels[0])): value
        for collector in proxy.metrics.registry.collectors()
        for family in collector.collect()
        if family.name.startswith("rmq_proxy_calls_")
        for labels, value in family.series
        if isinstance(value, (int, float))
    }


async def test_sends_beyond_the_limit_are_refused_and_other_kinds_served(
    client: GrpcClient, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = _SlowSends(monkeypatch)
    first = asyncio.ensure_future(client.send(message("T")))
    await until(lambda: sends.waiting == 1)
    refused = (await client.send(message("T"))).status
    assert refused.code == pb.TOO_MANY_REQUESTS
    assert refused.message.startswith("flow limit: 1 calls (producer) are in progress")
    route = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("T")))
    assert route.status.code == pb.OK
    values = _metrics(proxy)
    assert values["rmq_proxy_calls_in_progress", "producer"] == 1
    assert values["rmq_proxy_calls_limit", "producer"] == 1
    assert values["rmq_proxy_calls_refused_total", "producer"] == 1
    assert values["rmq_proxy_calls_refused_total", "route"] == 0
    sends.answer.set()
    assert (await first).status.code == pb.OK
    assert (await client.send(message("T"))).status.code == pb.OK


async def test_a_burst_of_calls_that_the_proxy_has_not_begun_is_served(client: GrpcClient) -> None:
    """The library of gRPC cancels calls beyond 1,000 by default."""
    request = rpc.QueryRouteRequest(topic=resource("T"))
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*(client.call("QueryRoute", request) for _ in range(3000)))
    assert {answer.status.code for answer in answers} == {pb.OK}


async def test_a_call_that_its_client_gives_up_frees_its_place(
    client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = _SlowSends(monkeypatch)
    given_up = asyncio.ensure_future(client.send(message("T")))
    await until(lambda: sends.waiting == 1)
    given_up.cancel()
    sends.answer.set()

    async def is_served() -> bool:
        return bool((await client.send(message("T"))).status.code == pb.OK)

    await until_answer(is_served)


async def test_held_receives_do_not_count(client: GrpcClient, proxy: Proxy) -> None:
    await client.consume("G", "T")
    await client.receive("G", "T")
    receiving = []
    for number in range(3):
        receiving.append(asyncio.ensure_future(client.receive("G", "T", count=1, wait_s=15)))
        await _until_held(proxy, number + 1)
    assert (await client.acknowledge("G", "T")).status.code != pb.TOO_MANY_REQUESTS
    for number in range(3):
        await client.send(message("T", message_id=f"{number:04}"))
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*receiving)
    assert [(status.code, len(messages)) for status, messages in outcomes] == [(pb.OK, 1)] * 3


async def _until_held(proxy: Proxy, number: int) -> None:
    """Wait until this many receives are open and the broker holds all of them."""

    def is_held() -> bool:
        values = _metrics(proxy)
        is_open = values.get(("rmq_proxy_calls_open", "receive_message")) == number
        return is_open and not values["rmq_proxy_calls_in_progress", "consumer"]

    await until(is_held)


async def test_a_command_beyond_the_limit_is_answered_on_its_stream(
    client: GrpcClient, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, merged = asyncio.Event(), ClientSettings.merged

    async def slow(settings: ClientSettings, reported: pb.Settings) -> pb.Settings:
        await goes_on.wait()
        return await merged(settings, reported)

    monkeypatch.setattr(ClientSettings, "merged", slow)
    first = asyncio.ensure_future(client.produce("T"))
    await until(lambda: _metrics(proxy)["rmq_proxy_calls_in_progress", "client manager"] == 1)
    async with grpc_client(proxy.address, "client-2") as other:
        assert await other.produce("T") == pb.Settings()
        assert _metrics(proxy)["rmq_proxy_calls_refused_total", "client manager"] == 1
        goes_on.set()
        assert (await first).publishing.topics[0].name == "T"
        assert (await other.produce("T")).publishing.topics[0].name == "T"  # on the same stream
