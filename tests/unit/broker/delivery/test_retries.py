"""Redelivery: the topic, queue and delay of a message that a group failed to consume."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.delivery.retries import Failure, Redelivery, group_of_retry_topic
from rmq_remoting.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import VERSION_5_3_3, ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_queue import MessageQueue
from tests.unit.broker.delivery.parts import DeliveryBroker


@pytest.fixture
async def delivery(tmp_path: Path) -> AsyncIterator[DeliveryBroker]:
    made = DeliveryBroker(tmp_path)
    yield made
    made.store.close()


def _group(delivery: DeliveryBroker, policy: GroupRetryPolicy | None = None, **keys: int) -> None:
    config = SubscriptionGroupConfig(group_name="g", **keys)
    delivery.groups.update(config.model_copy(update={"group_retry_policy": policy or GroupRetryPolicy()}))


def _levels(delivery: DeliveryBroker, times: int = 19) -> list[int]:
    """Return the delay levels of the first redeliveries, as the broker chooses them."""
    found = [delivery.retries.redelivery_after(Failure("g", number)) for number in range(times)]
    return [redelivery.delay_level for redelivery in found if redelivery and not redelivery.is_dead_letter]


def _refused(delivery: DeliveryBroker, failure: Failure) -> CommandError:
    with pytest.raises(CommandError) as refused:
        delivery.retries.redelivery_after(failure)
    return refused.value


# --- how often ---


async def test_sixteen_redeliveries_with_apaches_delays_then_a_dead_letter(delivery: DeliveryBroker) -> None:
    assert _levels(delivery) == list(range(3, 19))
    delays_s = [delivery.writer.levels.delay_ms(level) // 1000 for level in _levels(delivery)]
    assert delays_s == [10, 30, *(60 * minutes for minutes in range(1, 11)), 1200, 1800, 3600, 7200]
    dead = delivery.retries.redelivery_after(Failure("g", 16))
    assert dead == Redelivery("%DLQ%g", 0, 0, is_dead_letter=True)


@pytest.mark.parametrize("times", [0, 1, 5])
async def test_a_maximum_of_n_means_n_redeliveries(delivery: DeliveryBroker, times: int) -> None:
    """With the first delivery that is N + 1 in all."""
    _group(delivery, retry_max_times=times)
    assert len(_levels(delivery)) == times


async def test_redeliveries_stay_at_the_highest_level(delivery: DeliveryBroker) -> None:
    _group(delivery, retry_max_times=100)
    assert _levels(delivery, 30)[15:] == [18] * 15


@pytest.mark.parametrize(
    ("said", "version", "redeliveries"),
    [(2, VERSION_5_3_3, 2), (2, 121, 2), (2, 120, 16), (None, VERSION_5_3_3, 16), (-1, VERSION_5_3_3, 0)],
)
async def test_the_consumers_limit_takes_precedence_over_the_groups(
    delivery: DeliveryBroker, said: int | None, version: int, redeliveries: int
) -> None:
    found = [
        delivery.retries.redelivery_after(Failure("g", number, 0, said, client_version=version))
        for number in range(20)
    ]
    assert (
        sum(redelivery is not None and not redelivery.is_dead_letter for redelivery in found) == redeliveries
    )


# --- how long ---


async def test_the_consumer_may_choose_the_delay_level(delivery: DeliveryBroker) -> None:
    levels = []
    for level in (1, 18, 19, 2**31 - 1):
        redelivery = delivery.retries.redelivery_after(Failure("g", 3, level))
        assert redelivery is not None
        levels.append(redelivery.delay_level)
    assert levels == [1, 18, 18, 18]


async def test_a_negative_delay_level_means_no_redelivery(delivery: DeliveryBroker) -> None:
    redelivery = delivery.retries.redelivery_after(Failure("g", 0, -1))
    assert redelivery is not None and redelivery.is_dead_letter


def _exponential(**numbers: int) -> GroupRetryPolicy:
    return GroupRetryPolicy(
        type=GroupRetryPolicyType.EXPONENTIAL, exponential_retry_policy=ExponentialRetryPolicy(**numbers)
    )


def _customized(*steps_ms: int) -> GroupRetryPolicy:
    return GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=list(steps_ms)))


async def test_an_exponential_policy(delivery: DeliveryBroker) -> None:
    """5 s, 10 s, 20 s, 40 s, ... at most 2 hours; each the shortest delay level that is long enough."""
    _group(delivery, _exponential())
    seconds = [delivery.writer.levels.delay_ms(level) // 1000 for level in _levels(delivery, 13)]
    assert seconds == [5, 10, 30, 60, 120, 180, 360, 1200, 1800, 3600, 7200, 7200, 7200]


async def test_an_exponential_policy_has_a_limit_and_no_overflow(delivery: DeliveryBroker) -> None:
    _group(delivery, _exponential(initial=1000, max=60_000, multiplier=2**40), retry_max_times=100)
    assert _levels(delivery, 99) == [1] + [5] * 98


async def test_customized_steps(delivery: DeliveryBroker) -> None:
    """The first two steps stand for delay levels that no redelivery uses (CustomizedRetryPolicy)."""
    _group(delivery, _customized(1, 2, 1000, 4000, 60_000))
    assert _levels(delivery, 5) == [1, 2, 5, 5, 5]


@pytest.mark.parametrize(
    "policy",
    [
        GroupRetryPolicy(),
        _customized(),
        GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy()),
        GroupRetryPolicy(type=GroupRetryPolicyType.EXPONENTIAL),
    ],
)
async def test_a_policy_without_steps_is_the_default_policy(
    delivery: DeliveryBroker, policy: GroupRetryPolicy
) -> None:
    _group(delivery, policy)
    assert _levels(delivery, 4) == [3, 4, 5, 6]


async def test_the_last_customized_step_is_repeated(delivery: DeliveryBroker) -> None:
    _group(delivery, _customized(60_000))
    assert _levels(delivery, 3) == [5, 5, 5]


# --- topics and queues ---


async def test_topics_are_created_by_the_groups_configuration(delivery: DeliveryBroker) -> None:
    _group(delivery, retry_queue_nums=3)
    queues = set()
    for _ in range(100):
        redelivery = delivery.retries.redelivery_after(Failure("g", 0, unit_mode=True))
        assert redelivery is not None and redelivery.topic == "%RETRY%g"
        queues.add(redelivery.queue_id)
    assert queues == {0, 1, 2}
    made = delivery.topics.get("%RETRY%g")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums, made.perm, made.topic_sys_flag) == (3, 3, 6, 2)
    assert "%DLQ%g" not in delivery.topics

    delivery.retries.redelivery_after(Failure("g", 0, -1))
    dead = delivery.topics.get("%DLQ%g")
    assert dead is not None
    assert (dead.read_queue_nums, dead.write_queue_nums, dead.perm, dead.topic_sys_flag) == (1, 1, 6, 0)


async def test_only_queues_that_consumers_read_are_used(delivery: DeliveryBroker) -> None:
    """The group got more queues after its topic was created; Apache's broker would use all of them."""
    delivery.topics.update(TopicConfig(topic_name="%RETRY%g", read_queue_nums=2, write_queue_nums=2))
    _group(delivery, retry_queue_nums=10)
    queues = set()
    for _ in range(100):
        redelivery = delivery.retries.redelivery_after(Failure("g", 0))
        assert redelivery is not None
        queues.add(redelivery.queue_id)
    assert queues == {0, 1}


