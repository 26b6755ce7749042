"""Metrics as values, and their exposition for Prometheus (text format 0.0.4).

Hot paths count in plain integers and in `Histogram`s. During a scrape, collectors turn these into families.
Rendering is a generator, so that its caller can pause between lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from .histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


Labels = tuple[str, ...]
Number = int | float


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one metric: label values, in the order of the label names, and the current value.

    `name` is the name of the samples: a counter's ends in `_total`, a histogram's is without `_bucket`.
    `series` is read once, line by line, while the daemon continues to work: copy a map that may change.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    series: Iterable[tuple[Labels, Number | Histogram]]
    label_names: Labels = ()


# Among families: nothing to expose. A collector with much to compute yields it between parts of the work.
PAUSE: Final = Family("", "gauge", "", ())


class Collector(Protocol):
    """Supplies families for a scrape; runs on the daemon's loop, so it must not compute for long."""

    def collect(self) -> Iterable[Family]:
        """Return the families with their current values."""
        ...


def gauge(name: str, meaning: str, value: Number) -> Family:
    """Return a gauge without labels."""
    return Family(name, "gauge", meaning, [((), value)])


def counter(name: str, meaning: str, value: Number) -> Family:
    """Return a counter without labels; its name must end in `_total`."""
    return Family(name, "counter", meaning, [((), value)])


@dataclass(frozen=True, slots=True)
class Field:
    """The metric of a plain number in an attribute of an object."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str


def fields_of(
    label_name: str, sources: Mapping[str, object], fields: Mapping[str, Field]
) -> Iterator[Family]:
    """Yield families of objects that count in plain attributes; `fields` maps an attribute to its metric.

    `sources` maps the value of the label to the object.
    """
    for attribute, field in fields.items():
        series = [((name,), getattr(source, attribute)) for name, source in sources.items()]
        yield Family(field.name, field.kind, field.meaning, series, (label_name,))


def render(families: Iterable[Family], common_labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the exposition, one or a few lines at a time; every series gets the common labels."""
    common = [f'{name}="{_escape(value)}"' for name, value in common_labels.items()]
    for family in families:
        if family is PAUSE:
            yield ""
            continue
        yield f"# HELP {family.name} {_escape_help(family.meaning)}\n# TYPE {family.name} {family.kind}\n"
        for values, value in family.series:
            labels = common + [
                f'{name}="{_escape(text)}"' for name, text in zip(family.label_names, values, strict=True)
            ]
            if isinstance(value, Histogram):
                yield _histogram_lines(family.name, labels, value)
            else:
                yield f"{family.name}{_braces(labels)} {_number(value)}\n"


def _histogram_lines(name: str, labels: list[str], histogram: Histogram) -> str:
    lines: list[str] = []
    below = 0
    for bound, count in zip([*histogram.bounds, math.inf], list(histogram.counts), strict=True):
        below += count
        bucket = _braces([*labels, f'le="{_number(float(bound))}"'])
        lines.append(f"{name}_bucket{bucket} {below}\n")
    lines.append(f"{name}_sum{_braces(labels)} {_number(histogram.total)}\n")
    lines.append(f"{name}_count{_braces(labels)} {below}\n")
    return "".join(lines)


def _braces(labels: list[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""


def _number(value: Number) -> str:
    if value == math.inf:
        return "+Inf"
    if value == -math.inf:
        return "-Inf"
    return "NaN" if value != value else repr(+value)  # a bool as 0 or 1


def _escape(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
