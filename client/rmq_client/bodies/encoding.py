"""Values as bodies of messages to send, and bodies of received messages as values."""

from __future__ import annotations

from typing import Any, Final, TypeVar, overload

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_properties import check_property

from ..checks import check_message, check_received, refuse, shown
from ..errors import InvalidArgumentError, UnreadableBody, UnwritableBody
from .serializers import ANY_TYPE, BytesSerializer, Serializer, check_body_type, check_serializer

T = TypeVar("T")

CONTENT_TYPE: Final = "content_type"
"""Property with the media type of a body that a serializer has written."""
DEAD_LETTER_REASON: Final = "dead_letter_reason"
"""Property of a dead letter that is not due to retries: the reason."""

_BYTES: Final = BytesSerializer()
_MAX_REASON_CHARACTERS: Final = 500


def encode_body(message: Message, value: object, serializer: Serializer | None) -> Message:
    """Return a copy of the message with the value as its body. Raises InvalidArgumentError."""
    check_message("message", message)
    if serializer is None:
        cure = "the producer has no serializer: pass Producer(serializer=...), or a body in the message"
        raise refuse("value", value, cure)
    if message.body:
        raise refuse("message", message, "has a body already: pass a message without one, or no value")
    try:
        body = serializer.dumps(value)
        if not isinstance(body, bytes):
            raise TypeError(f"{type(serializer).__name__}.dumps returned {type(body).__name__}, not bytes")
    except Exception as error:  # of the serializer, which may be the application's
        kind = type(serializer).__name__
        text = f"value={shown(value)}: cannot be written by {kind} ({_reason(error)})"
        raise UnwritableBody(text) from error
    encoded = Message(message.topic, body, flag=message.flag)
    encoded.properties = {**message.properties, CONTENT_TYPE: serializer.content_type}
    return encoded


@overload
def decode_body(message: MessageExt, kind: type[T], serializer: Serializer) -> T: ...
@overload
def decode_body(message: MessageExt, kind: Any, serializer: Serializer) -> Any: ...
def decode_body(message: MessageExt, kind: Any, serializer: Serializer) -> Any:
    """Return the body of a message as a value of type `kind`: a class, or a form such as `list[Order]`.

    `Any`: whatever the body holds. Raises UnreadableBody for a body that cannot be read, and for one whose
    content type is another one than the serializer's. A listener that raises that error makes the message a
    dead letter at once. Raises InvalidArgumentError for a type that the serializer cannot read.
    """
    check_received("message", message)
    check_body_type(check_serializer("serializer", serializer), kind)
    return read_body(message, kind, serializer)


def decode_by(serializer: Serializer | None, message: MessageExt, kind: Any) -> Any:
    """Return the body of a message by a consumer's serializer; bytes without one."""
    return decode_body(message, kind, _BYTES if serializer is None else serializer)


def read_body(message: MessageExt, kind: Any, serializer: Serializer) -> Any:
    """Return the body of a message as `decode_body`, without checks of the arguments."""
    written = message.properties.get(CONTENT_TYPE)
    if written is not None:
        known = _media_type(serializer.content_type)
        if _media_type(written) != known and known != BytesSerializer.content_type:
            raise UnreadableBody(message, f"its content type is {written}, not {known}")
    try:
        return serializer.loads(message.body, kind)
    except InvalidArgumentError:
        raise
    except Exception as error:  # of the serializer, which may be the application's
        raise UnreadableBody(message, f"not read as {_name(kind)}: {_reason(error)}") from error


def note_reason(message: MessageExt, reason: str) -> bool:
    """Note in a message why it becomes a dead letter; whether that is new."""
    if DEAD_LETTER_REASON in message.properties:
        return False
    # The separators of properties, and other control characters, are dropped.
    reason = "".join(one if one.isprintable() else " " for one in reason)
    reason = reason[:_MAX_REASON_CHARACTERS].strip() or "unknown"
    check_property(DEAD_LETTER_REASON, reason)
    message.properties[DEAD_LETTER_REASON] = reason
    return True


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _name(kind: Any) -> str:
    if kind is ANY_TYPE:
        return "a value"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