@pytest.mark.parametrize("queues", [0, -1])
async def test_a_group_without_retry_queues_has_no_redelivery(delivery: DeliveryBroker, queues: int) -> None:
    _group(delivery, retry_queue_nums=queues)
    assert delivery.retries.redelivery_after(Failure("g", 0)) is None
    assert delivery.retries.redelivery_after(Failure("g", 99)) is None
    assert "%RETRY%g" not in delivery.topics


@pytest.mark.parametrize(("topic", "level"), [("%RETRY%g", 0), ("%DLQ%g", -1)])
async def test_a_topic_that_cannot_be_written_to(delivery: DeliveryBroker, topic: str, level: int) -> None:
    delivery.topics.update(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=4))
    error = _refused(delivery, Failure("g", 0, level))
    assert error.code == ResponseCode.NO_PERMISSION
    assert topic in error.remark


async def test_an_unknown_group(tmp_path: Path) -> None:
    delivery = DeliveryBroker(tmp_path, autoCreateSubscriptionGroup="false")
    error = _refused(delivery, Failure("nobody", 0))
    assert error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "nobody" in error.remark and "autoCreateSubscriptionGroup" in error.remark
    assert "blank" in _refused(delivery, Failure("", 0)).remark
    assert len(delivery.topics.configs()) == len(list(delivery.topics.system_topics.configs()))
    delivery.store.close()


# --- sends to a retry topic ---


@pytest.mark.parametrize(("times", "dead"), [(0, False), (16, False), (17, True)])
async def test_sends_to_a_retry_topic(delivery: DeliveryBroker, times: int, dead: bool) -> None:
    """`times` counts the requested redelivery too, so that there are 16."""
    redelivery = delivery.retries.dead_letter_for_send(Failure("g", times))
    assert redelivery == (Redelivery("%DLQ%g", 0, 0, True) if dead else None)


async def test_a_message_given_up_in_order_is_a_dead_letter(delivery: DeliveryBroker) -> None:
    locks = delivery.services.clients.queue_locks
    assert locks.lock("g", [MessageQueue("T", "broker-a", 0)], "a client")
    redelivery = delivery.retries.dead_letter_for_send(Failure("g", 0))
    assert redelivery is not None and redelivery.is_dead_letter


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("%RETRY%g", "g"),
        ("%RETRY%g+T", "g"),
        ("%RETRY%g_T", "g_T"),
        ("%RETRY%a+b+c", "a+b+c"),
        ("%DLQ%g", None),
        ("T", None),
        ("%RETRY%", ""),
    ],
)
async def test_the_group_of_a_retry_topic(topic: str, group: str | None) -> None:
    assert group_of_retry_topic(topic) == group


async def test_redeliveries_are_counted_by_existing_topics(delivery: DeliveryBroker) -> None:
    """A forged RETRY_TOPIC does not create a series in the metrics."""
    delivery.topics.update(TopicConfig(topic_name="T"))
    delivery.retries.count("g", "T", is_dead_letter=False)
    delivery.retries.count("g", "T", is_dead_letter=True)
    for number in range(10):
        delivery.retries.count("g", f"forged-{number}", is_dead_letter=True)
    assert delivery.statistics.sent_back.counts() == {("g", "T"): 2, ("g", ""): 10}
    assert delivery.statistics.dead_letters.counts() == {("g", "T"): 1, ("g", ""): 10}
