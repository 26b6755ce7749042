"""Message types: what a topic is for (`message.type`), and what a message is by its properties.

Apache leaves the check to its proxy (5.3.3, TopicMessageType, DefaultTopicMessageTypeValidator); here the
broker does it where `messageTypeCheck` is on.
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
    """The type that all messages to a topic must have; None where any may come."""
    if is_system or topic.topic_name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        return None
    wanted = topic.attributes.get(MESSAGE_TYPE, NORMAL)
    return None if wanted in _ANY else wanted


def message_type(properties: bytes) -> str:
    """What a message is, by its raw properties."""
    if find_property(properties, b"TRAN_MSG") == b"true":
        return "TRANSACTION"
    if any(find_property(properties, name) is not None for name in _DELAYS):
        return "DELAY"
    return NORMAL if find_property(properties, b"__SHARDINGKEY") is None else "FIFO"


def check_type(wanted: str, topic_name: str, properties: bytes) -> None:
    """Raises CommandError for a message of another type."""
    is_a = message_type(properties)
    if is_a != wanted:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"topic {topic_name} is for messages of type {wanted}, and this one is {is_a} by its properties: "
            f"send it to another topic, or change the topic's attribute {MESSAGE_TYPE} (messageTypeCheck is "
            "on)",
        )


def check_types(wanted: str, topic_name: str, messages: BatchMessages) -> None:
    """The same for all messages of a batch."""
    for own_properties in messages.own_properties:
        check_type(wanted, topic_name, own_properties + messages.shared_properties)
