"""Declaration and parsing of options: name, type, default, unit and meaning of each in one place.

    class PullOptions(OptionGroup):
        '''Pulling'''
        pull_batch_size: Count = option("pullBatchSize", "How many messages one pull asks for.", 1024)

All options for one purpose are a frozen dataclass that inherits such groups. Spark passes options as texts,
with names in lower case; names are compared case-insensitively. Every invalid option raises OptionError.
"""

from __future__ import annotations

import difflib
import enum
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Final, Self, dataclass_transform, get_args, get_type_hints

from ..errors import OptionError, UnknownOption

log = logging.getLogger(__name__)

# Options that Spark itself adds for a source or sink: load(path), save(path), start(path), and the name and
# the checkpoint of a streaming query (found with a source that prints its options, PySpark 4.3).
SPARK_RESERVED: Final = frozenset({"path", "paths", "queryname", "checkpointlocation"})

SDK_PREFIX: Final = "rocketmq."

# Shown in place of the value of a secret option.
REDACTED: Final = "(not shown)"

_DECLARATION: Final = "declaration"


class Mode(enum.Enum):
    """Kind of read or write that options are for."""

    BATCH = "batch"
    STREAM = "stream"


class OtherMode(enum.Enum):
    """Treatment of an option in a mode that it is not for."""

    REJECTED = "rejected"
    # As Spark's Kafka source treats the limits per trigger in a batch read (KafkaSourceProvider).
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class OptionType:
    """Type of an option: how its text is parsed.

    `parse` raises ValueError, with a message if `allowed` does not explain the error. `allowed` completes
    the sentence 'it must be …'.
    """

    parse: Callable[[str], object]
    allowed: str
    unit: str = ""

    def read(self, value: object) -> object:
        """Parse a given value. Raises ValueError."""
        if not isinstance(value, str):
            raise ValueError(f"the value must be a text, not {type(value).__name__}")
        return self.parse(value.strip())


@dataclass(frozen=True, slots=True)
class _Declaration:
    """The parts of `option` other than the default."""

    name: str
    meaning: str
    default_text: str | None
    only: Mode | None
    in_other_mode: OtherMode
    secret: bool


def option(
    name: str,
    meaning: str,
    default: Any = MISSING,
    *,
    default_text: str | None = None,
    only: Mode | None = None,
    in_other_mode: OtherMode = OtherMode.REJECTED,
    secret: bool = False,
) -> Any:
    """Declare one option; without a default it is required.

    `default_text`: shown instead of a default that depends on other options. `only`: the mode that the option
    is for; `in_other_mode`: its treatment in the other mode. `secret`: its value never appears in a message.
    """
    declaration = _Declaration(name, meaning, default_text, only, in_other_mode, secret)
    return field(default=default, repr=not secret, metadata={_DECLARATION: declaration})


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """The declaration of one option of a group."""

    name: str
    field_name: str
    form: OptionType
    group: str
    meaning: str
    default: str
    required: bool
    only: Mode | None
    in_other_mode: OtherMode
    secret: bool

    @property
    def allowed(self) -> str:
        """The allowed values: the end of a sentence 'it must be …'."""
        return self.form.allowed

    @property
    def unit(self) -> str:
        """The unit of a number; empty for other values."""
        return self.form.unit

    def shown(self, text: str | None) -> str | None:
        """Return a given value for use in messages: redacted for a secret option."""
        return REDACTED if self.secret and text is not None else text


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class OptionGroup:
    """Base of all groups of options. The docstring of a group is its title in the reference.

    Each subclass is a frozen dataclass of its options.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    # Names of options in other connectors, in lower case, and their names here.
    foreign_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def purpose(cls) -> str:
        """Return the purpose of the options for messages: 'reading' or 'writing'."""
        raise NotImplementedError

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a batch read or write. Raises OptionError."""
        return cls.read(options, Mode.BATCH)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a streaming read or write. Raises OptionError."""
        return cls.read(options, Mode.STREAM)

    @classmethod
    def read(cls, options: Mapping[str, str], mode: Mode) -> Self:
        """Parse options as Spark passes them. Raises OptionError for the first invalid one."""
        given = _applicable(cls, options, mode)
        read = cls(**_values(cls, {info.name: text for info, text in given}))
        try:
            read.check(mode)
        except OptionError as error:
            as_given = {info.name: info.shown(text) for info, text in given}.get(error.option)
            raise OptionError(error.option, as_given, error.allowed, error.reason) from error
        return read

    def check(self, mode: Mode) -> None:
        """Reject contradictions between options. A group that overrides it calls `super().check(mode)`.

        Raises OptionError without the value, which `read` adds.
        """


def option_infos(model: type[OptionGroup]) -> tuple[OptionInfo, ...]:
    """Return every option of a model, group by group in the order of its bases."""
    known = {declared.name: declared for declared in fields(model)}
    hints = get_type_hints(model, include_extras=True)
    found: list[OptionInfo] = []
    for cls in model.__mro__:
        if issubclass(cls, OptionGroup) and cls is not OptionGroup:
            title = (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")
            own = [name for name in inspect.get_annotations(cls) if name in known]
            found += [_info(known[name], hints[name], title) for name in own]
    return tuple(found)


def option_name(model: type[OptionGroup], field_name: str) -> str:
    """Return the name of the option of a field."""
    return next(info.name for info in option_infos(model) if info.field_name == field_name)


def to_text(value: object) -> str:
    """Return a default as a user would write it; an empty text for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, enum.Enum) else value)


