"""kill -9 of proxy, broker and consumers under load of gRPC clients.

No accepted message is lost, an acknowledged one is not redelivered, and message groups stay in order.
Two rounds for each victim; RMQ_CRASH_ROUNDS sets their number (`make test-crash`: 50).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pytest

from rmq_client.admin import Admin
from tests.crash.brokers import SMALL_FILES
from tests.crash.directory import check_directory
from tests.crash.grpc_ledger import GrpcLedger, channel_to, check_nothing_is_lost, check_order, events
from tests.support.grpc_client import GrpcClient
from tests.support.own_servers import OwnBroker, OwnNamesrv, OwnProxy
from tests.support.processes import ServerProcess
from tests.support.waiting import until

_ROUNDS: Final = int(os.environ.get("RMQ_CRASH_ROUNDS", "2"))
# A busy machine takes long to start a process.
_WAIT_SECONDS: Final = 90.0
_SENDS: Final = 40
_RECEIPTS: Final = 20
_NORMAL, _FIFO = "Normal", "Fifo"
_MESSAGE_GROUPS: Final = ("a", "b", "c")
_PROXY: Final = {
    "minInvisibleTimeMillsForRecv": "0",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "0",
}

_Server = TypeVar("_Server", OwnNamesrv, OwnBroker, OwnProxy)


@dataclass(slots=True)
class _Consumers:
    """A consumer process of each topic."""

    address: str
    folder: Path
    processes: dict[str, ServerProcess]

    def start(self, topic: str) -> None:
        words = ["tests.crash.grpc_consumer", self.address, f"Group{topic}", topic, str(self.file(topic))]
        self.processes[topic] = ServerProcess(
            [sys.executable, "-m", *words], log_path=self.folder / f"{topic}.out"
        )

    def file(self, topic: str) -> Path:
        return self.folder / f"{topic}.events"

    def count(self, topic: str, what: str) -> int:
        return sum(event == what for event, _ in events(self.file(topic)))

    async def until(self, topic: str, what: str, count: int) -> None:
        await until(lambda: self.count(topic, what) >= count, _WAIT_SECONDS)

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()

    def restart(self) -> None:
        for topic in (_NORMAL, _FIFO):
            self.start(topic)


@asynccontextmanager
async def _consumers(address: str, folder: Path) -> AsyncIterator[_Consumers]:
    consumers = _Consumers(address, folder, {})
    try:
        consumers.restart()
        # A group begins at the end of a queue: its first receive must come before the messages.
        for topic in (_NORMAL, _FIFO):
            await consumers.until(topic, "ready", 1)
        yield consumers
    finally:
        consumers.kill()


@asynccontextmanager
async def _load(address: str) -> AsyncIterator[GrpcLedger]:
    """Producers that send until the end of the block."""
    async with channel_to(address) as channel:
        ledger = GrpcLedger(GrpcClient(channel, "producer", "5.0.7"))
        tasks = [asyncio.create_task(ledger.produce(_NORMAL, f"n{number}")) for number in range(2)]
        tasks += [asyncio.create_task(ledger.produce_in_order(_FIFO, name)) for name in _MESSAGE_GROUPS]
        try:
            yield ledger
        finally:
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome


@pytest.mark.timeout(400 + 120 * _ROUNDS)
@pytest.mark.parametrize("victim", ["proxy", "broker", "consumers"])
async def test_kill_9_of(victim: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        namesrv = await _started(stack, OwnNamesrv())
        home = tmp_path / "broker"
        broker = await _started(stack, OwnBroker(namesrv.address, home=home, settings=SMALL_FILES))
        proxy = await _started(stack, OwnProxy(namesrv.address, settings=_PROXY))
        async with Admin(namesrv.address) as admin:
            await admin.create_topic(_NORMAL, queues=4)
            await admin.create_topic(_FIFO, queues=2, attributes={"+message.type": "FIFO"})
            await admin.create_group(f"Group{_NORMAL}")
            await admin.create_group(f"Group{_FIFO}", ordered=True)
        consumers = await stack.enter_async_context(_consumers(proxy.address, tmp_path))
        async with _load(proxy.address) as ledger:
            await _progress(ledger, consumers)
            for _ in range(_ROUNDS):
                if victim == "consumers":
                    consumers.kill()
                    consumers.restart()
                else:
                    server: OwnProxy | OwnBroker = proxy if victim == "proxy" else broker
                    server.kill()
                    await server.start(_WAIT_SECONDS)
                await _progress(ledger, consumers)
        for topic, prefix in ((_NORMAL, "n"), (_FIFO, "")):
            wanted = {body for body in ledger.accepted if (body[0] == "n") == (topic == _NORMAL)}
            await until(_all_received(consumers.file(topic), wanted), _WAIT_SECONDS)
            seen = events(consumers.file(topic))
            if topic == _NORMAL:
                check_nothing_is_lost(ledger, seen, prefix)
            else:
                check_order(seen)
        assert not proxy.logged_errors(), "\n".join(proxy.logged_errors())
        consumers.kill()
        await proxy.stop()
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)


async def _started(stack: AsyncExitStack, server: _Server) -> _Server:
    """Start a daemon on a machine that may be busy; the stack kills it."""
    stack.callback(server.close)
    await server.start(_WAIT_SECONDS)
    return server


async def _progress(ledger: GrpcLedger, consumers: _Consumers) -> None:
    """Wait until messages of both topics were accepted and acknowledged."""
    accepted = len(ledger.accepted) + _SENDS
    await until(lambda: len(ledger.accepted) >= accepted, _WAIT_SECONDS)
    for topic in (_NORMAL, _FIFO):
        count = consumers.count(topic, "acknowledged") + _RECEIPTS
        await consumers.until(topic, "acknowledged", count)


def _all_received(file: Path, wanted: set[str]) -> Callable[[], bool]:
    return lambda: wanted <= {body for what, body in events(file) if what == "received"}
