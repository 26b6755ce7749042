"""Admission of POP requests: may the group pop from the topic?

Source: Apache RocketMQ 5.3.3, PopMessageProcessor and the other processors of POP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.pop_receipt import Receipt, ReceiptError

from ..groups.lookup import CREATE_GROUP, no_such_group
from ..groups.names import group_name_problem
from ..pop.answer_size import MAX_MESSAGES
from ..pop.retry_topics import pop_retry_topic
from ..topics.lookup import CREATE_TOPIC, existing_topic
from ..topics.names import RETRY_PREFIX, stored_topic_problem
from ..topics.permissions import READ

if TYPE_CHECKING:
    from rmq_remoting.bodies.topic import TopicConfig

    from ..groups.table import SubscriptionGroupTable
    from ..settings.broker import BrokerSettings
    from ..topics.table import TopicTable

_MS: Final = 1000
_MAX_ATTEMPT_LENGTH: Final = 255  # clients send UUIDs
_LONG_NAMES: Final = 200  # characters of topic and group; the retry topic of shorter names is never too long

# No request waits so long for its turn: a client that seems to be so late has another time than the broker.
_CLOCKS_DIFFER_MS: Final = 60_000


def sent_at_ms(born_ms: int, poll_ms: int, now_ms: int) -> int:
    """Return when a client began to wait for up to `poll_ms`, by the broker's clock.

    `born_ms`: the same by the client's clock; 0: unknown. The clocks may differ by hours after a step of one
    of them. Then the client counts as beginning now. Apache's broker refuses clients whose clock is behind.
    """
    is_known = born_ms and now_ms - born_ms - poll_ms <= _CLOCKS_DIFFER_MS
    return min(born_ms, now_ms) if is_known else now_ms


class PopAdmission:
    """Checks requests; every method raises CommandError to refuse one."""

    def __init__(self, settings: BrokerSettings, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups

    def check(self, group: str, topic: str, queue_id: int, peer: str) -> None:
        """Check that the group may pop from the queue; a negative queue id stands for any queue."""
        if not self._settings.broker_permission & READ:
            raise CommandError(ResponseCode.NO_PERMISSION, "popping messages from this broker is forbidden")
        config = existing_topic(self._topics, topic, CREATE_TOPIC)
        if not config.perm & READ:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"popping messages from topic {topic} is forbidden"
            )
        if queue_id >= config.read_queue_nums:
            raise CommandError(ResponseCode.INVALID_PARAMETER, _bad_queue(config, queue_id, peer))
        if self._topics.stores_batches(topic):
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"topic {topic} stores batches as wholes (queue.type=BatchCQ), which can only be pulled",
            )
        self._check_group(group, topic)
        self._check_names(group, topic)

    def check_receipt_queue(self, topic: str, queue_id: int, peer: str) -> None:
        """Check the queue of a receipt."""
        config = existing_topic(self._topics, topic, CREATE_TOPIC)
        if not 0 <= queue_id < config.read_queue_nums:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, _bad_queue(config, queue_id, peer))

    def check_count(self, messages: int) -> None:
        """Check a number of messages."""
        if not 0 < messages <= MAX_MESSAGES:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"{messages} messages cannot be popped at once: the number must be 1 to {MAX_MESSAGES}",
            )

    def check_attempt(self, attempt_id: str | None) -> None:
        """Check an attempt's id, which is kept as long as its messages are in flight."""
        if attempt_id is not None and len(attempt_id) > _MAX_ATTEMPT_LENGTH:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"attemptId has {len(attempt_id)} characters, the limit is {_MAX_ATTEMPT_LENGTH}",
            )

    def check_invisible_time(self, invisible_time_ms: int, least_ms: int) -> None:
        """Check an invisible time."""
        most = self._settings.timer_max_delay_seconds * _MS
        if not least_ms <= invisible_time_ms <= most:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"an invisible time of {invisible_time_ms} ms is illegal: it must be {least_ms} to {most} ms "
                "(timerMaxDelaySec)",
            )

    def _check_names(self, group: str, topic: str) -> None:
        """Check that the retry topic, for unacknowledged messages, can have its name."""
        if len(topic) + len(group) > _LONG_NAMES and not topic.startswith(RETRY_PREFIX):
            problem = stored_topic_problem(pop_retry_topic(topic, group, version_2=True))
            if problem is not None:
                raise CommandError(
                    ResponseCode.INVALID_PARAMETER, f"group {group} cannot pop topic {topic}: retry {problem}"
                )

    def _check_group(self, name: str, topic: str) -> None:
        group = self._groups.find(name)
        if group is None:
            problem = group_name_problem(name)
            if problem is not None:
                raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
            raise no_such_group(name, CREATE_GROUP)
        if not group.consume_enable:
            raise CommandError(ResponseCode.NO_PERMISSION, f"consumer group {name} may not consume")
        if self._groups.forbidden(name, topic) & READ:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"consumer group {name} may not read topic {topic}"
            )


def parse_receipt(text: str) -> Receipt:
    """Parse a receipt. Raises CommandError for a text that is none."""
    try:
        return Receipt.parse(text)
    except ReceiptError as error:
        raise CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error


def _bad_queue(config: TopicConfig, queue_id: int, peer: str) -> str:
    return (
        f"queue id {queue_id} is illegal: topic {config.topic_name} has {config.read_queue_nums} queues to "
        f"read (asked by {peer})"
    )
