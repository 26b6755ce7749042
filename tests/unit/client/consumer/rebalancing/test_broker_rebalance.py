"""Shares assigned by brokers: requests and answers."""

from __future__ import annotations

from rmq_client.consumer.rebalancing.allocation import by_circle
from rmq_client.consumer.rebalancing.broker_rebalance import BrokerRebalance
from rmq_client.consumer.rebalancing.share import Share
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.errors import BrokerUnreachable, TopicNotFound
from rmq_client.network.routing import TopicRoute
from rmq_remoting.bodies.assignment import MessageQueueAssignment, MessageRequestMode
from rmq_remoting.message_queue import MessageQueue

_QUEUES = [MessageQueue("T", "a", number) for number in range(2)]


class _Cluster:
    """Route table, broker and application at once."""

    def __init__(self) -> None:
        self.assignments_of: dict[str, list[MessageQueueAssignment] | None] = {"a:1": [], "b:1": []}
        self.exists = True
        self.asked: list[tuple[str, str]] = []
        self.announced = 0
        self.route_failures = 0

    async def route(self, topic: str) -> TopicRoute:
        if not self.exists:
            raise TopicNotFound(f"no topic {topic}")
        return TopicRoute(topic, (), (), {"a": {0: "a:1"}, "b": {0: "b:1"}})

    def request_failed(self, topic: str) -> None:
        self.route_failures += 1

    async def assignments(
        self, address: str, topic: str, client_id: str, strategy_name: str
    ) -> list[MessageQueueAssignment] | None:
        if address not in self.assignments_of:
            raise BrokerUnreachable(f"{address} is down")
        self.asked.append((client_id, strategy_name))
        return self.assignments_of[address]

    async def announce(self) -> None:
        self.announced += 1

    async def share(self, topic: str = "T") -> Share | None:
        shares = BrokerRebalance(
            "g",
            "me",
            routes=self,  # type: ignore[arg-type]
            client=self,  # type: ignore[arg-type]
            allocation=by_circle,
            announce=self.announce,
        )
        return await shares.share(topic)


def _assigned(queue: MessageQueue, mode: MessageRequestMode) -> MessageQueueAssignment:
    return MessageQueueAssignment(message_queue=queue, mode=mode)


async def test_assignments_contain_queues_to_pull_and_sources_to_pop() -> None:
    cluster = _Cluster()
    answer = [
        _assigned(_QUEUES[0], MessageRequestMode.PULL),
        _assigned(MessageQueue("T", "b", -1), MessageRequestMode.POP),
        MessageQueueAssignment(),
    ]
    cluster.assignments_of = {"a:1": answer, "b:1": answer}
    share = await cluster.share()
    assert share == Share(
        frozenset(_QUEUES[:1]), sole_member=False, sources=frozenset({PopSource("T", "b", -1)})
    )
    assert cluster.asked == [("me", "AVG_BY_CIRCLE")]


async def test_member_ids_are_requested_from_any_broker() -> None:
    cluster = _Cluster()
    del cluster.assignments_of["a:1"]
    assert await cluster.share() == Share(frozenset(), sole_member=False)
    del cluster.assignments_of["b:1"]
    assert await cluster.share() is None
    assert cluster.route_failures == 1


async def test_a_missing_subscription_triggers_a_heartbeat() -> None:
    cluster = _Cluster()
    cluster.assignments_of = {"a:1": None, "b:1": None}
    assert await cluster.share() is None
    assert cluster.announced == 1


async def test_a_missing_topic_has_no_share() -> None:
    cluster = _Cluster()
    cluster.exists = False
    assert await cluster.share() is None
    assert await cluster.share("%RETRY%g") == Share(frozenset(), sole_member=True), (
        "no message was sent back so far"
    )
