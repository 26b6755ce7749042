"""Shares of a group: requests, and failures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rmq_client.consumer.rebalancing.allocation import Allocation, averagely
from rmq_client.consumer.rebalancing.rebalance import ClientRebalance
from rmq_client.consumer.rebalancing.share import Share
from rmq_client.errors import BrokerUnreachable, NameServerUnreachable, TopicNotFound
from rmq_client.network.routing import TopicRoute
from rmq_remoting.message_queue import MessageQueue

_QUEUES = tuple(MessageQueue("T", name, number) for name in ("a", "b") for number in range(2))
_ROUTE = TopicRoute("T", _QUEUES, _QUEUES, {"a": {0: "a:1"}, "b": {0: "b:1"}})


class _Cluster:
    """Route table, broker and application at once."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {"a:1": ["me", "other"], "b:1": ["me", "other"]}
        self.failure: Exception | None = None
        self.announced = 0
        self.route_failures = 0

    async def route(self, topic: str) -> TopicRoute:
        if self.failure is not None:
            raise self.failure
        return _ROUTE

    def request_failed(self, topic: str) -> None:
        self.route_failures += 1

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        if address not in self.ids:
            raise BrokerUnreachable(f"{address} is down")
        return self.ids[address]

    async def announce(self) -> None:
        self.announced += 1

    async def share(self, topic: str = "T", allocation: Allocation | None = averagely) -> Share | None:
        rebalancer = ClientRebalance(
            "g",
            "me",
            routes=self,  # type: ignore[arg-type]
            api=self,  # type: ignore[arg-type]
            allocation=allocation,
            announce=self.announce,
        )
        return await rebalancer.share(topic)


async def test_a_share_of_all_queues_in_their_order() -> None:
    assert await _Cluster().share() == Share(frozenset(_QUEUES[:2]), sole_member=False)


async def test_a_sole_member_gets_all_queues() -> None:
    cluster = _Cluster()
    cluster.ids = {"a:1": ["me"], "b:1": ["me"]}
    assert await cluster.share() == Share(frozenset(_QUEUES), sole_member=True)


async def test_the_share_is_requested_from_any_broker() -> None:
    for gone in ("a:1", "b:1"):
        cluster = _Cluster()
        del cluster.ids[gone]
        for _ in range(10):
            assert await cluster.share() is not None
        assert cluster.route_failures == 0


async def test_no_broker_answers_and_the_share_is_unknown() -> None:
    cluster = _Cluster()
    cluster.ids = {}
    assert await cluster.share() is None
    assert cluster.route_failures == 1
    for failure in (TopicNotFound("no T"), NameServerUnreachable("down")):
        cluster.failure = failure
        assert await cluster.share() is None


async def test_an_unknown_consumer_triggers_a_heartbeat() -> None:
    cluster = _Cluster()
    cluster.ids = {"a:1": ["other"], "b:1": ["other"]}
    assert await cluster.share() is None, "queues are not given up for that"
    assert cluster.announced == 1


async def test_broadcasting_takes_all_queues_without_a_request() -> None:
    cluster = _Cluster()
    cluster.ids = {}
    assert await cluster.share(allocation=None) == Share(frozenset(_QUEUES), sole_member=True)


async def test_a_missing_retry_topic_has_an_empty_share() -> None:
    cluster = _Cluster()
    cluster.failure = TopicNotFound("no retries")
    assert await cluster.share("%RETRY%g") == Share(frozenset(), sole_member=True)
    assert await cluster.share("T") is None


async def test_a_failing_strategy_keeps_the_assignment(caplog: pytest.LogCaptureFixture) -> None:
    def fail(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        raise RuntimeError("no idea")

    assert await _Cluster().share(allocation=fail) is None
    assert "allocation strategy failed" in caplog.text
