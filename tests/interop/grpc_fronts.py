"""Servers that the 5.x clients connect to: Apache's proxy, ours, and our broker itself.

A front serves a running cluster. A stack is a cluster with its front, of this project, Apache's, or of both.
Times are short, so that redeliveries and checks take seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.interop.clusters import Apache, Cluster, Own, flawless_cluster
from tests.support import toolchain
from tests.support.apache import ApacheNamesrv, apache_cluster
from tests.support.apache_proxy import ApacheLocalProxy, ApacheProxy
from tests.support.own_servers import OwnProxy
from tests.support.ports import LOOPBACK, free_port
from tests.support.requirements import built_or_skip

BROKER_SETTINGS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
}
# Apache's broker stores the outcomes of transactions in batches, and checks those whose outcome is not
# stored. Its default of 3 s is longer than the checks here take, and would check some rolled-back ones.
APACHE_BROKER_SETTINGS = {**BROKER_SETTINGS, "transactionOpBatchInterval": "100"}
PROXY_SETTINGS = {
    "minInvisibleTimeMillsForRecv": 1000,
    "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
    # Apache's Java client awaits the held receives of a push consumer when it closes.
    "grpcClientConsumerMaxLongPollingTimeoutMillis": 3000,
    "transactionHeartbeatPeriodSecond": 1,
    "defaultInvisibleTimeMills": 4000,  # of messages of push consumers
}


@contextmanager
def cluster_with_grpc(folder: Path) -> Iterator[Own]:
    """Our name server and broker, which serves gRPC, too; they must stop gracefully and log no error."""
    file = folder / "rmq-proxy.json"
    file.write_text(json.dumps(PROXY_SETTINGS))
    own = {"grpcServerPort": str(free_port()), "proxyConfigPath": str(file)}
    with flawless_cluster({**BROKER_SETTINGS, **own}) as cluster:
        yield cluster


@contextmanager
def apache_proxy(servers: Cluster) -> Iterator[str]:
    """Apache's proxy in CLUSTER mode."""
    program = built_or_skip(toolchain.apache_proxy)
    with asyncio.Runner() as runner:
        proxy = ApacheProxy(program, servers[0].address, settings=PROXY_SETTINGS)
        runner.run(proxy.__aenter__())
        try:
            yield proxy.address
        finally:
            runner.run(proxy.__aexit__(None, None, None))


@contextmanager
def own_proxy(servers: Cluster) -> Iterator[str]:
    """Our proxy in CLUSTER mode; it must stop gracefully and log no error."""
    settings = {key: str(value) for key, value in PROXY_SETTINGS.items()}
    with asyncio.Runner() as runner:
        proxy = OwnProxy(servers[0].address, settings=settings)
        runner.run(proxy.__aenter__())
        try:
            yield proxy.address
            runner.run(proxy.stop())
            assert not proxy.logged_errors(), "\n".join(proxy.logged_errors())
        finally:
            runner.run(proxy.__aexit__(None, None, None))


@contextmanager
def broker_itself(servers: Own) -> Iterator[str]:
    """The broker itself (LOCAL mode)."""
    yield f"{LOOPBACK}:{servers[1].settings['grpcServerPort']}"


@contextmanager
def apache_servers() -> Iterator[Apache]:
    """Apache's name server and broker."""
    program = built_or_skip(toolchain.apache_servers)
    with asyncio.Runner() as runner:
        cluster = apache_cluster(program, {**APACHE_BROKER_SETTINGS, "waitTimeMillsInSendQueue": "10000"})
        servers = runner.run(cluster.__aenter__())
        try:
            yield servers
        finally:
            runner.run(cluster.__aexit__(None, None, None))


# --- stacks ---


@dataclass(frozen=True, slots=True)
class GrpcStack:
    """A running cluster of one broker, and the address at which it serves gRPC."""

    namesrv_address: str
    broker_port: int
    address: str


Stack = Callable[[Path], AbstractContextManager[GrpcStack]]


def _on_ours(front: Callable[[Own], AbstractContextManager[str]]) -> Stack:
    @contextmanager
    def stack(folder: Path) -> Iterator[GrpcStack]:
        with cluster_with_grpc(folder) as servers, front(servers) as address:
            yield GrpcStack(servers[0].address, servers[1].port, address)

    return stack


def _on_apaches(front: Callable[[Cluster], AbstractContextManager[str]]) -> Stack:
    @contextmanager
    def stack(folder: Path) -> Iterator[GrpcStack]:
        with apache_servers() as servers, front(servers) as address:
            yield GrpcStack(servers[0].address, servers[1].port, address)

    return stack


@contextmanager
def apache_local(folder: Path) -> Iterator[GrpcStack]:
    """Apache's proxy in LOCAL mode, with a broker in its process."""
    servers, program = built_or_skip(toolchain.apache_servers), built_or_skip(toolchain.apache_proxy)
    with asyncio.Runner() as runner:
        namesrv = ApacheNamesrv(servers)
        runner.run(namesrv.__aenter__())
        proxy = ApacheLocalProxy(
            program, namesrv.address, settings=PROXY_SETTINGS, broker_settings=APACHE_BROKER_SETTINGS
        )
        try:
            runner.run(proxy.__aenter__())
            try:
                yield GrpcStack(namesrv.address, proxy.broker.port, proxy.address)
            finally:
                runner.run(proxy.__aexit__(None, None, None))
        finally:
            runner.run(namesrv.__aexit__(None, None, None))


own_cluster_form: Final = _on_ours(own_proxy)
own_local_form: Final = _on_ours(broker_itself)
apache_before_ours: Final = _on_ours(apache_proxy)
apache_cluster_mode: Final = _on_apaches(apache_proxy)
ours_before_apaches: Final = _on_apaches(own_proxy)

# Ours first. Apache's own stacks show that a program can pass. They are long, as are those of both.
STACKS: Final = [
    pytest.param(own_cluster_form, id="cluster"),
    pytest.param(own_local_form, id="local"),
    *(
        pytest.param(stack, id=name, marks=[pytest.mark.java, pytest.mark.long])
        for name, stack in {
            "apache-local": apache_local,
            "apache-cluster": apache_cluster_mode,
            "apache-before-ours": apache_before_ours,
            "ours-before-apaches": ours_before_apaches,
        }.items()
    ),
]
