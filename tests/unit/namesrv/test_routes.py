"""The route table: shared immutable routes, and changes of one topic and of all."""

from __future__ import annotations

import gc

from rmq_namesrv.routes import QueueNumbers, Route, RouteTable
from rmq_namesrv.slices import run_to_end
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from tests.unit.namesrv.parts import EIGHT_QUEUES

FOUR_QUEUES = QueueNumbers(6, 4, 4, 0)


def table(*topics: str, brokers: tuple[str, ...] = ("broker-a", "broker-b")) -> RouteTable:
    routes = RouteTable()
    for topic in topics:
        for broker in brokers:
            routes.put(topic, routes.with_queues(routes.get(topic), broker, EIGHT_QUEUES))
    return routes


def test_topics_with_equal_routes_share_one() -> None:
    routes = table("T1", "T2", "T3")
    assert routes.get("T1") is routes.get("T3")
    assert routes.distinct_routes == 1
    assert len(routes) == 3
    assert routes.queue_group_count == 6


def test_the_order_of_registrations_does_not_matter() -> None:
    routes = table("T1")
    for broker in ("broker-b", "broker-a"):
        routes.put("T2", routes.with_queues(routes.get("T2"), broker, EIGHT_QUEUES))
    route = routes.get("T2")
    assert route is routes.get("T1")
    assert route is not None
    assert list(route.queues) == ["broker-a", "broker-b"]


def test_a_change_does_not_affect_old_snapshots() -> None:
    routes = table("T1", "T2")
    before = routes.get("T1")
    routes.put("T1", routes.with_queues(before, "broker-a", FOUR_QUEUES))
    assert before is not None
    assert before.queues["broker-a"].numbers == EIGHT_QUEUES
    assert routes.get("T2") is before
    changed = routes.get("T1")
    assert changed is not None
    assert changed.queues["broker-a"].numbers == FOUR_QUEUES
    assert changed.queues["broker-b"].numbers == EIGHT_QUEUES


def test_the_same_queues_again_change_nothing() -> None:
    routes = table("T1")
    route = routes.get("T1")
    assert routes.with_queues(route, "broker-a", EIGHT_QUEUES) is route


def test_unused_routes_are_released() -> None:
    routes = table("T1")
    routes.put("T1", routes.with_queues(None, "broker-c", FOUR_QUEUES))
    gc.collect()
    assert routes.distinct_routes == 1


def test_a_topic_without_queues_is_no_topic() -> None:
    routes = table("T1")
    route = routes.get("T1")
    assert route is not None
    routes.put("T1", routes.without(route, ("broker-a", "broker-b")))
    assert routes.get("T1") is None
    assert routes.topics() == []
    assert routes.queue_group_count == 0


def test_deleting_a_topic_deletes_its_mapping() -> None:
    routes = table("Static")
    routes.put_mapping("Static", "broker-a", TopicQueueMappingInfo(topic="Static", broker_name="broker-a"))
    assert routes.delete("Static")
    assert routes.mapping("Static") is None
    assert not routes.delete("Static")


def test_a_sweep_changes_every_topic_of_the_brokers_and_counts_them() -> None:
    routes = table(*[f"T{number}" for number in range(1000)])
    only_b = routes.with_queues(None, "broker-b", EIGHT_QUEUES)
    routes.put("OnlyB", only_b)
    asked: list[list[str]] = []

    def without_a(route: Route) -> Route:
        asked.append(list(route.queues))
        return routes.without(route, ("broker-a",))

    assert run_to_end(routes.sweep(("broker-a",), without_a)) == 1000
    assert asked == [["broker-a", "broker-b"]], "once per distinct route"
    assert routes.distinct_routes == 1
    assert routes.get("T500") is only_b


def test_a_sweep_pauses_and_respects_changes_made_meanwhile() -> None:
    routes = table(*[f"T{number}" for number in range(600)])
    steps = routes.sweep(("broker-a",), lambda route: routes.without(route, ("broker-a", "broker-b")))
    next(steps)
    assert 0 < len(routes) < 600
    routes.delete("T599")
    routes.put("New", routes.with_queues(None, "broker-a", EIGHT_QUEUES))
    assert run_to_end(steps) == 599
    assert routes.topics() == ["New"]


def test_queue_numbers_tell_whether_queues_are_writable() -> None:
    assert EIGHT_QUEUES.writable
    assert not EIGHT_QUEUES.with_perm(4).writable
    assert EIGHT_QUEUES.with_perm(6) is EIGHT_QUEUES
