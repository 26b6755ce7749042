"""A proxy in this process, on a free port. (As a process of its own: `own_servers`.)"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.proxy import Proxy
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.ports import LOOPBACK

# Receives are held, and messages are invisible, for as short as a test likes.
_SHORT_TIMES = {"minInvisibleTimeMillsForRecv": 0, "grpcClientConsumerMinLongPollingTimeoutMillis": 0}


@asynccontextmanager
async def running_proxy(namesrv_address: str, **keys: Any) -> AsyncIterator[Proxy]:
    """A running proxy of a cluster; `keys` are settings by Apache's keys."""
    chosen = {
        "grpcServerPort": 0,
        "remotingListenPort": 0,
        "bindAddress": LOOPBACK,
        "grpcShutdownTimeSeconds": 1,
        "metricsExporterType": "DISABLE",
        **_SHORT_TIMES,
        **keys,
    }
    settings = ProxyDaemonSettings.model_validate({"namesrvAddr": namesrv_address, **chosen})
    deaths: list[str] = []
    supervisor = TaskSupervisor(lambda name, error: deaths.append(f"{name}: {error!r}"))
    proxy = Proxy(settings, supervisor)
    try:
        await proxy.start()
        yield proxy
    finally:
        await proxy.stop()
        await supervisor.stop()
    assert not deaths, deaths


def remoting_port(proxy: Proxy) -> int:
    """Return the port for remoting clients."""
    return int(proxy.remoting_address.rpartition(":")[2])
