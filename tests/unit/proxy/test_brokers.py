"""Routes that are asked for again: deleted topics, and topics whose brokers are away."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rmq_client.errors import TopicNotFound, UnreachableError
from rmq_client.network.name_servers import NameServers
from rmq_proxy.brokers import Brokers
from rmq_proxy.settings import ProxySettings
from rmq_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.support.waiting import loop_passes

_ADDRESS = "127.0.0.1:1"


class _NameServers:
    """Knows the topics of one broker. Each broker has a topic of its own name."""

    def __init__(self) -> None:
        self.topics = {"T", "broker-a"}
        self.failure: Exception | None = None

    async def topic_route_body(self, topic: str) -> TopicRouteData:
        if self.failure is not None:
            raise self.failure
        if topic not in self.topics:
            raise TopicNotFound(f"topic {topic} has no route")
        broker = BrokerData(broker_name="broker-a", broker_addrs={0: _ADDRESS})
        queues = QueueData(broker_name="broker-a", perm=6, read_queue_nums=1, write_queue_nums=1)
        return TopicRouteData(broker_datas=[broker], queue_datas=[queues])


@pytest.fixture
def name_servers() -> _NameServers:
    return _NameServers()


@pytest.fixture
async def brokers(name_servers: _NameServers) -> Brokers:
    """Brokers whose route of T is known."""
    created = Brokers(cast(Any, None), cast(NameServers, name_servers), ProxySettings())
    await created.route("T")
    return created


async def _refresh(brokers: Brokers) -> None:
    brokers.lost(_ADDRESS)
    await brokers.route("T")  # the known one, while the new one is asked for
    await loop_passes(5)


async def test_the_route_of_a_deleted_topic_is_dropped(brokers: Brokers, name_servers: _NameServers) -> None:
    name_servers.topics.discard("T")
    await _refresh(brokers)
    with pytest.raises(TopicNotFound):
        await brokers.route("T")
    name_servers.topics.add("T")
    assert (await brokers.route("T")).write_queues


async def test_the_route_of_a_topic_whose_brokers_are_away_stays(
    brokers: Brokers, name_servers: _NameServers
) -> None:
    """A broker that restarts is back soon, and receipts name it."""
    name_servers.topics.clear()
    await _refresh(brokers)
    assert (await brokers.route("T")).master("broker-a") == _ADDRESS


async def test_a_route_stays_while_no_name_server_answers(
    brokers: Brokers, name_servers: _NameServers
) -> None:
    name_servers.failure = UnreachableError("no name server")
    await _refresh(brokers)
    assert (await brokers.route("T")).write_queues
