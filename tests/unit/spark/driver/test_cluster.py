"""The driver's view of a cluster, over real connections to an in-memory cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import TypeVar

import pytest

from pyspark_rocketmq.driver import routes
from pyspark_rocketmq.driver.cluster import Cluster, QueueState
from pyspark_rocketmq.driver.routes import Offered
from pyspark_rocketmq.errors import SourceUnavailable, StaticTopic, TopicMissing
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.retries import WaitTimeouts
from rmq_client import ClientSettings, MessageQueue, PermissionDenied, TopicNotFound, TopicRoute, Unavailable
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import BORN_MS, FakeCluster, Fault

T = TypeVar("T")

_PATIENT = WaitTimeouts(60.0, 60.0)

FIRST, SECOND = QueueKey("T", "broker-a", 0), QueueKey("T", "broker-a", 1)


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    async with FakeCluster({"broker-a": {"T": 2, "T2": 1}, "broker-b": {"T": 1}}) as cluster:
        for number in range(5):
            cluster.broker.put("T", b"%d" % number)
        cluster.broker.queues["T", 0].base = 100
        yield cluster


async def ask(
    fake: FakeCluster, question: Callable[[Cluster], T], wait_timeouts: WaitTimeouts = _PATIENT
) -> T:
    """Call a cluster object from a thread without an event loop, as a driver does."""

    def use() -> T:
        with Cluster(fake.address, ClientSettings(), wait_timeouts) as cluster:
            return question(cluster)

    return await asyncio.to_thread(use)


async def test_queues_of_topics_and_topics_of_a_pattern(fake: FakeCluster) -> None:
    queues = [FIRST, SECOND, QueueKey("T", "broker-b", 0)]
    assert await ask(fake, lambda cluster: cluster.queues(["T"])) == queues
    offered = await ask(fake, lambda cluster: cluster.offered(["T2", "T", "None"]))
    assert list(offered.queues) == [*queues, QueueKey("T2", "broker-a", 0)]
    assert offered.topics == {"T", "T2"}
    assert offered.places == {("T", "broker-a"), ("T", "broker-b"), ("T2", "broker-a")}
    for topic in ("TBW102", "%RETRY%G", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "xT"):
        fake.broker.topics[topic] = 1
    matching = await ask(fake, lambda cluster: cluster.topics_matching(re.compile("T.?|.*RETRY.*|[bD].*")))
    assert matching == ["T", "T2"]


async def test_oldest_and_newest_offsets(fake: FakeCluster) -> None:
    queues = [SECOND, FIRST]
    assert await ask(fake, lambda cluster: cluster.oldest(queues)) == {FIRST: 100, SECOND: 0}
    assert await ask(fake, lambda cluster: cluster.newest(queues)) == {FIRST: 105, SECOND: 0}
    times = {FIRST: BORN_MS, SECOND: BORN_MS + 1}
    assert await ask(fake, lambda cluster: cluster.at_times(times)) == {FIRST: 100, SECOND: 0}
    for late_ms in (BORN_MS + 1, 2**63 - 1):
        assert await ask(fake, lambda cluster: cluster.at_times({FIRST: late_ms})) == {FIRST: 105}  # noqa: B023


async def test_committed_offsets_of_a_group(fake: FakeCluster) -> None:
    assert await ask(fake, lambda cluster: cluster.commit("G", {FIRST: 103})) == {}
    assert await ask(fake, lambda cluster: cluster.committed("G", [FIRST, SECOND])) == {FIRST: 103}
    fake.broker.order(
        RequestCode.UPDATE_CONSUMER_OFFSET, Fault(code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    )
    failed = await ask(fake, lambda cluster: cluster.commit("G", {FIRST: 104}))
    assert list(failed) == [FIRST]
    assert fake.broker.offsets["G", "T", 0] == 103


async def test_transient_errors_are_retried(fake: FakeCluster) -> None:
    code = RequestCode.GET_TOPIC_STATS_INFO
    fake.broker.order(code, Fault(code=ResponseCode.SYSTEM_BUSY), Fault(cut=True))
    assert await ask(fake, lambda cluster: cluster.newest([FIRST])) == {FIRST: 105}
    assert len(fake.broker.requests(code)) == 3


async def test_unreachable_queues_are_reported_without_retries(fake: FakeCluster) -> None:
    fake.broker.order(RequestCode.GET_TOPIC_STATS_INFO, Fault(code=ResponseCode.SYSTEM_ERROR))
    other = QueueKey("T", "broker-b", 0)
    known, failed = await ask(fake, lambda cluster: cluster.states([FIRST, other]))
    assert known == {other: QueueState(0, 0)}
    assert isinstance(failed[FIRST], Unavailable)
    none = QueueKey("T", "broker-b", 7)
    assert await ask(fake, lambda cluster: list(cluster.states([none])[1])) == [none]


async def test_permanent_errors_are_raised(fake: FakeCluster) -> None:
    fake.broker.order(RequestCode.GET_TOPIC_STATS_INFO, Fault(code=ResponseCode.NO_PERMISSION))
    with pytest.raises(PermissionDenied):
        await ask(fake, lambda cluster: cluster.states([FIRST]))


async def test_one_request_per_topic_and_broker(fake: FakeCluster) -> None:
    queues = [FIRST, SECOND, QueueKey("T", "broker-b", 0), QueueKey("T2", "broker-a", 0)]
    assert len((await ask(fake, lambda cluster: cluster.states(queues)))[0]) == 4
    assert len(fake.broker.requests(RequestCode.GET_TOPIC_STATS_INFO)) == 2
    assert len(fake.brokers["broker-b"].requests(RequestCode.GET_TOPIC_STATS_INFO)) == 1


async def test_time_of_the_oldest_message(fake: FakeCluster) -> None:
    assert await ask(fake, lambda cluster: cluster.first_stored_ms([FIRST, SECOND])) == {FIRST: BORN_MS}


async def test_routes_come_from_the_cache(fake: FakeCluster) -> None:
    def poll(cluster: Cluster) -> int:
        for _ in range(5):
            cluster.topics_matching(re.compile("T.*"), fresh=False)
            cluster.offered(["T", "T2"])
        return len(fake.namesrv.seen)

    # Two routes, the list of topics, and the brokers, whose names are no topics to read.
    assert await ask(fake, poll) == 4


async def test_failed_request_puts_a_route_in_doubt(fake: FakeCluster) -> None:
    def poll(cluster: Cluster) -> tuple[Offered, Offered]:
        before = cluster.offered(["T", "T2"])
        del fake.broker.topics["T"]
        del fake.broker.topics["T2"]
        assert list(cluster.states(before.queues)[1]) == [FIRST, SECOND, QueueKey("T2", "broker-a", 0)]
        return before, cluster.offered(["T", "T2"])

    before, after = await ask(fake, poll)
    assert len(before.queues) == 4
    assert list(after.queues) == [QueueKey("T", "broker-b", 0)]
    assert after.topics == {"T"}


async def test_doubted_route_is_asked_for_again(fake: FakeCluster) -> None:
    """A broker that was restarted is found at once, not with the next refresh of routes."""

    def poll(cluster: Cluster) -> tuple[Offered, Offered, Offered]:
        fake.brokers["broker-b"].listed = False
        without = cluster.offered(["T"])
        fake.brokers["broker-b"].listed = True
        cached = cluster.offered(["T"])
        cluster.doubt({"T"})
        return without, cached, cluster.offered(["T"])

    without, cached, asked = await ask(fake, poll)
    assert list(without.queues) == list(cached.queues) == [FIRST, SECOND]
    assert list(asked.queues) == [FIRST, SECOND, QueueKey("T", "broker-b", 0)]


async def test_known_route_stays_in_use_while_name_servers_are_down(fake: FakeCluster) -> None:
    def poll(cluster: Cluster) -> list[QueueKey]:
        before = cluster.offered(["T"])
        fake.broker.order(RequestCode.GET_TOPIC_STATS_INFO, Fault(cut=True))
        cluster.states(before.queues)
        fake.namesrv.order(RequestCode.GET_ROUTEINFO_BY_TOPIC, Fault(cut=True), Fault(cut=True))
        return list(cluster.offered(["T"]).queues)

    assert len(await ask(fake, poll)) == 3


async def test_static_topic_is_refused(fake: FakeCluster) -> None:
    fake.namesrv.static.add("T2")
    with pytest.raises(StaticTopic, match=r"static topics cannot be read: T2\."):
        await ask(fake, lambda cluster: cluster.queues(["T", "T2"]))
    assert await ask(fake, lambda cluster: len(cluster.queues(["T"]))) == 3


async def test_unknown_topic_is_reported_with_suggestions(fake: FakeCluster) -> None:
    fake.broker.topics["orders"] = 1
    said = (
        rf"ordres does not exist: .*{fake.address}.*broker-a, broker-b; did you mean orders\?.*topicTimeout"
    )
    with pytest.raises(TopicMissing, match=said) as raised:
        await ask(fake, lambda cluster: cluster.queues(["T", "ordres"]), WaitTimeouts(topic_seconds=0.01))
    assert isinstance(raised.value.__cause__, TopicNotFound)


async def test_new_topic_is_waited_for(fake: FakeCluster) -> None:
    unknown = Fault(code=ResponseCode.TOPIC_NOT_EXIST)
    fake.namesrv.order(RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown, unknown)
    assert await ask(fake, lambda cluster: cluster.queues(["T2"])) == [QueueKey("T2", "broker-a", 0)]


class Registering:
    """Name servers that have just been started: they know brokers and then the topic at given times of `now`
    (s).
    """

    def __init__(self, brokers_at: float, topic_at: float) -> None:
        self.now = 0.0
        self._brokers_at = brokers_at
        self._topic_at = topic_at

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def topic_route(self, topic: str) -> TopicRoute:
        if self.now < self._topic_at:
            raise TopicNotFound("no route")
        return TopicRoute(topic, (), (MessageQueue(topic, "a", 0),), {})

    async def cluster_info(self) -> SimpleNamespace:
        return SimpleNamespace(brokers={"b": 1} if self.now >= self._brokers_at else {})

    async def topics(self) -> list[str]:
        return []


@pytest.mark.parametrize("topic_at", [15, 40])
def test_time_without_brokers_does_not_count_against_a_topic(
    topic_at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Registering(11, topic_at)
    replaced = SimpleNamespace(sleep=servers.sleep, gather=asyncio.gather)
    monkeypatch.setattr(routes, "asyncio", replaced)
    cluster = Cluster("127.0.0.1:1", ClientSettings(), WaitTimeouts(120, 10), lambda: servers.now)
    monkeypatch.setattr(cluster._routes, "_admin", servers)
    if topic_at == 15:
        assert cluster.queues(["T"]) == [QueueKey("T", "a", 0)]
    else:
        with pytest.raises(TopicMissing):
            cluster.queues(["T"])
        assert 21 <= servers.now < 26


async def test_queues_served_by_a_master(fake: FakeCluster) -> None:
    queues = [FIRST, QueueKey("T", "broker-b", 0), QueueKey("T2", "broker-a", 0), QueueKey("None", "b", 0)]
    fake.brokers["broker-b"].permissions["T"] = 4
    assert await ask(fake, lambda cluster: cluster.served_by_master(queues)) == [queues[0], queues[2]]


async def test_topic_is_not_missing_while_no_broker_is_registered() -> None:
    async with FakeCluster({}) as empty:
        with pytest.raises(SourceUnavailable, match="topic T has no route"):
            await ask(empty, lambda cluster: cluster.queues(["T"]), WaitTimeouts(0.3, topic_seconds=0.01))
