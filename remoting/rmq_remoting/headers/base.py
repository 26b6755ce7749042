"""The base of all typed headers: decoding from and encoding to a map of strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from ..errors import HeaderError, shown


class TypedHeader(Protocol):
    """Any header: a `Header`, or one of the hot path with a codec of its own."""

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""


class Header(BaseModel):
    """A command's ext fields as typed attributes; the wire name of a field is its alias."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
        extra="ignore",
    )

    @classmethod
    def decode(cls, ext_fields: Mapping[str, str]) -> Self:
        """Decode the header from ext fields.

        Raises HeaderError, with header and field, for a missing field or an invalid value.
        """
        try:
            # By wire names alone: a check of access looks at these, and another spelling would pass it by.
            return cls.model_validate(ext_fields, by_alias=True, by_name=False)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
                + (f" (got {shown(item['input'])})" if item["type"] != "missing" else "")
                for item in error.errors(include_url=False)
            )
            raise HeaderError(f"{cls.__name__}: {problems}") from error

    def encode(self) -> dict[str, str]:
        """Encode the ext fields: absent values are omitted, booleans are `true` and `false`."""
        return {
            name: _text(value) for name, value in self.model_dump(by_alias=True, exclude_none=True).items()
        }


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
