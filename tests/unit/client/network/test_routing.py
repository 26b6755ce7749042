"""Routes: decoding of a name server's answer, and the cache."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rmq_client.errors import NameServerUnreachable, TopicNotFound
from rmq_client.network.plain_answers import AddressesOfBroker, QueuesOnBroker, RouteData
from rmq_client.network.routing import RouteTable, provisional_route, topic_route
from rmq_remoting.message_queue import MessageQueue


def _data(queues: int = 2, perm: int = 6, order: str | None = None) -> RouteData:
    return RouteData(
        broker_datas=[
            AddressesOfBroker(broker_name="b", broker_addrs={0: "b:1", 1: "b:2"}),
            AddressesOfBroker(broker_name="a", broker_addrs={0: "a:1"}),
            AddressesOfBroker(broker_name="slave-only", broker_addrs={3: "s:1", 2: "s:2"}),
        ],
        queue_datas=[
            QueuesOnBroker(broker_name="b", perm=perm, read_queue_nums=queues, write_queue_nums=1),
            QueuesOnBroker(broker_name="a", perm=4, read_queue_nums=1, write_queue_nums=1),
            QueuesOnBroker(broker_name="slave-only", perm=6, read_queue_nums=1, write_queue_nums=1),
            QueuesOnBroker(broker_name="unknown", perm=2, read_queue_nums=1, write_queue_nums=1),
        ],
        order_topic_conf=order,
    )


def _names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_queues_by_permission_and_brokers_by_id() -> None:
    route = topic_route("T", _data())
    assert _names(route.write_queues) == ["b:0"]
    assert _names(route.read_queues) == ["a:0", "b:0", "b:1", "slave-only:0"]
    assert route.broker_address("b") == "b:1"
    assert route.broker_address("b", 1) == "b:2"
    assert route.broker_address("b", 9) == "b:1"
    assert route.broker_address("slave-only") == "s:2"
    assert route.broker_address("unknown") is None
    assert route.is_master("b", "b:1")
    assert not route.is_master("b", "b:2")
    assert not route.is_master("slave-only", "s:2")
    assert not route.is_master("unknown", "b:1")


def test_ordered_topics_have_fixed_queues() -> None:
    route = topic_route("T", _data(order="b:2;gone:1;bad;:3"))
    assert _names(route.write_queues) == ["b:0", "b:1", "gone:0"]


def test_lock_answers_may_be_in_any_order() -> None:
    data = _data()
    turned = replace(data, queue_datas=data.queue_datas[::-1], broker_datas=data.broker_datas[::-1])
    assert topic_route("T", data).same_as(topic_route("T", turned))
    assert not topic_route("T", data).same_as(topic_route("T", _data(queues=3)))


def test_new_topics_get_no_more_queues_than_wanted() -> None:
    template = RouteData(
        broker_datas=[AddressesOfBroker(broker_name="b", broker_addrs={0: "b:1"})],
        queue_datas=[QueuesOnBroker(broker_name="b", perm=7, read_queue_nums=8, write_queue_nums=8)],
    )
    route = provisional_route("New", template, 3)
    assert (_names(route.write_queues), route.read_queues) == (["b:0", "b:1", "b:2"], ())
    assert route.provisional


class _NameServers:
    """Answers from a dictionary, and counts requests."""

    def __init__(self) -> None:
        self.topics: dict[str, RouteData] = {}
        self.handle_check: list[str] = []
        self.down = False

    async def topic_route(self, topic: str) -> RouteData:
        self.handle_check.append(topic)
        await asyncio.sleep(0.1)
        if self.down:
            raise NameServerUnreachable("down")
        if topic not in self.topics:
            raise TopicNotFound(f"no {topic}")
        return self.topics[topic]


def _table() -> tuple[_NameServers, RouteTable]:
    servers = _NameServers()
    return servers, RouteTable(servers, refresh_seconds=30.0)  # type: ignore[arg-type]


@pytest.mark.virtual_time
async def test_concurrent_route_requests_share_the_answer() -> None:
    servers, table = _table()
    servers.topics["T"] = _data()
    routes = await asyncio.gather(*(table.route("T") for _ in range(10)))
    assert servers.handle_check == ["T"]
    assert all(route is routes[0] for route in routes)
    assert await table.route("T") is routes[0]
    assert await table.refresh("T") is routes[0], "nothing has changed"
    assert servers.handle_check == ["T"] * 2


@pytest.mark.virtual_time
async def test_a_cancelled_wait_does_not_stop_the_acknowledgement() -> None:
    servers, table = _table()
    servers.topics["T"] = _data()
    first, second = asyncio.ensure_future(table.route("T")), asyncio.ensure_future(table.route("T"))
    await asyncio.sleep(0.01)
    first.cancel()
    assert (await second).topic == "T"


@pytest.mark.virtual_time
async def test_route_changes_are_reported() -> None:
    servers, table = _table()
    servers.topics["T"] = _data()
    changed: list[str] = []
    table.on_change.append(changed.append)
    keeper = asyncio.ensure_future(table.keep_refreshing())
    before = await table.route("T")
    await asyncio.sleep(61)
    assert changed == ["T"]
    assert len(servers.handle_check) == 3
    servers.topics["T"] = _data(queues=5)
    await asyncio.sleep(31)
    assert changed == ["T", "T"]
    assert table.existing["T"] is table.publishable["T"] is not before
    assert table.brokers()["b"] == {0: "b:1", 1: "b:2"}
    keeper.cancel()
    await table.stop()


@pytest.mark.virtual_time
async def test_a_known_route_stays_while_name_servers_are_down(caplog: pytest.LogCaptureFixture) -> None:
    servers, table = _table()
    servers.topics["T"] = _data()
    route = await table.route("T")
    servers.down = True
    table.request_failed("T")
    await asyncio.sleep(1)
    assert table.existing["T"] is route
    assert "route not refreshed topic=T cause=down" in caplog.text
    servers.down = False
    del servers.topics["T"]
    table.request_failed("T")
    await asyncio.sleep(1)
    assert table.existing["T"] is route
    assert "its last known route stays in use" in caplog.text


@pytest.mark.virtual_time
async def test_a_provisional_route_has_the_template_brokers() -> None:
    servers, table = _table()
    with pytest.raises(TopicNotFound, match="no New"):
        await table.route_to_publish("New", 4)
    servers.topics["TBW102"] = _data()
    route = await table.route_to_publish("New", 4)
    assert route.provisional
    assert await table.route_to_publish("New", 4) is route
    with pytest.raises(TopicNotFound):
        await table.route("New")
    keeper = asyncio.ensure_future(table.keep_refreshing())
    servers.topics["New"] = _data()
    await asyncio.sleep(2.5)
    assert not table.publishable["New"].provisional
    assert "New" in table.existing
    keeper.cancel()
    await table.stop()


@pytest.mark.virtual_time
async def test_missing_topics_are_not_requested_repeatedly() -> None:
    servers, table = _table()
    keeper = asyncio.ensure_future(table.keep_refreshing())
    with pytest.raises(TopicNotFound):
        await table.route("Nowhere")
    table.watch("Awaited")
    await asyncio.sleep(95)
    assert servers.handle_check == ["Nowhere", "Awaited", "Awaited", "Awaited"]
    keeper.cancel()
    await table.stop()
