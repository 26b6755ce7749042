"""Declaration of a daemon's settings: type, key, default, unit, range and meaning of each in one place.

    class LogSettings(SettingsGroup):
        '''Logs'''
        level: LogLevel = live(LogLevel.INFO, "logLevel", "Least severity that is logged.")

A daemon's settings are one model that inherits such groups: flat for the operator, while each part of the
daemon depends only on the group that it needs. Keys and defaults are Apache RocketMQ 5.3.3's unless a setting
is marked with `ours`. Reading files and changing settings at run time is the task of `configuration.py`.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .unsupported_settings import UnsupportedSetting

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT_RANGE: Final = (-(2**31), 2**31 - 1)
_LONG_RANGE: Final = (-(2**63), 2**63 - 1)

MASK: Final = "******"
"""Shown in place of a secret that is set."""


class Unacceptable(ValueError):
    """Raised by the validator of a setting; the message follows 'must be'."""


def parse_integer(value: object) -> object:
    """Return the text of a whole number as an int; leave other types to the model's validation."""
    if isinstance(value, str):
        text = value.strip()
        if not _INTEGER.fullmatch(text):
            raise ValueError("not a whole number")
        return int(text)
    return value


def parse_boolean(value: object) -> object:
    """Return 'true' or 'false', in any case, as a bool.

    Java's parseBoolean takes any other text for false, but a typing error must not switch a setting off.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if text not in ("true", "false"):
            raise ValueError("not a boolean")
        return text == "true"
    return value


def parse_optional_boolean(value: object) -> object:
    """Return None for empty text, other text as `parse_boolean` does."""
    return None if isinstance(value, str) and not value.strip() else parse_boolean(value)


def parse_path(value: object) -> object:
    """Return text as a path, with `${user.home}` and a leading `~` resolved; None for empty text."""
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        return Path(text.replace("${user.home}", str(Path.home()))).expanduser()
    return value


def _strip(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a setting's type, as shown to people."""

    text: str


JavaInt = Annotated[int, BeforeValidator(parse_integer), Field(ge=_INT_RANGE[0], le=_INT_RANGE[1])]
JavaLong = Annotated[int, BeforeValidator(parse_integer), Field(ge=_LONG_RANGE[0], le=_LONG_RANGE[1])]
JavaBoolean = Annotated[bool, BeforeValidator(parse_boolean)]
OptionalBoolean = Annotated[bool | None, BeforeValidator(parse_optional_boolean)]
JavaString = Annotated[str, BeforeValidator(_strip)]
FilePath = Annotated[Path, BeforeValidator(parse_path)]
OptionalPath = Annotated[Path | None, BeforeValidator(parse_path)]

Natural = Annotated[int, BeforeValidator(parse_integer), Field(ge=0, le=_INT_RANGE[1])]
_Positive = Annotated[int, BeforeValidator(parse_integer), Field(ge=1, le=_INT_RANGE[1])]
Port = Annotated[int, BeforeValidator(parse_integer), Field(ge=0, le=65535)]
Count = _Positive
ThreadCount = Annotated[int, BeforeValidator(parse_integer), Field(ge=1, le=1024), Unit("threads")]
ByteCount = Annotated[Natural, Unit("bytes")]
Percent = Annotated[int, BeforeValidator(parse_integer), Field(ge=0, le=100), Unit("%")]
Milliseconds = Annotated[_Positive, Unit("ms")]
MillisecondsOrZero = Annotated[Natural, Unit("ms")]
Seconds = Annotated[_Positive, Unit("s")]
SecondsOrZero = Annotated[Natural, Unit("s")]


def setting(
    default: Any = PydanticUndefined,
    key: str = "",
    meaning: str = "",
    *,
    unit: str = "",
    changeable: bool = False,
    ours: bool = False,
    secret: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
    default_factory: Any = None,
    default_text: str | None = None,
) -> Any:
    """Declare a setting that is fixed at start.

    `unit` is needed if the type has none; `minimum` and `maximum` narrow the type's bounds; `ours` marks a
    key that Apache does not have; a `secret` is masked wherever it would be shown; `default_text` is shown in
    place of a default that depends on the machine (`default_factory`), which is validated like a given value.
    """
    extra = {
        "unit": unit,
        "changeable": changeable,
        "ours": ours,
        "secret": secret,
        "default_text": default_text,
    }
    options: dict[str, Any] = {"alias": key, "description": meaning, "json_schema_extra": extra}
    if minimum is not None:
        options["ge"] = minimum
    if maximum is not None:
        options["le"] = maximum
    if default_factory is not None:
        return Field(default_factory=default_factory, validate_default=True, **options)
    return Field(default, **options)


