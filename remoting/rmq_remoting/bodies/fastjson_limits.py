"""Limits of the values in a JSON text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from ..errors import JsonError


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The most values of a text, references expanded; and of one that needs the slow tolerant parser."""

    values: int
    dialect_values: int


# For files of the broker, and for responses of servers that were asked.
NO_LIMITS: Final = JsonLimits(sys.maxsize, sys.maxsize)
# For requests, which an event loop decodes: it is busy with them for some tens of ms at most.
REQUEST_LIMITS: Final = JsonLimits(32_768, 8_192)


def too_many_values(most: int) -> JsonError:
    """Return the error for a text over a limit."""
    return JsonError(f"more than {most} values")


def check_count(text: bytes, value: object, most: int) -> None:
    """Raise JsonError if a text, decoded to `value`, has more than `most` values."""
    # A value follows a comma, or it is the first in its container. Commas in strings count, too.
    if text.count(b",") + text.count(b"{") + text.count(b"[") < most:
        return
    count, containers = 1, [value]
    while containers:
        container = containers.pop()
        if isinstance(container, dict):
            count += len(container)
            containers += container.values()
        elif isinstance(container, list):
            count += len(container)
            containers += container
        if count > most:
            raise too_many_values(most)
