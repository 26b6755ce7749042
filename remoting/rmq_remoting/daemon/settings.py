"""How a daemon declares its settings: typed, each with key, default, unit, range and meaning in one place.

    class LogSettings(SettingsGroup):
        '''Logs'''
        level: LogLevel = live(LogLevel.INFO, "logLevel", "Least level that is logged.")

A daemon's settings are one model that inherits such groups: one flat object for the operator, while each
part of the daemon asks for the group that it needs. Keys and defaults are Apache RocketMQ 5.3.3's unless
a setting is marked as ours. Reading files and changing settings at run time is `configuration.py`.
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


class Unacceptable(ValueError):
    """Raised by a setting's own validator; the message follows 'must be'."""


def parse_integer(value: object) -> object:
    """Text of a whole number as an int; anything that is not text is left to the model's own check."""
    if isinstance(value, str):
        text = value.strip()
        if not _INTEGER.fullmatch(text):
            raise ValueError("not a whole number")
        return int(text)
    return value


def parse_boolean(value: object) -> object:
    """'true' or 'false' in any case, as a bool.

    Java's parseBoolean takes every other text for false; a typing error must not switch a setting off.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if text not in ("true", "false"):
            raise ValueError("not a boolean")
        return text == "true"
    return value


def parse_path(value: object) -> object:
    """Text as a path, with `${user.home}` and a leading `~` resolved; nothing at all for empty text."""
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
    """The unit of a setting's type, for people."""

    text: str


JavaInt = Annotated[int, BeforeValidator(parse_integer), Field(ge=_INT_RANGE[0], le=_INT_RANGE[1])]
JavaLong = Annotated[int, BeforeValidator(parse_integer), Field(ge=_LONG_RANGE[0], le=_LONG_RANGE[1])]
JavaBoolean = Annotated[bool, BeforeValidator(parse_boolean)]
JavaString = Annotated[str, BeforeValidator(_strip)]
FilePath = Annotated[Path, BeforeValidator(parse_path)]
OptionalPath = Annotated[Path | None, BeforeValidator(parse_path)]

_Natural = Annotated[int, BeforeValidator(parse_integer), Field(ge=0, le=_INT_RANGE[1])]
_Positive = Annotated[int, BeforeValidator(parse_integer), Field(ge=1, le=_INT_RANGE[1])]
Port = Annotated[int, BeforeValidator(parse_integer), Field(ge=0, le=65535)]
Count = _Positive
ThreadCount = Annotated[int, BeforeValidator(parse_integer), Field(ge=1, le=1024), Unit("threads")]
ByteCount = Annotated[_Natural, Unit("bytes")]
Percent = Annotated[int, BeforeValidator(parse_integer), Field(ge=0, le=100), Unit("%")]
Milliseconds = Annotated[_Positive, Unit("ms")]
MillisecondsOrZero = Annotated[_Natural, Unit("ms")]
Seconds = Annotated[_Positive, Unit("s")]
SecondsOrZero = Annotated[_Natural, Unit("s")]


def setting(
    default: Any = PydanticUndefined,
    key: str = "",
    meaning: str = "",
    *,
    unit: str = "",
    changeable: bool = False,
    ours: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
    default_factory: Any = None,
    default_text: str | None = None,
) -> Any:
    """One setting that is fixed at start.

    `unit` where the type does not say it; `minimum` and `maximum` narrow the type's bounds; `ours` where
    Apache has no such key; `default_text` is shown in place of a default that depends on the machine
    (`default_factory`).
    """
    extra = {"unit": unit, "changeable": changeable, "ours": ours, "default_text": default_text}
    options: dict[str, Any] = {"alias": key, "description": meaning, "json_schema_extra": extra}
    if minimum is not None:
        options["ge"] = minimum
    if maximum is not None:
        options["le"] = maximum
    if default_factory is not None:
        return Field(default_factory=default_factory, **options)
    return Field(default, **options)


def live(*arguments: Any, **options: Any) -> Any:
    """A setting as `setting` makes it, that can be changed while the daemon runs.

    Whoever uses it reads it from the settings object each time, never once.
    """
    return setting(*arguments, changeable=True, **options)


class SettingsGroup(BaseModel):
    """Base of all groups of settings; a group's docstring is its title.

    A daemon's own model sets `unsupported` to the values that it refuses, of any key that it knows.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid", strict=False)
    unsupported: ClassVar[tuple[UnsupportedSetting, ...]] = ()

    def settle(self) -> list[str]:
        """Fill in what depends on other settings; tell what the operator should know, one line each.

        Called once after loading. A group that overrides it calls `super().settle()` too. Raises
        ValueError for settings that cannot go together.
        """
        return []


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What is declared about one setting of a model."""

    name: str
    key: str
    group: str
    meaning: str
    unit: str
    choices: str
    default: str
    changeable: bool
    ours: bool


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One line of `--print-config` and of the reference page: a setting and the value in force."""

    info: SettingInfo
    current: str
    given: bool


def fields_by_key(model: type[SettingsGroup]) -> dict[str, str]:
    """The settings of a model: key in a file -> attribute name."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def describe_settings(model: type[SettingsGroup]) -> Iterator[SettingInfo]:
    """Every setting of a model: the model's own first, then group by group in the order of its bases.

    A setting that the model only gives another default stays in its group.
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
    """What a setting's value may be, as a phrase that follows 'must be'."""
    kind = field.annotation
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    if kind is int or kind == int | None:
        least, most = _bounds(field)
        return f"a whole number from {least} to {most}"
    if kind is Path or kind == Path | None:
        return "a path"
    return "text"


def to_text(value: object) -> str | None:
    """A setting's value as it stands in a properties file; None where the setting is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    return str(value)


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
    )


def _choices_text(field: FieldInfo) -> str:
    """What there is to choose from, where it does not go without saying."""
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " | ".join(str(member.value) for member in kind)
    return _range_text(field)


def _bounds(field: FieldInfo) -> tuple[int, int]:
    # A setting's own bounds come beside those of its type; the narrowest counts.
    least = max((item.ge for item in field.metadata if hasattr(item, "ge")), default=_LONG_RANGE[0])
    most = min((item.le for item in field.metadata if hasattr(item, "le")), default=_LONG_RANGE[1])
    return least, most


def _range_text(field: FieldInfo) -> str:
    """A number's bounds, without those that only come from its size in Java."""
    least, most = _bounds(field)
    below, above = least > _INT_RANGE[0], most < _INT_RANGE[1]
    if below and above:
        return f"from {least} to {most}"
    if below:
        return f"at least {least}"
    return f"at most {most}" if above else ""
