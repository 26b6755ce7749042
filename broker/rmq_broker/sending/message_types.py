"""Message types: the type that a topic is for (`message.type`), and the type of a message by its properties.

Apache's broker leaves the check to the proxy (5.3.3, TopicMessageType, DefaultTopicMessageTypeValidator).
Here the broker checks the types if `messageTypeCheck` is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_properties import find_property

from ..topics.attributes import MESSAGE_TYPE
from ..topics.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from rmq_remoting.bodies.topic import TopicConfig

    from ..store.api import BatchMessages

MIXED: Final = "MIXED"
NORMAL: Final = "NORMAL"
_ANY: Final = frozenset({MIXED, "UNSPECIFIED"})
_DELAYS: Final = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")


def required_type(topic: TopicConfig, *, is_system: bool) -> str | None:
    """Return the type that all messages to a topic must have; None if any may be sent."""
    if is_system or topic.topic_name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        return None
    required = topic.attributes.get(MESSAGE_TYPE, NORMAL)
    return None if required in _ANY else required


def message_type(properties: bytes) -> str:
    """Return the type of a message, by its raw properties."""
    if find_property(properties, b"TRAN_MSG") == b"true":
        return "TRANSACTION"
    if any(find_property(properties, name) is not None for name in _DELAYS):
        return "DELAY"
    return NORMAL if find_property(properties, b"__SHARDINGKEY") is None else "FIFO"


def check_type(required: str, topic_name: str, properties: bytes) -> None:
    """Raises CommandError for a message of another type."""
    is_a = message_type(properties)
    if is_a != required:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"topic {topic_name} accepts messages of type {required}, and this one is {is_a} by its "
            f"properties: send it to another topic, or change the topic's attribute {MESSAGE_TYPE} "
            "(messageTypeCheck is on)",
        )


def check_types(required: str, topic_name: str, messages: BatchMessages) -> None:
    """Raises CommandError for a batch with a message of another type."""
    for own_properties in messages.own_properties:
        check_type(required, topic_name, own_properties + messages.shared_properties)
