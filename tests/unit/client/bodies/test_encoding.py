"""Values in messages to send, and values from received ones."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_client import (
    BytesSerializer,
    InvalidArgumentError,
    JsonSerializer,
    Message,
    MessageExt,
    PydanticSerializer,
    StrSerializer,
    UnreadableBody,
    UnwritableBody,
    UsageError,
    decode_body,
)
from rmq_client.bodies.encoding import CONTENT_TYPE, DEAD_LETTER_REASON, encode_body, note_reason


def _received(body: bytes, content_type: str | None = None) -> MessageExt:
    message = MessageExt("T", body)
    if content_type is not None:
        message.properties[CONTENT_TYPE] = content_type
    return message


def test_a_value_becomes_the_body_of_a_copy() -> None:
    message = Message("T", tags="paid", keys=["k"], properties={"shop": "7"}, flag=3)
    encoded = encode_body(message, [1], JsonSerializer())
    assert (encoded.body, encoded.flag, encoded.tags, encoded.keys) == (b"[1]", 3, "paid", ["k"])
    assert encoded.user_properties == {"shop": "7", "content_type": "application/json"}
    assert message.body == b""
    assert "content_type" not in message.properties


@pytest.mark.parametrize(
    ("message", "value", "serializer", "problem"),
    [
        (Message("T", b"x"), 1, JsonSerializer(), "has a body already"),
        (Message("T"), 1, None, r"the producer has no serializer: pass Producer\(serializer="),
        (Message("T"), object(), JsonSerializer(), "value=<object.*cannot be written by JsonSerializer"),
    ],
)
def test_wrong_use_is_refused(message: Message, value: object, serializer: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        encode_body(message, value, serializer)


class _Wrong(JsonSerializer):
    def dumps(self, value: Any) -> Any:
        return "text"


def test_a_serializer_that_returns_no_bytes_is_an_error() -> None:
    with pytest.raises(UnwritableBody, match=r"_Wrong\.dumps returned str, not bytes"):
        encode_body(Message("T"), 1, _Wrong())


def test_content_types_are_compared() -> None:
    assert decode_body(_received(b"1", "application/json; charset=utf-8"), int, JsonSerializer()) == 1
    assert decode_body(_received(b"1", "Application/JSON"), int, PydanticSerializer()) == 1
    assert decode_body(_received(b"1"), str, StrSerializer()) == "1"
    assert decode_body(_received(b"1", "application/json"), bytes, BytesSerializer()) == b"1"
    with pytest.raises(UnreadableBody, match="its content type is text/plain, not application/json"):
        decode_body(_received(b"1", "text/plain"), int, JsonSerializer())


def test_the_error_has_the_message_and_the_reason() -> None:
    message = _received(b"{")
    with pytest.raises(UnreadableBody, match=r"body of message .* of topic T: not read as dict") as error:
        decode_body(message, dict, JsonSerializer())
    assert error.value.message is message
    assert "JSONDecodeError" in error.value.reason


def test_a_wrong_type_is_a_mistake_of_the_program_not_of_the_body() -> None:
    with pytest.raises(UsageError, match=r"kind=.*: cannot be read"):
        decode_body(_received(b"1"), set, JsonSerializer())


def test_the_reason_is_noted_once_and_fits_a_property() -> None:
    message = _received(b"")
    assert note_reason(message, "a\x01b\x02c\n" + "x" * 1000)
    reason = message.properties[DEAD_LETTER_REASON]
    assert reason.startswith("a b c xxx")
    assert len(reason) <= 500
    assert not note_reason(message, "another")
    assert message.properties[DEAD_LETTER_REASON] == reason
