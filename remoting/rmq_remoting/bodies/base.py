"""The base of all typed bodies: decoding from and encoding to fastjson's dialect."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from ..codes import LanguageCode
from ..errors import BodyError
from . import fastjson

_MAX_PROBLEMS_TOLD: Final = 3
# pydantic describes all problems of a body or none. A million of them would cost seconds.
_MAX_PROBLEMS_DESCRIBED: Final = 100

# Texts that orjson and fastjson write differently: control characters and members that are null.
_WRITTEN_DIFFERENTLY: Final = re.compile(rb"\\u00|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|null")


class Body(BaseModel):
    """A JSON object with typed members; the wire name of a field is its alias.

    Decoding accepts the spellings that fastjson accepts: names in another case or with underscores, boolean
    names prefixed with `is`, numbers as text, unknown members (ignored) and null members (as if absent).
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
        extra="ignore",
        coerce_numbers_to_str=True,
    )

    _wire_order: ClassVar[tuple[tuple[str, str], ...]] = ()
    _known_names: ClassVar[frozenset[str]] = frozenset()
    _has_doubles: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Collect the wire names: members are written in alphabetical order, not in that of declaration."""
        super().__pydantic_init_subclass__(**kwargs)
        fields = cls.model_fields
        cls._wire_order = tuple(
            sorted((field.alias or name, name) for name, field in fields.items() if not field.exclude)
        )
        cls._known_names = frozenset(fields) | {field.alias or "" for field in fields.values()}
        cls._has_doubles = any(field.annotation is float for field in fields.values())

    @model_validator(mode="before")
    @classmethod
    def _accept_fastjson_spellings(cls, members: Any) -> Any:
        if type(members) is dict:
            known_names = cls._known_names
            for name, value in members.items():
                if value is None or name not in known_names:
                    return cls._respelled(members)
        return members

    @classmethod
    def _respelled(cls, members: dict[object, object]) -> dict[str, object]:
        given = {name: value for name, value in members.items() if value is not None}
        respelled = {name: given.pop(name) for name in cls._known_names if name in given}
        wire_names = _plain_names(cls)
        for name, value in given.items():
            if isinstance(name, str):
                plain = _plain(name)
                wire_name = wire_names.get(plain) or wire_names.get(plain.removeprefix("is"))
                if wire_name is not None:
                    respelled.setdefault(wire_name, value)
        return respelled

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Decode the body. Raises BodyError with class and field, JsonError with the position."""
        return cls.from_wire(fastjson.loads(data))

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """Decode the body of a request, which must be small enough for an event loop. Raises as `decode`."""
        return cls.from_wire(fastjson.loads(data, fastjson.REQUEST_LIMITS))

    @classmethod
    def from_wire(cls, members: object) -> Self:
        """Build the body from the result of `fastjson.loads`. Raises BodyError with class and field."""
        if not isinstance(members, dict):
            raise BodyError(f"{cls.__name__}: a JSON object is needed, not a {type(members).__name__}")
        try:
            return cls.model_validate(members)
        except ValidationError as error:
            raise BodyError(f"{cls.__name__}: {_problems(error)}") from error

    def to_wire(self) -> dict[str, object]:
        """Return the members by wire name, in alphabetical order as fastjson's, without absent ones."""
        values = self.__dict__
        return {
            wire_name: value for wire_name, name in self._wire_order if (value := values[name]) is not None
        }

    def encode(self) -> bytes:
        """Encode the body as Apache's classes do."""
        try:
            text = orjson.dumps(self, _standard_wire_form, orjson.OPT_PASSTHROUGH_DATACLASS)
        except TypeError:  # keys that are not text, or doubles
            return fastjson.dumps(self)
        return fastjson.dumps(self) if _WRITTEN_DIFFERENTLY.search(text) else text

    def encode_pretty(self) -> bytes:
        """Encode the body as Apache writes its configuration files."""
        return fastjson.dumps_pretty(self)

    def encode_standard(self) -> bytes:
        """Encode the body as standard JSON, which clients request with `acceptStandardJsonOnly`."""
        return fastjson.dumps_standard(self)


def _standard_wire_form(value: object) -> object:
    if isinstance(value, Body) and value._has_doubles:
        raise TypeError("orjson writes large and small doubles in its own way")
    return fastjson.wire_form(value)


@cache
def _plain_names(body: type[Body]) -> dict[str, str]:
    """Return the wire names by every normalized spelling: their own, and the Python name without its unit."""
    return {
        _plain(name): wire_name
        for wire_name, field in body._wire_order
        for name in (field.removesuffix("_ms"), wire_name)
    }


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _problems(error: ValidationError) -> str:
    count = error.error_count()
    if count > _MAX_PROBLEMS_DESCRIBED:
        return f"{count} missing or invalid fields"
    problems = error.errors(include_url=False, include_context=False)
    told = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        + (f" (got {problem['input']!r:.80})" if problem["type"] != "missing" else "")
        for problem in problems[:_MAX_PROBLEMS_TOLD]
    ]
    if len(problems) > len(told):
        told.append(f"and {len(problems) - len(told)} more")
    return "; ".join(told)


class WireEnum(StrEnum):
    """A Java enum: encoded as its name, decoded from its name or ordinal."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if type(value) is int and 0 <= value < len(cls):
            return list(cls)[value]
        return None


def _language(value: object) -> LanguageCode:
    try:
        return LanguageCode[value] if isinstance(value, str) else LanguageCode(value)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        return LanguageCode.OTHER


# An unknown (newer) language must not make a body invalid.
Language = Annotated[LanguageCode, BeforeValidator(_language)]
