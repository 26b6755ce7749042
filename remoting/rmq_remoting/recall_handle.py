"""Recall handles, with which a producer cancels a message that is scheduled for later.

Base64 of `v1 TOPIC BROKER TIME KEY` (Apache RocketMQ 5.3.3, RecallMessageHandle).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from .errors import shown

_VERSION: Final = "v1"
_PARTS: Final = 5
_MOST_CHARACTERS: Final = 4096
_MOST_DIGITS: Final = 18


class RecallHandleError(ValueError):
    """A handle that no broker has issued; the message is the remark to answer with."""


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """A scheduled message: its topic, its broker, its delivery time (ms since 1970) and its unique key."""

    topic: str
    broker_name: str
    timestamp_ms: int
    unique_key: str

    def encode(self) -> str:
        """Return the handle as it is sent."""
        text = " ".join((_VERSION, self.topic, self.broker_name, str(self.timestamp_ms), self.unique_key))
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> RecallHandle:
        """Decode a handle. Raises RecallHandleError."""
        problem = f"the recall handle {shown(handle)} is invalid: it is not one that a send was answered with"
        if not handle or len(handle) > _MOST_CHARACTERS:
            raise RecallHandleError(problem)
        # As Java's decoder: the padding may be missing, and no other characters are allowed.
        padded = handle.rstrip("=") + "=" * (-len(handle.rstrip("=")) % 4)
        try:
            text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise RecallHandleError(problem) from error
        parts = text.split(" ")
        if len(parts) < _PARTS or parts[0] != _VERSION:
            raise RecallHandleError(problem)
        _, topic, broker_name, timestamp, unique_key, *_ = parts
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MOST_DIGITS):
            raise RecallHandleError(f"{problem} (time {shown(timestamp)})")
        return cls(topic, broker_name, int(timestamp), unique_key)
