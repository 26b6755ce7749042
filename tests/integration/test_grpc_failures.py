"""gRPC's library delivers no events any longer: the port is closed, and metrics and the process say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from rmq_proxy.network.completions import MOST_FAILURES
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.daemon.health import ROLES, Unhealthy, check
from tests.support.broker_requests import send, succeeded
from tests.support.certificates import make_certificate
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.failing_queue import FailingQueue, failing_queues
from tests.support.grpc_client import grpc_client, message
from tests.support.metric_values import metric
from tests.support.ports import LOOPBACK, free_port
from tests.support.raw_client import raw_client
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until, until_answer

_ENDED = {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def queues() -> Iterator[list[FailingQueue]]:
    """The queues of all gRPC servers."""
    with failing_queues() as created:
        yield created


async def _is_ended_by_the_failure(queues: list[FailingQueue], address: str, port: int) -> None:
    async with grpc_client(address) as client:
        assert (await client.send(message("T"))).status.code == pb.OK
        await client.consume("G", "T")
        held = asyncio.ensure_future(client.receive("G", "T", wait_s=60, deadline=90))
        queues[-1].is_broken = True
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await client.send(message("T"))
        assert ended.value.code() in _ENDED
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await held
        assert ended.value.code() in _ENDED

    async def is_refused() -> bool:
        try:
            await asyncio.to_thread(check, ROLES["proxy"], LOOPBACK, port, 5.0)
        except Unhealthy:  # the listener is being closed
            return False
        except OSError as error:
            assert "refused" in str(error)
            return True
        raise AssertionError("the port answers")

    assert await until_answer(is_refused, 20)


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_a_proxy_refuses_clients_and_ends(
    cluster: RunningCluster, tmp_path: Path, mode: str, queues: list[FailingQueue]
) -> None:
    files = make_certificate(tmp_path, "server").settings if mode == "permissive" else {}
    keys = {"tls.server.mode": mode, **files}
    with pytest.raises(AssertionError, match="library delivers no events: OSError: no queue"):
        async with running_proxy(cluster.address, **keys) as proxy:
            assert metric(proxy.metrics, "rocketmq_proxy_up") == 1
            await _is_ended_by_the_failure(queues, proxy.address, proxy.port)
            assert metric(proxy.metrics, "rocketmq_proxy_up") == 0
            assert metric(proxy.metrics, "rmq_proxy_lost_events_total") == MOST_FAILURES


async def test_a_broker_serves_its_other_ports_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, queues: list[FailingQueue]
) -> None:
    port = free_port()
    async with running_cluster(tmp_path, grpcServerPort=port) as cluster:
        await _is_ended_by_the_failure(queues, f"{LOOPBACK}:{port}", port)
        await until(lambda: "restart the broker to serve gRPC again" in caplog.text)
        async with raw_client(cluster.broker.port) as client:
            succeeded(await client.ask(send("T")))


async def test_a_lost_event_is_counted_and_calls_go_on(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture, queues: list[FailingQueue]
) -> None:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        assert (await client.send(message("T"))).status.code == pb.OK
        queues[-1].lose = 1
        # The lost event is that of a call, which then gets no answer, or the last one of the call before.
        while metric(proxy.metrics, "rmq_proxy_lost_events_total") == 0:
            request = rpc.SendMessageRequest(messages=[message("T")])
            with suppress(grpc.aio.AioRpcError):
                await client.call("SendMessage", request, deadline=0.5)
        assert (await client.send(message("T"))).status.code == pb.OK
        assert metric(proxy.metrics, "rmq_proxy_lost_events_total") == 1
        assert metric(proxy.metrics, "rocketmq_proxy_up") == 1
    assert "gRPC's library lost events count=1 cause=MemoryError: no memory" in caplog.text
