"""The metrics and labels that a Prometheus expression uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_METRIC: Final = re.compile(r"\b((?:rocketmq|rmq|process|python)_[a-z0-9_]+)\b(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_TEXT: Final = re.compile(r'"[^"]*"')
_GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")


def metrics_asked_for(expression: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Each of this project's metrics in it, with the labels that its matchers name."""
    for found in _METRIC.finditer(_without_texts_of_labels(expression)):
        yield found[1], frozenset(_MATCHER.findall(found[2] or ""))


def labels_grouped_by(expression: str) -> frozenset[str]:
    """The labels of all its `by (…)`."""
    return frozenset(
        label.strip() for found in _GROUPING.finditer(expression) for label in found[1].split(",")
    )


def _without_texts_of_labels(expression: str) -> str:
    """Remove the label values, which may look like names or hold braces."""
    return _TEXT.sub('""', expression)
