"""Where a message that has waited belongs."""

from __future__ import annotations

from typing import Final

from rmq_remoting.message_properties import find_property

from ..topics.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_HALF_TOPIC, has_illegal_characters
from .inner_message import InnerMessage

_MOST_QUEUE_ID: Final = 65_535
_MOST_DIGITS: Final = 18


def send_home(message: InnerMessage) -> str:
    """Give a message its own topic and queue; what is wrong where it tells none.

    Its properties stay as they are, the level and its real topic among them (messageTimeUp).
    """
    topic = find_property(message.properties, b"REAL_TOPIC") or b""
    queue_id = find_property(message.properties, b"REAL_QID") or b""
    name = topic.decode("utf-8", "replace")
    if not name or has_illegal_characters(name) or name in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return f"{name!r} is no topic that it can be for (property REAL_TOPIC)"
    if name == TRANSACTION_HALF_TOPIC:
        return "half messages cannot be delayed"
    if not queue_id.isdigit() or len(queue_id) > _MOST_DIGITS or int(queue_id) > _MOST_QUEUE_ID:
        return f"{queue_id[:20]!r} is no queue (property REAL_QID)"
    message.topic, message.queue_id = name, int(queue_id)
    return ""
