"""Check whether messages may be sent to a topic and queue.

Source: Apache RocketMQ 5.3.3, AbstractSendMessageProcessor.msgCheck.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..topics.lookup import no_such_topic
from ..topics.names import RETRY_PREFIX, is_send_prohibited, topic_name_problem
from ..topics.permissions import FLAG_UNIT, FLAG_UNIT_SUBSCRIPTION, WRITE
from .message_types import required_type

if TYPE_CHECKING:
    from rmq_remoting.bodies.topic import TopicConfig
    from rmq_remoting.headers.send import SendTarget

    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings
    from ..topics.table import TopicTable

# Advice to a producer whose topic cannot be created.
_ENABLE: Final = "start the broker with autoCreateTopicEnable=true"
_RAISE_LIMIT: Final = "raise maxAutoCreateTopicNums"


class TargetChecker:
    """Finds the topic of a send, or creates it if the settings allow that."""

    def __init__(self, settings: BrokerSettings, topics: TopicTable, now_ms: ClockMs) -> None:
        self._settings = settings
        self.topics = topics
        self._now_ms = now_ms

    @property
    def version(self) -> int:
        """The version of the topic table: when it grows, earlier results of `check` may be outdated."""
        return self.topics.version

    def required_type(self, topic: TopicConfig) -> str | None:
        """Return the type that all messages to a topic must have; None if types are not checked."""
        if not self._settings.message_type_check:
            return None
        return required_type(topic, is_system=topic.topic_name in self.topics.system_topics)

    def check(self, target: SendTarget, peer: str, queue_id: int | None = None) -> TopicConfig:
        """Return the topic's configuration; `peer` is the producer's address, for the log.

        `queue_id`: the queue of a static topic that the target's logical queue is mapped to. Raises
        CommandError if messages may not be sent to the target.
        """
        accepts_from_ms = self._settings.start_accept_send_request_timestamp_ms
        if self._now_ms() < accepts_from_ms:
            until = datetime.fromtimestamp(accepts_from_ms / 1000, UTC).isoformat(" ", "milliseconds")
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not accept messages until {until} (startAcceptSendRequestTimeStamp)",
            )
        name = target.topic
        problem = topic_name_problem(name)
        if problem is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, problem)
        if is_send_prohibited(name):
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"sending messages to {name} is forbidden: the broker writes it"
            )
        topic = self.topics.get(name) or self._create(target, peer)
        if not topic.perm & WRITE:
            raise CommandError(ResponseCode.NO_PERMISSION, f"sending messages to topic {name} is forbidden")
        # A broker without write permission is drained by withdrawing its routes. For ordered topics it
        # refuses messages at once, so that no queue gets messages later than the queue that succeeds it.
        if topic.order and not self._settings.broker_permission & WRITE:
            raise CommandError(ResponseCode.NO_PERMISSION, "sending messages to this broker is forbidden")
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        if queue_id is None:
            queue_id = target.queue_id
        if queue_id >= queues:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queue id {queue_id} is illegal: topic {name} has {queues} queues, counted from 0",
            )
        return topic

    def _create(self, target: SendTarget, peer: str) -> TopicConfig:
        name = target.topic
        sys_flag = 0
        if target.unit_mode:
            sys_flag = FLAG_UNIT_SUBSCRIPTION if name.startswith(RETRY_PREFIX) else FLAG_UNIT
        topic = self.topics.create_for_send(
            name, target.default_topic, target.default_topic_queue_nums, sys_flag, peer
        )
        if topic is None and name.startswith(RETRY_PREFIX) and not self.topics.is_full:
            topic = self.topics.create_for_group(name, 1, system_flag=sys_flag)
        if topic is None:
            advice = _RAISE_LIMIT if self.topics.is_full else _ENABLE
            raise no_such_topic(name, f"create it, or {advice}")
        return topic
