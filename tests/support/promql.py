"""Which metrics, and which labels of them, an expression of Prometheus asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_METRIC: Final = re.compile(r"\b((?:rocketmq|rmq|process|python)_[a-z0-9_]+)\b(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_TEXT: Final = re.compile(r'"[^"]*"')
_GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")


def metrics_asked_for(expression: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Each name of ours in it, with the labels that its matchers name."""
    for found in _METRIC.finditer(_without_texts_of_labels(expression)):
        yield found[1], frozenset(_MATCHER.findall(found[2] or ""))


def labels_grouped_by(expression: str) -> frozenset[str]:
    """The labels of all its `by (…)`."""
    return frozenset(
        label.strip() for found in _GROUPING.finditer(expression) for label in found[1].split(",")
    )


def _without_texts_of_labels(expression: str) -> str:
    """Values of labels may look like names, or hold braces."""
    return _TEXT.sub('""', expression)
