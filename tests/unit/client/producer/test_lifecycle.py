"""A producer that cannot start undoes its own steps, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import Message, Producer, Tracing, TransactionState
from rmq_client.network.instance import ClientInstance
from rmq_client.producer.transactions import Transactions
from rmq_client.trace.tracer import Tracer
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.waiting import until


def _check(message: object) -> TransactionState:
    return TransactionState.COMMIT


def _second(cluster: RunningCluster) -> Producer:
    return Producer(cluster.address, group="g", check_transaction=_check, trace=Tracing())


def _unregistered(cluster: RunningCluster) -> int:
    """Return how often the group was unregistered from the broker."""
    requests = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
    return [request.ext_fields["producerGroup"] for request in requests].count("g")


@asynccontextmanager
async def _with_first(folder: Path) -> AsyncIterator[RunningCluster]:
    """A cluster and the first producer of the group, which ends as the last one."""
    async with running_cluster(folder) as cluster:
        async with Producer(cluster.address, group="g", check_transaction=_check) as first:
            await first.send(Message("T", b"before"))
            yield cluster
            assert _unregistered(cluster) == 0
            await first.send(Message("T", b"after"))
        assert _unregistered(cluster) == 1
        assert cluster.broker.connections == set()


async def test_an_early_start_failure_keeps_the_groups_other_producers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fails(self: Tracer) -> None:
        raise RuntimeError("no tracer")

    monkeypatch.setattr(Tracer, "start", fails)
    async with _with_first(tmp_path) as cluster:
        with pytest.raises(RuntimeError, match="no tracer"):
            await _second(cluster).start()


async def test_a_late_start_failure_is_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with _with_first(tmp_path) as cluster:
        add_producer = ClientInstance.add_producer

        async def fails(self: ClientInstance, group: str) -> None:
            await add_producer(self, group)
            if group == "g":
                raise RuntimeError("no more")

        monkeypatch.setattr(ClientInstance, "add_producer", fails)
        with pytest.raises(RuntimeError, match="no more"):
            await _second(cluster).start()


@pytest.mark.parametrize("reached", [Tracer, Transactions, ClientInstance])
async def test_a_cancelled_start_is_undone(
    monkeypatch: pytest.MonkeyPatch, reached: type, tmp_path: Path
) -> None:
    name = {Tracer: "start", Transactions: "start", ClientInstance: "add_producer"}[reached]
    here = asyncio.get_running_loop()
    async with _with_first(tmp_path) as cluster:
        original, starting = getattr(reached, name), list[asyncio.Task[None]]()
        has_ended = threading.Event()

        async def cancelled(self: object, *arguments: str) -> None:
            await original(self, *arguments)
            if arguments in ((), ("g",)):
                here.call_soon_threadsafe(starting[0].cancel)
                try:
                    await until(starting[0].cancelling)
                finally:
                    has_ended.set()

        monkeypatch.setattr(reached, name, cancelled)
        producer = _second(cluster)
        starting.append(asyncio.create_task(producer.start()))
        await asyncio.wait(starting)
        assert starting[0].cancelled()
        await until(has_ended.is_set)
        assert _unregistered(cluster) == 0
        monkeypatch.setattr(reached, name, original)
        await producer.start()
        await producer.stop()


async def test_the_last_producer_removes_its_group(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with Producer(cluster.address, group="g") as producer:
            await producer.queues("T")
            await producer.send_oneway(Message("T", b"x"))
            await until(lambda: cluster.broker.sends)
        assert _unregistered(cluster) == 1