def _info(declared: Field[Any], hint: Any, group: str) -> OptionInfo:
    declaration: _Declaration = declared.metadata[_DECLARATION]
    form = next(part for part in get_args(hint) if isinstance(part, OptionType))
    required = declared.default is MISSING
    shown = declaration.default_text
    return OptionInfo(
        name=declaration.name,
        field_name=declared.name,
        form=form,
        group=group,
        meaning=declaration.meaning,
        default=shown if shown is not None else "" if required else to_text(declared.default),
        required=required,
        only=declaration.only,
        in_other_mode=declaration.in_other_mode,
        secret=declaration.secret,
    )


def _applicable(
    model: type[OptionGroup], options: Mapping[str, str], mode: Mode
) -> list[tuple[OptionInfo, str]]:
    """Return the given options that apply in this mode. Raises OptionError for unknown ones."""
    known = {info.name.lower(): info for info in option_infos(model)}
    admitted: list[tuple[OptionInfo, str]] = []
    for name, text in options.items():
        if name.lower() in SPARK_RESERVED:
            continue
        info = known.get(name.lower())
        if info is None:
            raise UnknownOption(name, _suggestion(model, name, [info.name for info in known.values()]))
        if info.only in (None, mode):
            admitted.append((info, text))
        elif info.in_other_mode is OtherMode.REJECTED:
            allowed = f"left out: it is for {_mode_text(model, info.only)} only"
            raise OptionError(info.name, info.shown(text), allowed)
        else:
            log.warning("option without effect option=%s mode=%s", info.name, mode.value)
    return admitted


def _mode_text(model: type[OptionGroup], mode: Mode | None) -> str:
    return f"{model.purpose()} a {mode.value}" if mode else model.purpose()


def _suggestion(model: type[OptionGroup], name: str, known: list[str]) -> str:
    if name.lower() in model.foreign_names:
        return f"the name here is {model.foreign_names[name.lower()]}"
    if name.lower().startswith(SDK_PREFIX):
        of_sdk = [other for other in known if other.startswith(SDK_PREFIX)]
        return f"settings of the client are {', '.join(of_sdk)}"
    by_lower = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower()[:100], by_lower, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(by_lower[other] for other in near)}?"
    return f"options for {model.purpose()} are {', '.join(sorted(known))}"


def _values(model: type[OptionGroup], given: Mapping[str, str]) -> dict[str, object]:
    """Parse the given options, by the names of their fields. Raises OptionError for the first wrong one."""
    values: dict[str, object] = {}
    for info in option_infos(model):
        text = given.get(info.name)
        if text is None and info.name not in given:
            if info.required:
                raise OptionError(info.name, None, info.allowed)
            continue
        try:
            values[info.field_name] = info.form.read(text)
        except ValueError as error:
            raise OptionError(info.name, info.shown(text), info.allowed, str(error)) from error
    return values
