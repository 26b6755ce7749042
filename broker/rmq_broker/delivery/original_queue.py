"""Give a message that has waited in a system topic the queue back that it was sent to."""

from __future__ import annotations

from typing import Final

from rmq_remoting.message_properties import find_property

from ..topics.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_HALF_TOPIC, has_illegal_characters
from .inner_message import InnerMessage

_MAX_QUEUE_ID: Final = 65_535
_MAX_DIGITS: Final = 18


def restore_original_queue(message: InnerMessage) -> str:
    """Set a message's topic and queue id to those in its properties REAL_TOPIC and REAL_QID.

    Returns the problem if the properties name no such queue, else an empty string. All properties stay in the
    message, its delay level and its original topic among them (Apache RocketMQ 5.3.3,
    ScheduleMessageService.messageTimeUp).
    """
    topic = find_property(message.properties, b"REAL_TOPIC") or b""
    queue_id = find_property(message.properties, b"REAL_QID") or b""
    name = topic.decode("utf-8", "replace")
    if not name or has_illegal_characters(name) or name in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return f"its property REAL_TOPIC={name!r} is not the name of a topic that messages can be sent to"
    if name == TRANSACTION_HALF_TOPIC:
        return "half messages cannot be delayed"
    if not queue_id.isdigit() or len(queue_id) > _MAX_DIGITS or int(queue_id) > _MAX_QUEUE_ID:
        return f"its property REAL_QID={queue_id[:20]!r} is not a queue id (0 to {_MAX_QUEUE_ID})"
    message.topic, message.queue_id = name, int(queue_id)
    return ""
