"""Routes: the queue of a message group, the brokers in turn, and permissions."""

from __future__ import annotations

import pytest

from rmq_proxy.routes import TopicRoute, consistent_hash
from rmq_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq_remoting.message_queue import MessageQueue


def _data(*queues: QueueData, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name="broker-a", broker_addrs={0: "a:1", 1: "a:2"}),
            BrokerData(broker_name="broker-b", broker_addrs={0: "b:1"}),
            BrokerData(broker_name="broker-c", broker_addrs={1: "c:2"}),
        ],
        queue_datas=list(queues),
        order_topic_conf=order,
    )


def _queues(broker: str, count: int = 2, perm: int = 6) -> QueueData:
    return QueueData(broker_name=broker, perm=perm, read_queue_nums=count, write_queue_nums=count)


# Buckets that Guava 32.0.1 returns for hash codes of Java's texts, with 1, 2, 3, 8 and 100 buckets.
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (97, [0, 0, 0, 0, 29]),
        (-1207111310, [0, 0, 0, 3, 3]),
        (-1581185528, [0, 0, 2, 7, 29]),
        (0, [0, 0, 0, 0, 0]),
        (-1482116162, [0, 0, 0, 0, 0]),
        (-1637252864, [0, 0, 0, 3, 66]),
        (-2147483648, [0, 1, 2, 2, 58]),
    ],
)
def test_buckets_are_those_of_apaches_proxy(value: int, expected: list[int]) -> None:
    assert [consistent_hash(value, buckets) for buckets in (1, 2, 3, 8, 100)] == expected


def test_a_message_group_has_one_queue_and_other_messages_have_all() -> None:
    route = TopicRoute.of("T", _data(_queues("broker-b", 4), _queues("broker-a", 4)))
    assert route.queue_for("a") == MessageQueue("T", "broker-a", 0)  # bucket 0, in the order of brokers
    assert {route.queue_for("") for _ in range(8)} == set(route.write_queues)


def test_only_masters_are_written_to() -> None:
    route = TopicRoute.of("T", _data(_queues("broker-c"), _queues("broker-a", perm=4)))
    assert route.queue_for("") is None
    assert route.readable_brokers == ("broker-a", "broker-c")
    assert route.address("broker-c") == "c:2" and route.master("broker-c") is None


def test_a_receive_goes_to_the_wanted_broker_or_to_the_others_in_turn() -> None:
    route = TopicRoute.of("T", _data(_queues("broker-a"), _queues("broker-b")))
    assert {route.broker_to_receive_from("broker-b") for _ in range(3)} == {"broker-b"}
    assert {route.broker_to_receive_from("unknown") for _ in range(2)} == {"broker-a", "broker-b"}
    assert TopicRoute.of("T", _data()).broker_to_receive_from("broker-a") is None


def test_in_local_mode_only_the_own_broker_counts() -> None:
    route = TopicRoute.of("T", _data(_queues("broker-a"), _queues("broker-b")), "broker-b")
    assert {queue.broker_name for queue in route.write_queues} == {"broker-b"}
    assert route.broker_to_receive_from("broker-a") == "broker-b"
    assert len(route.queue_datas) == 2  # clients get the whole route


def test_an_order_configuration_names_the_queues_to_write() -> None:
    route = TopicRoute.of("T", _data(_queues("broker-a", 8), order="broker-a:1;broker-b:2;broker-x:1"))
    assert [(queue.broker_name, queue.queue_id) for queue in route.write_queues] == [
        ("broker-a", 0),
        ("broker-b", 0),
        ("broker-b", 1),
    ]
