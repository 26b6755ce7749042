"""A daemon's configuration: settings from a file and the command line, some of them changeable at run time.

    SettingsError
    └── problems: list[Problem]     all problems, not only the first

A key of Apache's that has no effect here is accepted and noted in the log. The refusal of an unknown key
suggests the nearest known one. The refusal of a bad value lists the allowed values. The refusal of a value
that asks for a missing feature names a remedy (`unsupported_settings.py`).
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from . import properties
from .atomic_file import folder_locked, replace_file
from .known_keys import KnownKey
from .settings import (
    MASK,
    SettingRow,
    SettingsGroup,
    Unacceptable,
    allowed_text,
    default_text,
    describe_settings,
    fields_by_key,
    secret_keys,
    shown_text,
    to_text,
)

SettingsT = TypeVar("SettingsT", bound=SettingsGroup)
KnownKeys = Callable[[], Mapping[str, KnownKey]]


class ProblemKind(enum.Enum):
    """Kinds of problems with a setting."""

    UNREADABLE = "unreadable"
    UNKNOWN_KEY = "unknown key"
    BAD_VALUE = "bad value"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    NEEDS_RESTART = "needs restart"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused setting; its `str()` is a line for the operator."""

    kind: ProblemKind
    key: str
    value: str
    source: str
    reason: str
    nearest: str | None = None

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        if not self.key:
            return f"{where}{self.reason}"
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{where}{self.key}={self.value}: {self.reason}{hint}"


class SettingsError(Exception):
    """Settings that were refused; the message has one line per problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class Override(NamedTuple):
    """A setting that does not come from the file; `source` names the option or the environment variable."""

    key: str
    value: str
    source: str = "--set"


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a change at run time: `changed` maps a key to its (old, new) text."""

    changed: Mapping[str, tuple[str, str]]
    unused: Mapping[str, str]

    def __contains__(self, key: str) -> bool:
        return key in self.changed

    def __bool__(self) -> bool:
        return bool(self.changed or self.unused)


@dataclass(slots=True)
class _Given:
    """Settings as given: those in use here, Apache's others, and the source of each."""

    fields: dict[str, str] = dataclass_field(default_factory=dict)
    unused: dict[str, str] = dataclass_field(default_factory=dict)
    sources: dict[str, str] = dataclass_field(default_factory=dict)
    problems: list[Problem] = dataclass_field(default_factory=list)


def _no_known_keys() -> Mapping[str, KnownKey]:
    return {}


def _no_defaults(_: Sequence[Override]) -> list[Override]:
    return []


def load(
    model: type[SettingsT],
    file: Path | None = None,
    overrides: Iterable[Override] = (),
    known_keys: KnownKeys = _no_known_keys,
    defaults: Callable[[Sequence[Override]], list[Override]] = _no_defaults,
) -> Configuration[SettingsT]:
    """Load settings from a properties file, then the overrides; the last value of a key wins.

    `defaults` gets all of them, and returns settings that count where they lack the key. Raises SettingsError
    with all problems.
    """
    listed = [*(read_file(file) if file is not None else ()), *overrides]
    given = _sort(model, [*defaults(listed), *listed], known_keys)
    settings = _validate(model, given)
    try:
        notes = settings.resolve()
    except ValueError as error:
        raise SettingsError([Problem(ProblemKind.CONFLICT, "", "", "", str(error))]) from error
    configuration = Configuration(settings, known_keys, file, given.fields)
    configuration.unused.update(given.unused)
    configuration.notes += [_unused_note(key, given, known_keys()) for key in given.unused] + notes
    return configuration


