"""Decide about messages that a consumer group failed to consume: redelivery, or the dead letter topic.

Source: Apache RocketMQ 5.3.3, AbstractSendMessageProcessor.consumerSendMsgBack,
SendMessageProcessor.handleRetryAndDLQ, GroupRetryPolicy.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.group import CustomizedRetryPolicy, GroupRetryPolicyType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..groups.lookup import CREATE_GROUP, no_such_group
from ..groups.names import group_name_problem
from ..topics.names import RETRY_PREFIX, dead_letter_topic, retry_topic
from ..topics.permissions import FLAG_UNIT_SUBSCRIPTION, WRITE

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig
    from rmq_remoting.bodies.topic import TopicConfig

    from ..groups.table import SubscriptionGroupTable
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import DelayLevels
    from ..topics.table import TopicTable

# Older clients do not send a maximum of reconsume times (MQVersion V3_4_9).
_VERSION_3_4_9: Final = 121
# The first redelivery is delayed by level 3, the next by level 4, and so on.
_FIRST_RETRY_LEVEL: Final = 3
_DEAD_LETTER_QUEUES: Final = 1
_MAX_DOUBLINGS: Final = 32
_DEFAULT_STEPS_MS: Final = tuple(CustomizedRetryPolicy().next)


@dataclass(frozen=True, slots=True)
class Redelivery:
    """The queue and the delay level of a redelivery; dead letters are stored without delay."""

    topic: str
    queue_id: int
    delay_level: int
    is_dead_letter: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that a consumer group failed to consume, as its consumer reports it."""

    group: str
    reconsume_times: int  # the number of redeliveries so far
    delay_level: int = 0  # as the consumer wants it; 0: by the group's policy; below 0: no redelivery
    max_reconsume_times: int | None = None  # the consumer's limit, if it sends one
    client_version: int = 0
    unit_mode: bool = False


class Retries:
    """Decides by the configurations of the groups, and creates their retry and dead letter topics."""

    def __init__(
        self,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        levels: DelayLevels,
        statistics: BrokerStatistics,
        is_locked: Callable[[str], bool] = lambda group: False,
    ) -> None:
        """`is_locked` returns whether a member of a group has locked queues, to consume them in order."""
        self._groups = groups
        self._topics = topics
        self._levels = levels
        self._statistics = statistics
        self._is_locked = is_locked

    def group_of(self, name: str) -> SubscriptionGroupConfig:
        """Return a group's configuration. Raises CommandError for an unknown group."""
        config = self._groups.find(name)
        if config is None:
            problem = group_name_problem(name)
            if problem is None:
                raise no_such_group(name, CREATE_GROUP)
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        return config

    def redelivery_after(self, failure: Failure) -> Redelivery | None:
        """Decide about a message that was sent back; None if the group has no redelivery.

        Raises CommandError for an unknown group and for a topic that may not be written to.
        """
        config = self.group_of(failure.group)
        if config.retry_queue_nums <= 0:
            return None
        if failure.delay_level < 0 or failure.reconsume_times >= _max_times(config, failure):
            return self._dead_letter(failure.group)
        sys_flag = FLAG_UNIT_SUBSCRIPTION if failure.unit_mode else 0
        topic = self._topics.create_for_group(
            retry_topic(failure.group), config.retry_queue_nums, system_flag=sys_flag
        )
        _check_writable(topic)
        level = failure.delay_level or self._level_of(config, failure.reconsume_times)
        # No consumer reads queues beyond those of the topic.
        queues = min(config.retry_queue_nums, topic.read_queue_nums)
        return Redelivery(topic.topic_name, _random_queue(queues), self._levels.in_range(level), False)

    def dead_letter_for_send(self, failure: Failure) -> Redelivery | None:
        """Return the dead letter queue for a send to a group's retry topic, or None if it may be redelivered.

        A message belongs there after too many redeliveries, and if a member that consumes in order gives it
        up. Raises CommandError.
        """
        config = self.group_of(failure.group)
        is_over = failure.reconsume_times > _max_times(config, failure)
        return self._dead_letter(failure.group) if is_over or self._is_locked(failure.group) else None

    def count(self, group: str, topic: str, *, is_dead_letter: bool) -> None:
        """Count a message of `topic` that was stored for redelivery, or as a dead letter."""
        name = topic if topic in self._topics else ""
        self._statistics.sent_back.add(group, name)
        if is_dead_letter:
            self._statistics.dead_letters.add(group, name)

    # --- inside ---

    def _dead_letter(self, group: str) -> Redelivery:
        topic = self._topics.create_for_group(dead_letter_topic(group), _DEAD_LETTER_QUEUES)
        _check_writable(topic)
        return Redelivery(topic.topic_name, _random_queue(topic.read_queue_nums), 0, True)

    def _level_of(self, config: SubscriptionGroupConfig, reconsume_times: int) -> int:
        """Return the delay level by the group's policy: the shortest level that is long enough.

        (Apache's broker stores such policies, but only its gRPC clients apply them.)
        """
        delay_ms = _policy_delay_ms(config, reconsume_times)
        if delay_ms is None:
            return _FIRST_RETRY_LEVEL + max(0, reconsume_times)
        return self._levels.at_least(delay_ms)


def group_of_retry_topic(topic: str) -> str | None:
    """Return the group of a retry topic (KeyBuilder.parseGroup); None for other topics."""
    if not topic.startswith(RETRY_PREFIX):
        return None
    name = topic.removeprefix(RETRY_PREFIX)
    group, separator, of_topic = name.partition("+")
    # The names of POP's retry topics also contain the original topic.
    return group if separator and "+" not in of_topic else name


def _policy_delay_ms(config: SubscriptionGroupConfig, reconsume_times: int) -> int | None:
    """Return the delay by the group's own policy, in ms; None if it has none."""
    policy, times = config.group_retry_policy, max(0, reconsume_times)
    if policy.type is GroupRetryPolicyType.EXPONENTIAL and policy.exponential_retry_policy is not None:
        growing = policy.exponential_retry_policy
        factor = growing.multiplier ** min(times, _MAX_DOUBLINGS)
        return int(min(growing.max, growing.initial * factor))
    if policy.type is GroupRetryPolicyType.CUSTOMIZED and policy.customized_retry_policy is not None:
        steps = policy.customized_retry_policy.next
        if steps and tuple(steps) != _DEFAULT_STEPS_MS:
            # The first two steps stand for delay levels 1 and 2, which no redelivery uses.
            return steps[min(times + _FIRST_RETRY_LEVEL - 1, len(steps) - 1)]
    return None


def _max_times(config: SubscriptionGroupConfig, failure: Failure) -> int:
    """Return the maximum number of redeliveries: the consumer's limit, else the group's."""
    if failure.client_version >= _VERSION_3_4_9 and failure.max_reconsume_times is not None:
        return failure.max_reconsume_times
    return config.retry_max_times


def _check_writable(topic: TopicConfig) -> None:
    if not topic.perm & WRITE or topic.read_queue_nums <= 0:
        raise CommandError(
            ResponseCode.NO_PERMISSION,
            f"topic {topic.topic_name} cannot be written to: change its permission or its queues",
        )


def _random_queue(queues: int) -> int:
    return random.randrange(queues)
