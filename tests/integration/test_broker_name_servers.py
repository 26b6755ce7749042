"""A broker that is cut off from its name servers, with clients that know it already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_broker.registration.metrics import RegistrationCollector
from rmq_broker.registration.registrar import NameServerLink
from rmq_client import ClientSettings, Message, Producer, PullConsumer
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.broker_load import read_all
from tests.support.broker_requests import create_topic, request, send, sent, succeeded
from tests.support.brokers import RunningBroker, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client
from tests.support.waiting import until

# The clients ask for routes all the time, so that they learn of each change.
_SETTINGS = ClientSettings(route_refresh_seconds=0.02)


class _Clients:
    """A producer and a consumer that work without a pause; they reach the name server directly."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(address, group="g", settings=_SETTINGS)
        self._consumer = PullConsumer(address, group="c", consume_from="first", settings=_SETTINGS)
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged: list[bytes] = []
        self.consumed: list[bytes] = []

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Work during the block; the first failure of a client fails the test."""
        async with self._producer, self._consumer:
            await self._consumer.subscribe("T")
            self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._consume())]
            try:
                yield
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(self._tasks)
            for task in self._tasks:
                assert task.cancelled() or task.exception() is None, task.exception()

    async def worked(self) -> None:
        """Wait until each has done some more, or has failed."""
        sent, consumed = len(self.acknowledged) + 20, len(self.consumed) + 20
        await until(
            lambda: (
                any(task.done() for task in self._tasks)
                or (len(self.acknowledged) >= sent and len(self.consumed) >= consumed)
            )
        )
        for task in self._tasks:
            assert not task.done(), task.exception()

    async def _send(self) -> None:
        while True:
            body = b"%d" % len(self.acknowledged)
            await self._producer.send(Message("T", body))
            self.acknowledged.append(body)
            await asyncio.sleep(0.001)

    async def _consume(self) -> None:
        while True:
            messages = await self._consumer.poll(timeout_seconds=1)
            self.consumed += [message.body for message in messages]


@asynccontextmanager
async def _cut_able(folder: Path) -> AsyncIterator[tuple[RunningBroker, list[FaultProxy], list[Namesrv]]]:
    """A broker that reaches two name servers through a proxy each."""
    async with (
        running_namesrv(folder / "n0") as first,
        running_namesrv(folder / "n1") as second,
        fault_proxy(LOOPBACK, first.port) as to_first,
        fault_proxy(LOOPBACK, second.port) as to_second,
    ):
        addresses = f"{to_first.address};{to_second.address}"
        async with running_broker(folder, namesrvAddr=addresses) as broker, broker.client() as client:
            await until(lambda: all(link.is_registered for link in _links(broker)))
            succeeded(await client.ask(create_topic("T", 2)))
            yield broker, [to_first, to_second], [first, second]


def _links(broker: RunningBroker) -> list[NameServerLink]:
    return broker.broker.registrar.links


def _registered(broker: RunningBroker) -> list[object]:
    """The states of registration in the metrics."""
    family = next(iter(RegistrationCollector(broker.broker.registrar).collect()))
    assert family.name == "rmq_name_server_registered"
    return [value for _, value in family.series]


def _cut(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut()


async def _until_dropped(name_server: Namesrv) -> None:
    """Wait until a name server answers that the topic does not exist."""
    async with asyncio.timeout(20), raw_client(name_server.port) as client:
        asked = {"topic": "T"}
        while True:
            answer = await client.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, **asked))
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "rmq.broker.registration" and record.levelname in ("WARNING", "ERROR")
    ]


async def test_clients_that_know_the_broker_go_on_without_name_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _cut_able(tmp_path) as (broker, proxies, name_servers):
        clients = _Clients(name_servers[0].address)
        async with clients.working():
            await clients.worked()
            for proxy in proxies:
                _cut(proxy)
            await until(lambda: _registered(broker) == [0, 0])
            for name_server in name_servers:
                await _until_dropped(name_server)
            await clients.worked()
            await until(lambda: all(link.failures >= 3 for link in _links(broker)))
            await clients.worked()
            for proxy in proxies:
                await proxy.listen()
            await until(lambda: _registered(broker) == [1, 1], timeout_seconds=10)
            await clients.worked()
        stored = await read_all(broker.port, [("T", 0), ("T", 1)])
        assert set(clients.acknowledged) <= {message.body for queue in stored.values() for message in queue}
    assert len(_warnings(caplog)) == len(proxies), "one for each name server, however often it is tried"


async def test_one_of_two_name_servers_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with _cut_able(tmp_path) as (broker, proxies, name_servers), broker.client() as client:
        clients = _Clients(";".join(name_server.address for name_server in name_servers))
        async with clients.working():
            _cut(proxies[0])
            await until(lambda: _registered(broker) == [0, 1])
            await _until_dropped(name_servers[0])
            # A new topic is known to the other one when its creation is answered.
            succeeded(await client.ask(create_topic("New", 1)))
            async with raw_client(name_servers[1].port) as asker:
                succeeded(await asker.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="New")))
            await clients.worked()
            await proxies[0].listen()
            await until(lambda: _registered(broker) == [1, 1], timeout_seconds=10)
            async with raw_client(name_servers[0].port) as asker:
                succeeded(await asker.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="New")))
            await clients.worked()
    (warning,) = _warnings(caplog)
    assert proxies[0].address in warning


async def test_a_name_server_that_answers_nothing(tmp_path: Path) -> None:
    """Its connection stays open: the broker gives it up by the time-out of a registration."""
    async with _cut_able(tmp_path) as (broker, proxies, _):
        broker.change(registerBrokerTimeoutMills=200)
        accepted = proxies[0].accepted
        proxies[0].stall()
        broker.topics.next_data_version()
        await until(lambda: _registered(broker) == [0, 1])
        await until(lambda: proxies[0].accepted > accepted)
        proxies[0].resume()
        await until(lambda: _registered(broker) == [1, 1], timeout_seconds=10)


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_the_first_send_to_a_topic_is_answered_once_the_topic_has_a_route(
    tmp_path: Path, queue_id: int
) -> None:
    async with (
        running_namesrv(tmp_path) as name_server,
        fault_proxy(LOOPBACK, name_server.port) as proxy,
        running_broker(tmp_path, namesrvAddr=proxy.address) as broker,
        broker.client() as client,
        broker.client() as other,
        raw_client(name_server.port) as asker,
    ):
        await until(lambda: all(link.is_registered for link in _links(broker)))
        proxy.stall()
        first = asyncio.create_task(client.ask(send("New", b"first", queue_id=queue_id)))
        await until(lambda: "New" in broker.topics)
        # The topic exists, so the next send does not wait.
        assert sent(await other.ask(send("New", b"second"))).queue_id == 0
        asked = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="New")
        assert (await asker.ask(asked)).code == ResponseCode.TOPIC_NOT_EXIST
        assert not first.done()
        proxy.resume()
        sent(await first)
        succeeded(await asker.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="New")))


async def test_a_first_send_is_answered_before_a_silent_name_server_is_given_up(
    tmp_path: Path,
) -> None:
    async with (
        running_namesrv(tmp_path) as name_server,
        fault_proxy(LOOPBACK, name_server.port) as proxy,
        running_broker(tmp_path, namesrvAddr=proxy.address) as broker,
        broker.client() as client,
    ):
        await until(lambda: all(link.is_registered for link in _links(broker)))
        proxy.stall()
        sent(await client.ask(send("New", b"first")))
        assert _registered(broker) == [1], "the registration has not failed yet"
