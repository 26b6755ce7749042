"""Message queues in bodies: as objects, as map keys, and as map keys of JSON text in quotes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator

from ..errors import BodyError
from ..integers import Int32, Int64
from ..message_queue import MessageQueue
from . import fastjson
from .base import Body


class _MessageQueueForm(Body):
    broker_name: str
    queue_id: Int32
    topic: str


def message_queue_of(value: Any) -> MessageQueue:
    """Decode a queue from an object, an object key, or the JSON text of one. Raises ValueError."""
    if isinstance(value, MessageQueue):
        return value
    try:
        if isinstance(value, str):
            value = fastjson.loads(value.encode("utf-8", "replace"))
        elif isinstance(value, fastjson.ObjectKey):
            value = value.to_wire()
        form = _MessageQueueForm.from_wire(value)
    except BodyError as error:
        raise ValueError(str(error).replace(_MessageQueueForm.__name__, "MessageQueue")) from error
    return MessageQueue(form.topic, form.broker_name, form.queue_id)


QueueField = Annotated[MessageQueue, PlainValidator(message_queue_of)]


class MessageQueueForC(Body):
    """A queue with its offset, for clients whose JSON readers have no object keys."""

    broker_name: str
    offset: Int64 = 0
    queue_id: Int32 = 0
    topic: str


class OffsetMovedEvent(Body):
    """Event: a consumer requested an offset outside the queue, and was given another one."""

    consumer_group: str
    message_queue: QueueField
    offset_new: Int64 = 0
    offset_request: Int64 = 0
