"""Routes of sends: one decision per target and version of the topic table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.sending.kinds import SendKind
from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from rmq_remoting.bodies.topic import TopicConfig, TopicFilterType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.static_topics import EPOCH, item, mapping
from tests.unit.broker.sending.parts import SendBroker, target


@pytest.fixture
async def sending(tmp_path: Path) -> AsyncIterator[SendBroker]:
    sending = SendBroker(tmp_path)
    yield sending
    sending.store.close()


async def test_the_target_decides_about_the_kind(sending: SendBroker) -> None:
    sending.topics.update(TopicConfig(topic_name="U"), {"+queue.type": "BatchCQ"})
    prepared = MessageSysFlag.TRANSACTION_PREPARED

    assert sending.route(target()).kind is SendKind.PLAIN
    assert sending.route(target(batch=True)).kind is SendKind.BATCH
    assert sending.route(target("U", batch=True)).kind is SendKind.UNIT
    assert sending.route(target("U")).kind is SendKind.PLAIN
    assert sending.route(target(sys_flag=prepared)).kind is SendKind.HALF
    assert sending.route(target("%RETRY%g", reconsume_times=1)).kind is SendKind.PLAIN
    assert sending.route(target("%RETRY%g", reconsume_times=17)).kind is SendKind.DEAD_LETTER


async def test_a_dead_letter_is_answered_with_the_queue_that_the_producer_named(sending: SendBroker) -> None:
    route = sending.route(target("%RETRY%g", 0, reconsume_times=17))
    assert (route.topic, route.queue.topic, route.answered_queue_id) == ("%RETRY%g", "%DLQ%g", 0)


@pytest.mark.parametrize(
    ("refused", "code", "remark"),
    [
        (target("%RETRY%g", batch=True), ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be sent to the retry"),
        (
            target(batch=True, sys_flag=MessageSysFlag.TRANSACTION_COMMIT),
            ResponseCode.MESSAGE_ILLEGAL,
            "a batch cannot be part of a transaction",
        ),
        (
            target(sys_flag=MessageSysFlag.TRANSACTION_ROLLBACK),
            ResponseCode.MESSAGE_ILLEGAL,
            "rolled back",
        ),
        (target(sys_flag=MessageSysFlag.INNER_BATCH), ResponseCode.MESSAGE_ILLEGAL, "not supported"),
        (target("a b"), ResponseCode.INVALID_PARAMETER, "a b"),
    ],
)
async def test_targets_that_are_refused(sending: SendBroker, refused: object, code: int, remark: str) -> None:
    with pytest.raises(CommandError, match=remark) as error:
        sending.route(refused)  # type: ignore[arg-type]
    assert error.value.code == code
    assert len(sending.routes.cache) == 0


async def test_only_the_broker_sets_the_flags_of_the_record_layout(sending: SendBroker) -> None:
    bits = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6 | MessageSysFlag.COMPRESSED
    assert sending.route(target(sys_flag=bits)).sys_flag == MessageSysFlag.COMPRESSED
    sending.topics.update(TopicConfig(topic_name="M", topic_filter_type=TopicFilterType.MULTI_TAG))
    assert sending.route(target("M")).sys_flag == MessageSysFlag.MULTI_TAGS


async def test_a_negative_queue_id_is_replaced_by_a_random_one(sending: SendBroker) -> None:
    any_queue = target(queue_id=-1)
    routes = [sending.route(any_queue) for _ in range(200)]
    assert {route.queue.queue_id for route in routes} == set(range(4))
    assert all(route.answered_queue_id == route.queue.queue_id for route in routes)
    assert len({id(route) for route in routes}) == len(sending.routes.cache) == 4

    sending.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=4))
    with pytest.raises(CommandError, match="forbidden"):
        sending.route(any_queue)
    sending.topics.update(TopicConfig(topic_name="R", read_queue_nums=1, write_queue_nums=0))
    with pytest.raises(CommandError, match="no queues to write to") as refused:
        sending.route(target("R", -1))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


async def test_routes_are_cached_by_target_and_queue(sending: SendBroker) -> None:
    first, same_values = target(), target()
    route = sending.route(first)
    assert sending.routes.cache.get((first, 0)) is route
    assert sending.routes.cache.get((same_values, 0)) is None  # targets are compared by identity


async def test_routes_of_retry_topics_are_not_cached(sending: SendBroker) -> None:
    sending.route(target("%RETRY%g"))
    assert len(sending.routes.cache) == 0


async def test_a_route_with_very_long_texts_is_not_cached(sending: SendBroker) -> None:
    """A route keeps its target's texts: thousands of long ones would fill the memory."""
    for number in range(5):
        sending.route(target(group=f"{number}" + "g" * 5000))
        sending.route(target(default_topic=f"{number}" + "ü" * 1500))
    assert len(sending.routes.cache) == 0


async def test_the_bound_in_bytes_holds_for_the_longest_routes(sending: SendBroker) -> None:
    sending.routes.cache.max_bytes = 30_000
    for number in range(25):
        sending.route(target(group=f"{number}" + "g" * 3000))
    assert 0 < len(sending.routes.cache) <= 7
    assert sending.routes.cache.evictions > 0


# --- static topics ---


def _map(sending: SendBroker, *items: LogicQueueMappingItem, epoch: int = EPOCH) -> None:
    config = TopicConfig(topic_name="S", read_queue_nums=2, write_queue_nums=2)
    sending.topics.update_static(config, mapping("broker-a", {0: items}, epoch=epoch))


async def test_the_route_of_a_logical_queue_is_cached_until_it_is_remapped(sending: SendBroker) -> None:
    _map(sending, item("broker-a", 1, 100))
    to_logical = target("S", 0)
    route = sending.route(to_logical)
    assert (route.answered_queue_id, route.queue.queue_id) == (0, 1)
    assert sending.routes.cache.get((to_logical, 0)) is route
    _map(sending, item("broker-a", 1, 100), item("B", 0, -1, generation=1), epoch=EPOCH + 1)
    assert route.table_version != sending.topics.version
    for queue_id in (0, 1, -1):
        with pytest.raises(CommandError, match="does not lead logical queue") as refused:
            sending.route(target("S", queue_id))
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_a_target_without_a_queue_goes_to_one_that_the_broker_leads(sending: SendBroker) -> None:
    config = TopicConfig(topic_name="S", read_queue_nums=2, write_queue_nums=2)
    queues = {0: [item("B")], 1: [item("broker-a", 1)], 2: [item("B", 1)]}
    sending.topics.update_static(config, mapping("broker-a", queues))
    for _ in range(5):
        assert sending.route(target("S", -1)).answered_queue_id == 1


async def test_the_route_of_another_topic_has_no_item(sending: SendBroker) -> None:
    assert sending.route(target()).item is None
