"""Serializers: the ways in which values of an application become bodies of messages, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol, get_origin, runtime_checkable

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from ..checks import refuse

# What a listener without an annotation asks for.
ANY_TYPE: Final[Any] = Any
_PLAIN_JSON: Final = (dict, list, str, int, float, bool, type(None))
_CACHED_TYPES: Final = 256


@runtime_checkable
class Serializer(Protocol):
    """Turns values into bodies and bodies into values: the built-in ones, or one of the application's own.

    A serializer may also have a method `check_type(kind)`. It raises InvalidArgumentError for a type that no
    body can be read as, and is called when a listener or a `decode` asks for that type.

    Several threads use a serializer at the same time.
    """

    content_type: str
    """The media type of its bodies, such as `application/json`. It travels in a property of the message."""

    def dumps(self, value: Any) -> bytes:
        """Return the body for a value. Raises any exception for a value that cannot be written."""

    def loads(self, body: bytes, kind: Any) -> Any:
        """Return the value of a body, of type `kind`. Raises any exception for a body that cannot be read.

        `kind` is a class, or a form such as `list[Order]`. `Any`: whatever the body holds.
        """


class BytesSerializer:
    """Passes bodies on as they are. Accepts messages of every content type."""

    content_type = "application/octet-stream"

    def dumps(self, value: Any) -> bytes:
        """Return bytes, a bytearray or a memoryview as bytes. Raises TypeError for other values."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"must be bytes, not {type(value).__name__}")
        return bytes(value)

    def loads(self, body: bytes, kind: Any) -> bytes:
        """Return the body."""
        self.check_type(kind)
        return body

    def check_type(self, kind: Any) -> None:
        """Raise InvalidArgumentError for any type but bytes."""
        _check_one_of(kind, (bytes,), "BytesSerializer reads bodies as bytes")


class StrSerializer:
    """Texts in UTF-8."""

    content_type = "text/plain"

    def dumps(self, value: Any) -> bytes:
        """Return the text in UTF-8. Raises TypeError for other values."""
        if not isinstance(value, str):
            raise TypeError(f"must be a str, not {type(value).__name__}")
        return value.encode()

    def loads(self, body: bytes, kind: Any) -> str:
        """Return the text. Raises UnicodeDecodeError."""
        self.check_type(kind)
        return body.decode()

    def check_type(self, kind: Any) -> None:
        """Raise InvalidArgumentError for any type but str."""
        _check_one_of(kind, (str,), "StrSerializer reads bodies as str")


class JsonSerializer:
    """JSON documents as dict, list, str, int, float, bool and None.

    Writes dataclasses, datetimes, UUIDs and enums, too, as orjson does. Reads plain values only:
    PydanticSerializer reads models.
    """

    content_type = "application/json"

    def dumps(self, value: Any) -> bytes:
        """Return the JSON document. Raises TypeError for a value that JSON cannot express."""
        return orjson.dumps(value)

    def loads(self, body: bytes, kind: Any) -> Any:
        """Return the value, whose outermost type is `kind`. Raises ValueError for any other document."""
        self.check_type(kind)
        value = orjson.loads(body)
        if kind in (ANY_TYPE, object):
            return value
        wanted = get_origin(kind) or kind
        # A JSON number without a fraction is a float, too. True is no number.
        found = type(value)
        if found is not wanted and not (wanted is float and found is int):
            raise ValueError(f"a JSON {_json_name(value)} where {wanted.__name__} was expected")
        return float(value) if wanted is float else value

    def check_type(self, kind: Any) -> None:
        """Raise InvalidArgumentError for a type that is no plain JSON."""
        cure = "JsonSerializer reads plain JSON; use PydanticSerializer for models, dataclasses and unions"
        _check_one_of(get_origin(kind) or kind, _PLAIN_JSON, cure)


class PydanticSerializer:
    """JSON documents as values of any type that pydantic validates: models, dataclasses, `list[Order]`.

    `strict`: no conversions, such as from the text `"1"` to a number.
    """

    content_type = "application/json"

    def __init__(self, *, strict: bool = False) -> None:
        """Raises InvalidArgumentError."""
        if not isinstance(strict, bool):
            raise refuse("strict", strict, "must be True or False")
        self._strict = strict

    def dumps(self, value: Any) -> bytes:
        """Return the JSON document. Raises PydanticSerializationError for other values."""
        return to_json(value)

    def loads(self, body: bytes, kind: Any) -> Any:
        """Return the validated value. Raises ValueError, whose cause is pydantic's ValidationError."""
        try:
            return _adapter(kind).validate_json(body, strict=self._strict or None)
        except ValidationError as error:
            # pydantic's own text shows the input, which does not belong into logs.
            raise ValueError("; ".join(_problems(error))) from error

    def check_type(self, kind: Any) -> None:
        """Raise InvalidArgumentError for a type that pydantic cannot validate."""
        try:
            reason = None if _adapter(kind).pydantic_complete else "it names a type that is unknown here"
        except (PydanticUserError, NameError) as error:
            reason = str(error).splitlines()[0]
        if reason is not None:
            raise refuse("kind", kind, f"must be a type that pydantic can validate ({reason})")


def _problems(error: ValidationError) -> list[str]:
    """Return where a body is wrong, and how."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    places = [".".join(str(step) for step in one["loc"]) for one in found]
    return [
        f"{place}: {one['msg']}" if place else one["msg"] for place, one in zip(places, found, strict=True)
    ]


@lru_cache(_CACHED_TYPES)
def _cached_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        hash(kind)
    except TypeError:  # Annotated[...] with metadata that has no hash
        return TypeAdapter(kind)
    return _cached_adapter(kind)


def _check_one_of(kind: Any, types: tuple[type, ...], cure: str) -> None:
    if kind not in (ANY_TYPE, object) and kind not in types:
        raise refuse("kind", kind, f"cannot be read: {cure}")


def _json_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def check_body_type(serializer: Serializer, kind: Any) -> None:
    """Ask the serializer whether it can read bodies as this type. Raises InvalidArgumentError."""
    check: Callable[[Any], None] | None = getattr(serializer, "check_type", None)
    if check is not None:
        check(kind)


def check_serializer(name: str, value: object) -> Serializer:
    """Check that an object has the parts of a serializer."""
    if isinstance(value, type) or not isinstance(value, Serializer):
        cure = "must be a serializer, such as PydanticSerializer(): content_type, dumps and loads"
        raise refuse(name, value, cure)
    if not isinstance(value.content_type, str) or not value.content_type:
        raise refuse(f"{name}.content_type", value.content_type, "must be a media type, a str")
    return value
