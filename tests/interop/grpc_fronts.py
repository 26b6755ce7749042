"""Servers that the 5.x clients connect to: Apache's proxy, ours, and our broker itself.

Times are short, so that redeliveries and checks take seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.clusters import Cluster, Own, flawless_cluster
from tests.support import toolchain
from tests.support.apache_proxy import ApacheProxy
from tests.support.own_servers import OwnProxy
from tests.support.ports import LOOPBACK, free_port
from tests.support.requirements import built_or_skip

BROKER_SETTINGS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
}
PROXY_SETTINGS = {
    "minInvisibleTimeMillsForRecv": 1000,
    "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
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