class Configuration(Generic[SettingsT]):
    """The settings in force, and given keys without effect.

    `settings` is one object for the daemon's whole life. A change at run time sets its attributes, so users
    of a changeable setting must read it from here each time. `notes` are lines for the log at start; `unused`
    are given keys of Apache's that have no effect.
    """

    def __init__(
        self,
        settings: SettingsT,
        known_keys: KnownKeys = _no_known_keys,
        file: Path | None = None,
        given: Iterable[str] = (),
    ) -> None:
        self.settings = settings
        self.file = file
        self.notes: list[str] = []
        self.unused: dict[str, str] = {}
        self._known_keys = known_keys
        self._given = set(given)
        self._listeners: list[Callable[[Change], None]] = []
        self._lock = threading.Lock()

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after each change, in the thread of the change."""
        self._listeners.append(listener)

    @property
    def listener_count(self) -> int:
        """How many listeners there are."""
        return len(self._listeners)

    def drop_listeners(self, keep: int) -> None:
        """Keep only the first listeners: the others belong to a part that has stopped."""
        del self._listeners[keep:]

    def update(self, changes: Mapping[str, str], *, protected: Iterable[str] = ()) -> Change:
        """Change settings at run time. A value equal to the one in force is always accepted.

        A secret that is as masked as `to_properties` shows it is not changed. Raises SettingsError, with
        nothing changed, for an unknown key, a bad or unsupported value, a setting that needs a restart, or a
        key in `protected`.
        """
        model = type(self.settings)
        secrets = secret_keys(model)
        with self._lock:
            listed = [
                Override(key, value, "")
                for key, value in changes.items()
                if not (key in secrets and value == MASK)
            ]
            given = _sort(model, listed, self._known_keys)
            candidate = self._candidate(given)
            changed = self._differences(given, candidate)
            unused = {key: value for key, value in given.unused.items() if self.unused.get(key) != value}
            self._refuse([*changed, *unused], given, frozenset(protected))
            names = fields_by_key(model)
            for key in changed:
                setattr(self.settings, names[key], getattr(candidate, names[key]))
            self.unused.update(unused)
            self._given.update(changed)
            change = Change(changed, unused)
        if change:
            for listener in self._listeners:
                listener(change)
        return change

    def persist(self, change: Change) -> bool:
        """Write a change into the loaded file; its other lines stay as they are.

        Blocks on the disk. Return False if no file was loaded: the change then ends with the process. Raises
        OSError if the file cannot be written.
        """
        if self.file is None:
            return False
        file = self.file.resolve()
        # Several daemons may have the same file, as the shards of one host do.
        with self._lock, folder_locked(file.parent):
            new = {key: value for key, (_, value) in change.changed.items()} | dict(change.unused)
            replace_file(file, properties.edit_bytes(file.read_bytes(), new))
        return True

    def to_properties(self) -> dict[str, str]:
        """Return every setting with a value, and the given keys without effect, sorted by key.

        Secrets are masked.
        """
        texts = {
            info.key: shown_text(info, getattr(self.settings, info.name))
            for info in describe_settings(type(self.settings))
        }
        given = {key: text for key, text in texts.items() if text is not None} | self.unused
        return dict(sorted(given.items()))

    def to_text(self) -> str:
        """Return the configuration for admin tools: `key=value` lines, sorted."""
        return properties.render(self.to_properties())

    def describe(self) -> list[SettingRow]:
        """Return every setting with its description and the value in force, group by group.

        Secrets are masked.
        """
        return [
            SettingRow(
                info, shown_text(info, getattr(self.settings, info.name)) or "", info.key in self._given
            )
            for info in describe_settings(type(self.settings))
        ]

    def _candidate(self, given: _Given) -> SettingsT:
        """Return the settings after the change, validated as a whole."""
        current = {name: getattr(self.settings, name) for name in type(self.settings).model_fields}
        names = fields_by_key(type(self.settings))
        for key in given.fields:
            del current[names[key]]
        return _validate(type(self.settings), given, current)

    def _differences(self, given: _Given, candidate: SettingsT) -> dict[str, tuple[str, str]]:
        """Return key -> (old, new) of the given settings that differ from those in force."""
        names = fields_by_key(type(self.settings))
        pairs = {
            key: (getattr(self.settings, names[key]), getattr(candidate, names[key])) for key in given.fields
        }
        return {
            key: (to_text(old) or "", to_text(new) or "") for key, (old, new) in pairs.items() if old != new
        }

    def _refuse(self, keys: Iterable[str], given: _Given, protected: frozenset[str]) -> None:
        """Refuse keys that cannot be changed at run time. Raises SettingsError."""
        infos = {info.key: info for info in describe_settings(type(self.settings))}
        problems: list[Problem] = []
        for key in keys:
            info, value = infos.get(key), given.fields.get(key, given.unused.get(key, ""))
            if info is not None and info.secret:
                value = MASK
            if key in protected:
                reason = "cannot be changed remotely (configBlackList)"
                problems.append(Problem(ProblemKind.PROTECTED, key, value, "", reason))
            elif info is not None and not info.changeable:
                now = shown_text(info, getattr(self.settings, info.name))
                reason = f"takes effect only at start: set it in the file and restart (in force: {now})"
                problems.append(Problem(ProblemKind.NEEDS_RESTART, key, value, "", reason))
        if problems:
            raise SettingsError(problems)


def read_file(file: Path) -> list[Override]:
    """Return the settings of a properties file, in order. Raises SettingsError."""
    try:
        text = properties.decode(file.read_bytes())
        return [
            Override(entry.key, entry.value, f"{file.name} line {entry.line}")
            for entry in properties.entries(text)
        ]
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise SettingsError([Problem(ProblemKind.UNREADABLE, "", "", str(file), reason)]) from error
    except properties.PropertiesError as error:
        raise SettingsError([Problem(ProblemKind.UNREADABLE, "", "", str(file), str(error))]) from error


def _sort(model: type[SettingsGroup], listed: Iterable[Override], known_keys: KnownKeys) -> _Given:
    given = _Given()
    ours = fields_by_key(model)
    for key, value, source in listed:
        given.sources[key] = source
        if key in ours:
            given.fields[key] = value
            continue
        known = known_keys().get(key)
        if known is None:
            nearest = _nearest(key, [*ours, *known_keys()])
            reason = "no such setting" if nearest else "no such setting (--print-config lists them all)"
            given.problems.append(Problem(ProblemKind.UNKNOWN_KEY, key, value, source, reason, nearest))
        elif (problem := known.problem_with(value)) is not None:
            given.problems.append(Problem(ProblemKind.BAD_VALUE, key, value, source, f"must be {problem}"))
        else:
            given.unused[key] = value
    given.problems += _unsupported(model, given)
    return given


def _unsupported(model: type[SettingsGroup], given: _Given) -> list[Problem]:
    """Return the problems of values that ask for a missing feature; of a repeated key the last one counts."""
    values = given.fields | given.unused
    return [
        Problem(ProblemKind.UNSUPPORTED, rule.key, values[rule.key], given.sources[rule.key], rule.reason)
        for rule in model.unsupported
        if rule.key in values and rule.values.match(values[rule.key])
    ]


def _validate(model: type[SettingsT], given: _Given, others: Mapping[str, object] | None = None) -> SettingsT:
    """Return the model with the given settings (by key) and others (by name). Raises SettingsError."""
    try:
        settings = model.model_validate({**(others or {}), **given.fields})
    except ValidationError as error:
        names = fields_by_key(model)
        for item in error.errors(include_url=False):
            key = str(item["loc"][0]) if item["loc"] else ""
            cause = item.get("ctx", {}).get("error")
            # The key of a given value, or the attribute's name of a default that depends on the machine.
            field = model.model_fields.get(names.get(key, key))
            if field is None:
                reason = str(cause) if cause is not None else item["msg"]
                given.problems.append(Problem(ProblemKind.CONFLICT, "", "", "", reason))
                continue
            must = str(cause) if isinstance(cause, Unacceptable) else allowed_text(field)
            value = given.fields.get(key, str(item["input"]))
            source = given.sources.get(key, default_text(field))
            problem = Problem(ProblemKind.BAD_VALUE, field.alias or key, value, source, f"must be {must}")
            given.problems.append(problem)
        raise SettingsError(given.problems) from error
    if given.problems:
        raise SettingsError(given.problems)
    return settings


def _nearest(key: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that was probably meant: equal but for case, or similar in spelling."""
    import difflib  # noqa: PLC0415 (needed only when a daemon refuses to start)

    by_lower: dict[str, str] = {}
    for candidate in candidates:
        by_lower.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def _unused_note(key: str, given: _Given, known_keys: Mapping[str, KnownKey]) -> str:
    owner = known_keys[key].owner
    return f"{given.sources[key]}: {key} ({owner} of Apache RocketMQ) is accepted, but has no effect here"
