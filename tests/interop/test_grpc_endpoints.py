"""Endpoints that Apache's 5.x clients reach: domain names, and IPv6 addresses where a client can take them.

The Python and Node.js clients cut an endpoint at its first colon, so that they take no IPv6 addresses.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from tests.interop.grpc_fronts import PROXY_SETTINGS, GrpcStack
from tests.interop.proxy_clients import python_clients
from tests.interop.test_grpc_clients import PROGRAMS, Scenarios
from tests.support.own_servers import OwnProxy, own_cluster
from tests.support.ports import free_port
from tests.support.waiting import until

_WAIT_SECONDS = 60.0
_NAME = "localhost"
_IPV6 = "[::1]"


@asynccontextmanager
async def _stack(form: str, host: str, folder: Path) -> AsyncIterator[GrpcStack]:
    """A cluster whose gRPC port listens on all interfaces; clients get the host as an endpoint."""
    settings = {"bindAddress": "::"}
    port = free_port()
    if form == "local":
        file = folder / "rmq-proxy.json"
        file.write_text(json.dumps(PROXY_SETTINGS))
        settings |= {"brokerIP1": host, "grpcServerPort": str(port), "proxyConfigPath": str(file)}
    async with AsyncExitStack() as stack:
        namesrv, broker = await stack.enter_async_context(own_cluster(settings))
        if form == "cluster":
            own = {key: str(value) for key, value in PROXY_SETTINGS.items()}
            proxy = OwnProxy(namesrv.address, port=port, settings={**own, "bindAddress": "::"})
            await stack.enter_async_context(proxy)
        yield GrpcStack(namesrv.address, broker.port, f"{host}:{port}")


@pytest.mark.parametrize("form", ["cluster", "local"])
@pytest.mark.parametrize(
    ("program", "host"),
    [
        pytest.param("java", _NAME, marks=pytest.mark.java),
        pytest.param("java", _IPV6, marks=pytest.mark.java),
        pytest.param("node", _NAME, marks=pytest.mark.node),
    ],
)
async def test_a_client_reaches_the_endpoints_of_a_route(
    form: str, program: str, host: str, tmp_path: Path, name: str
) -> None:
    build, _ = PROGRAMS[program]
    command = build()
    async with _stack(form, host, tmp_path) as stack:
        events = await Scenarios(command, stack, tmp_path, name).run("normal", "NORMAL")
        assert {event["body"] for event in events if event["event"] == "received"} == {"a", "b"}


@pytest.mark.parametrize("form", ["cluster", "local"])
async def test_the_python_client_reaches_a_domain_name(form: str, tmp_path: Path, name: str) -> None:
    async with _stack(form, _NAME, tmp_path) as stack:
        async with Admin(stack.namesrv_address) as admin:
            await admin.create_topic(name, queues=2)
        with python_clients(stack.address, tmp_path) as clients:
            async with clients.producer(name) as producer, clients.push_consumer(name, name) as consumer:
                await producer.send(name, "hello")
                await until(lambda: consumer.accepted == ["hello"], _WAIT_SECONDS)