def live(*arguments: Any, **options: Any) -> Any:
    """Declare a setting that can be changed at run time; otherwise as `setting`.

    Users must read it from the settings object each time.
    """
    return setting(*arguments, changeable=True, **options)


class SettingsGroup(BaseModel):
    """Base of all groups of settings; a group's docstring is its title.

    A daemon's own model sets `unsupported` to the values that it refuses, for any known key.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid", strict=False, defer_build=True)
    unsupported: ClassVar[tuple[UnsupportedSetting, ...]] = ()

    def resolve(self) -> list[str]:
        """Set the values that depend on other settings; return notes for the operator, one line each.

        Called once after loading. An override must call `super().resolve()`, too. Raises ValueError for
        settings that contradict each other.
        """
        return []


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The declaration of one setting of a model."""

    name: str
    key: str
    group: str
    meaning: str
    unit: str
    choices: str
    default: str
    changeable: bool
    ours: bool
    secret: bool


@dataclass(frozen=True, slots=True)
class SettingRow:
    """An entry of `--print-config`: a setting and the value in force, masked if it is a secret."""

    info: SettingInfo
    current: str
    given: bool


def fields_by_key(model: type[SettingsGroup]) -> dict[str, str]:
    """Return the settings of a model: key in a file -> attribute name."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def describe_settings(model: type[SettingsGroup]) -> Iterator[SettingInfo]:
    """Yield every setting of a model: the model's own first, then group by group in the order of its bases.

    A setting whose default alone is overridden by the model stays in its group.
    """
    groups = [
        cls for cls in model.__mro__ if issubclass(cls, SettingsGroup) and cls not in (SettingsGroup, model)
    ]
    shared = {name for cls in groups for name in inspect.get_annotations(cls)}
    seen: set[str] = set()
    for cls in [model, *groups]:
        title = (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")
        names = [name for name in inspect.get_annotations(cls) if name in model.model_fields]
        for name in names:
            if name not in seen and not (cls is model and name in shared):
                seen.add(name)
                yield _info(name, model.model_fields[name], title)


def allowed_text(field: FieldInfo) -> str:
    """Return the allowed values of a setting, as a phrase that follows 'must be'."""
    kind = field.annotation
    if kind is bool or kind == bool | None:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    if kind is int or kind == int | None:
        least, most = _bounds(field)
        return f"a whole number from {least} to {most}"
    if kind is Path or kind == Path | None:
        return "a path"
    return "text"


def default_text(field: FieldInfo) -> str:
    """Return the text that is shown in place of a default that depends on the machine; empty without one."""
    extra = cast(dict[str, Any], field.json_schema_extra)
    return extra["default_text"] or ""


def to_text(value: object) -> str | None:
    """Return a setting's value as text for a properties file; None if it is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    return str(value)


def shown_text(info: SettingInfo, value: object) -> str | None:
    """Return a setting's value as text for people: a secret that is set is masked."""
    return MASK if info.secret and value else to_text(value)


def secret_keys(model: type[SettingsGroup]) -> frozenset[str]:
    """Return the keys of the secrets among the settings of a model."""
    return frozenset(info.key for info in describe_settings(model) if info.secret)


def _info(name: str, field: FieldInfo, group: str) -> SettingInfo:
    extra = cast(dict[str, Any], field.json_schema_extra)
    default = extra["default_text"]
    if default is None:
        default = to_text(field.get_default(call_default_factory=True)) or ""
    return SettingInfo(
        name=name,
        key=field.alias or name,
        group=group,
        meaning=field.description or "",
        unit=extra["unit"] or next((item.text for item in field.metadata if isinstance(item, Unit)), ""),
        choices=_choices_text(field),
        default=default,
        changeable=extra["changeable"],
        ours=extra["ours"],
        secret=extra["secret"],
    )


def _choices_text(field: FieldInfo) -> str:
    """Return the choices or the range of a setting, empty if they are evident from its type."""
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " | ".join(str(member.value) for member in kind)
    return _range_text(field)


def _bounds(field: FieldInfo) -> tuple[int, int]:
    # A setting's own bounds are listed beside those of its type; the narrowest applies.
    least = max((item.ge for item in field.metadata if hasattr(item, "ge")), default=_LONG_RANGE[0])
    most = min((item.le for item in field.metadata if hasattr(item, "le")), default=_LONG_RANGE[1])
    return least, most


def _range_text(field: FieldInfo) -> str:
    """Return a number's bounds, without those of its Java type."""
    least, most = _bounds(field)
    below, above = least > _INT_RANGE[0], most < _INT_RANGE[1]
    if below and above:
        return f"from {least} to {most}"
    if below:
        return f"at least {least}"
    return f"at most {most}" if above else ""
