"""What the built-in serializers write and read, and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from rmq_client import (
    BytesSerializer,
    InvalidArgumentError,
    JsonSerializer,
    PydanticSerializer,
    Serializer,
    StrSerializer,
)
from rmq_client.bodies.serializers import check_body_type, check_serializer
from tests.support.rows import each_row


class Order(BaseModel):
    number: int
    placed_at: datetime | None = None
    note: str = Field("", alias="Note")


@dataclass
class Line:
    article: str
    count: int


@each_row(
    ("serializer", "value", "kind", "body"),
    [
        (BytesSerializer(), b"\x00\xff", bytes, b"\x00\xff"),
        (StrSerializer(), "Größe", str, "Größe".encode()),
        (JsonSerializer(), {"a": [1, 2.5, None, True]}, dict, b'{"a":[1,2.5,null,true]}'),
        (JsonSerializer(), [1, 2], list[int], b"[1,2]"),
        (JsonSerializer(), None, type(None), b"null"),
        (JsonSerializer(), "x", Any, b'"x"'),
        (PydanticSerializer(), [Line("nail", 3)], list[Line], b'[{"article":"nail","count":3}]'),
        (PydanticSerializer(), Order(number=1, Note="n"), Order | None, None),
        (PydanticSerializer(), None, Order | None, b"null"),
        (PydanticSerializer(), 5, Annotated[int, Field(gt=0)], b"5"),
        (
            PydanticSerializer(),
            Order(number=1, placed_at=datetime(2026, 1, 2, tzinfo=UTC)),
            Order,
            b'{"number":1,"placed_at":"2026-01-02T00:00:00Z","Note":""}',
        ),
    ],
)
def test_a_value_is_read_as_it_was_written(
    serializer: Serializer, value: object, kind: Any, body: bytes | None
) -> None:
    written = serializer.dumps(value)
    assert body is None or written == body
    check_body_type(serializer, kind)
    assert serializer.loads(written, kind) == value


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (BytesSerializer(), "text"),
        (StrSerializer(), b"bytes"),
        (JsonSerializer(), object()),
        (JsonSerializer(), {1: 2}),
        (PydanticSerializer(), object()),
    ],
)
def test_values_that_cannot_be_written_are_refused(serializer: Serializer, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        serializer.dumps(value)


@pytest.mark.parametrize(
    ("serializer", "body", "kind"),
    [
        (StrSerializer(), b"\xff", str),
        (JsonSerializer(), b"", dict),
        (JsonSerializer(), b"[1]", dict),
        (JsonSerializer(), b"true", int),
        (JsonSerializer(), b"1.5", int),
        (JsonSerializer(), b"null", dict),
        (PydanticSerializer(), b"{", Order),
        (PydanticSerializer(), b"{}", Order),
        (PydanticSerializer(strict=True), b'{"number": "1"}', Order),
    ],
)
def test_bodies_that_cannot_be_read_are_refused(serializer: Serializer, body: bytes, kind: Any) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        serializer.loads(body, kind)
    assert not isinstance(refusal.value, InvalidArgumentError)


def test_a_whole_number_is_a_float_and_a_lax_model_converts() -> None:
    assert JsonSerializer().loads(b"2", float) == 2.0
    assert isinstance(JsonSerializer().loads(b"2", float), float)
    assert PydanticSerializer().loads(b'{"number": "1"}', Order) == Order(number=1)


class _Opaque:
    pass


@pytest.mark.parametrize(
    ("serializer", "kind", "problem"),
    [
        (BytesSerializer(), str, "reads bodies as bytes"),
        (StrSerializer(), dict, "reads bodies as str"),
        (JsonSerializer(), Order, "use PydanticSerializer for models"),
        (JsonSerializer(), int | str, "use PydanticSerializer"),
        (JsonSerializer(), None, "use PydanticSerializer"),
        (PydanticSerializer(), _Opaque, "must be a type that pydantic can validate"),
        (PydanticSerializer(), "NoSuchType", "must be a type that pydantic can validate"),
    ],
)
def test_types_that_no_body_can_be_read_as_are_refused(
    serializer: Serializer, kind: Any, problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        check_body_type(serializer, kind)


class _Own:
    content_type = "application/x-own"

    def dumps(self, value: Any) -> bytes:
        return repr(value).encode()

    def loads(self, body: bytes, kind: Any) -> Any:
        return body


class _NoContentType(_Own):
    content_type = ""


def test_an_own_serializer_needs_three_members() -> None:
    own = _Own()
    assert check_serializer("serializer", own) is own
    check_body_type(own, Order)
    with pytest.raises(InvalidArgumentError, match="must be a serializer, such as PydanticSerializer"):
        check_serializer("serializer", _Own)
    with pytest.raises(InvalidArgumentError, match="must be a serializer"):
        check_serializer("serializer", object())
    with pytest.raises(InvalidArgumentError, match=r"serializer\.content_type=''"):
        check_serializer("serializer", _NoContentType())
