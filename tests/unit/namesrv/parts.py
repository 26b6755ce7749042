"""Parts of a name server for its unit tests: a clock, connected tables, a broker's registration."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from rmq_namesrv.brokers import BrokerTable
from rmq_namesrv.config import NamesrvSettings
from rmq_namesrv.liveness import BrokerIdentity, LiveBrokers
from rmq_namesrv.registration_body import RegisteredTopics
from rmq_namesrv.registry import BrokerRegistry, MasterOf
from rmq_namesrv.route_bodies import RouteBodies
from rmq_namesrv.routes import QueueNumbers, RouteTable
from rmq_namesrv.slices import run_to_end
from rmq_namesrv.smallest_id import MinBrokerChange
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.connection import Connection

EIGHT_QUEUES = QueueNumbers(perm=6, read_queue_nums=8, write_queue_nums=8, topic_sys_flag=0)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def settings(**keys: object) -> NamesrvSettings:
    """Return settings by Apache's keys, the others with their defaults."""
    return NamesrvSettings.model_validate(keys)


def identity(name: str = "broker-a", broker_id: int = 0, **others: object) -> BrokerIdentity:
    """Return a broker of DefaultCluster; by default its address consists of name and id."""
    members: dict[str, object] = {
        "cluster": "DefaultCluster",
        "address": f"{name}-{broker_id}:10911",
        "ha_address": f"{name}-{broker_id}:10912",
        **others,
    }
    return BrokerIdentity(name=name, broker_id=broker_id, **members)  # type: ignore[arg-type]


def registered(
    topics: Mapping[str, QueueNumbers] | None = None,
    *,
    counter: int = 1,
    state_version: int = 0,
    mappings: Mapping[str, TopicQueueMappingInfo] | None = None,
) -> RegisteredTopics:
    """Return a registration: by default of the broker's own topic, its cluster's and TopicTest."""
    return RegisteredTopics(
        DataVersion(counter=counter, state_version=state_version, timestamp=1_700_000_000_000),
        {"DefaultCluster": EIGHT_QUEUES, "TopicTest": EIGHT_QUEUES} if topics is None else topics,
        mappings or {},
    )


class Tables:
    """The tables of a name server and its registry, without connections and timers."""

    def __init__(self, **keys: object) -> None:
        self.clock = Clock()
        self.settings = settings(**keys)
        self.routes = RouteTable()
        self.brokers = BrokerTable()
        self.live = LiveBrokers(self.clock)
        self.notified: list[MinBrokerChange] = []
        self.registry = BrokerRegistry(
            self.routes, self.brokers, self.live, self.settings, self.notified.append
        )
        self.bodies = RouteBodies(self.routes, self.brokers, self.settings)

    def register(
        self,
        broker: BrokerIdentity,
        topics: RegisteredTopics | None = None,
        connection: Connection | None = None,
        fingerprint: bytes = b"",
    ) -> MasterOf:
        """Run a registration to its end."""
        steps = self.registry.register(broker, connection, topics or registered(), fingerprint)
        return run_to_end(steps)

    def numbers(self, topic: str, name: str = "broker-a") -> QueueNumbers | None:
        """Return the numbers of a topic's queues on a broker name."""
        route = self.routes.get(topic)
        queues = None if route is None else route.queues.get(name)
        return None if queues is None else queues.numbers

    def perm(self, topic: str, name: str = "broker-a") -> int | None:
        """Return the permission of a topic on a broker name."""
        numbers = self.numbers(topic, name)
        return None if numbers is None else numbers.perm

    def route(self, topic: str, **options: object) -> dict[str, object] | None:
        """Return the decoded response to a route request."""
        body = self.bodies.get(topic, standard=True, **options)  # type: ignore[arg-type]
        return None if body is None else orjson.loads(body)

    def addresses(self, topic: str) -> dict[str, dict[str, str]]:
        """Return the brokers' addresses in that response, by broker name and id."""
        answer = self.route(topic)
        assert answer is not None
        brokers = answer["brokerDatas"]
        assert isinstance(brokers, list)
        return {broker["brokerName"]: broker["brokerAddrs"] for broker in brokers}
