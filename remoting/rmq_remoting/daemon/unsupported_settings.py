"""Values of Apache's settings that ask for a feature these daemons do not have.

A daemon that ignored such a value would serve without the protection that the operator asked for, so it
refuses to start, and refuses the value at run time as well. Each daemon lists its rules in
`SettingsGroup.unsupported`; `configuration.py` checks them in one place for both cases. Every other value of
the same key is accepted: `authenticationEnabled=false` asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RefusedValues:
    """The values of a key that are refused: `text` names them for people, `match` recognizes one.

    `match` gets the value as it was given, after the check of its type.
    """

    text: str
    match: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class UnsupportedSetting:
    """One key, the values of it that are refused, the feature that is missing, and a remedy.

    `missing` is a noun phrase in the singular; `instead` begins with an imperative.
    """

    key: str
    values: RefusedValues
    missing: str
    instead: str

    @property
    def reason(self) -> str:
        """Text that follows `key=value: ` in an error message."""
        return f"{self.missing} is not supported by this version; {self.instead}"


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"


TRUE: Final = RefusedValues("`true`", _is_true)
NOT_EMPTY: Final = RefusedValues("any value", lambda value: bool(value.strip()))


def one_of(*values: str) -> RefusedValues:
    """Refuse exactly these values."""
    return RefusedValues(", ".join(f"`{value}`" for value in values), lambda value: value.strip() in values)


def other_than(*values: str) -> RefusedValues:
    """Refuse everything but these values (in any case of letters) and empty text."""
    accepted = {value.lower() for value in values} | {""}
    names = " and ".join(f"`{value}`" for value in values)
    return RefusedValues(f"all but {names}", lambda value: value.strip().lower() not in accepted)


def above(limit: int) -> RefusedValues:
    """Refuse whole numbers above `limit`."""
    return RefusedValues(f"above {limit}", lambda value: int(value) > limit)


def several(separator: str) -> RefusedValues:
    """Refuse a list of more than one item; a single item may end with the separator."""
    return RefusedValues(
        f"several, separated by `{separator}`",
        lambda value: len([part for part in value.split(separator) if part.strip()]) > 1,
    )


METRICS: Final = (
    UnsupportedSetting(
        "metricsExporterType",
        one_of("OTLP_GRPC", "LOG"),
        "this metrics exporter",
        "set PROM and let Prometheus or an OpenTelemetry collector fetch /metrics, or set DISABLE",
    ),
)
