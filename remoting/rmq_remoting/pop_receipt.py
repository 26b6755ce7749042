"""POP receipts (receipt handles), and the names of POP retry topics.

A consumer acknowledges a popped message with its receipt, a text of parts separated by single spaces:

    start offset, pop time, invisible time, revive queue, topic kind, broker, queue, queue offset

Each part has a fixed place; the times are in ms. The last two parts may be absent. A ninth part and all
further ones are ignored: Apache's proxy appends the commit log offset. A broker's name therefore must not
contain a space. Revive queue 999 marks a message that was popped in order. A topic and a group have one retry
topic, in one of two forms: with `_` (version 1) or `+` (version 2). (Apache RocketMQ 5.3.3, ExtraInfoUtil,
ReceiptHandle and KeyBuilder.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import shown
from .integer_bounds import INT32_MAX, INT64_MAX

ORDER_REVIVE_QUEUE: Final = 999

# Topic kinds, as in receipts and in responses to POP.
NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

_RETRY_PREFIX: Final = "%RETRY%"
_V2_SEPARATOR: Final = "+"
_SEPARATOR: Final = " "
_MIN_PARTS: Final = 6
_MAX_PARTS: Final = 8
_MAX_DIGITS: Final = 19  # of a 64-bit number
_MAX_NUMBERS_DIGITS: Final = 6 * _MAX_DIGITS
_KINDS: Final = frozenset({NORMAL, RETRY_V1, RETRY_V2})
# The numbers of a receipt: their places, names and limits.
_NUMBERS: Final = (
    (0, "start offset", INT64_MAX),
    (1, "pop time", INT64_MAX),
    (2, "invisible time", INT64_MAX),
    (3, "revive queue", INT32_MAX),
    (6, "queue", INT32_MAX),
    (7, "queue offset", INT64_MAX),
)


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Return the retry topics of a POP consumer group: version 2 first, then version 1 (of old brokers)."""
    return f"{_RETRY_PREFIX}{group}+{topic}", f"{_RETRY_PREFIX}{group}_{topic}"


def kind_of(topic: str) -> str:
    """Return the kind of a topic: NORMAL, RETRY_V1 or RETRY_V2."""
    if not topic.startswith(_RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if _V2_SEPARATOR in topic else RETRY_V1


def real_topic(topic: str, group: str, kind: str) -> str:
    """Return the topic that a message of this kind was popped from. Raises ValueError for an unknown kind."""
    if kind == NORMAL:
        return topic
    version_2, version_1 = pop_retry_topics(topic, group)
    if kind == RETRY_V2:
        return version_2
    if kind == RETRY_V1:
        return version_1
    raise ValueError(f"unknown topic kind {kind!r}: must be 0, 1 (retry) or 2 (retry, version 2)")


class ReceiptError(ValueError):
    """A text that is no receipt. The message can be sent to the client as a remark."""


@dataclass(slots=True, init=False, unsafe_hash=True)
class Receipt:
    """The parts of a receipt; times in ms. Never changed, since receipts are keys of dictionaries."""

    start_offset: int
    pop_time: int
    invisible_time_ms: int
    revive_queue_id: int
    kind: str
    broker_name: str
    queue_id: int | None
    queue_offset: int | None

    # Written out, as every acknowledgement calls it: a compiled class keeps a dataclass's own as interpreted
    # code.
    def __init__(
        self,
        start_offset: int,
        pop_time: int,
        invisible_time_ms: int,
        revive_queue_id: int,
        kind: str,
        broker_name: str,
        queue_id: int | None = None,
        queue_offset: int | None = None,
    ) -> None:
        self.start_offset = start_offset
        self.pop_time = pop_time
        self.invisible_time_ms = invisible_time_ms
        self.revive_queue_id = revive_queue_id
        self.kind = kind
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.queue_offset = queue_offset

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Parse a receipt. Raises ReceiptError."""
        parts = text.split(_SEPARATOR, _MAX_PARTS)  # the last item holds the ninth part and all after it
        count = len(parts)
        if count < _MIN_PARTS:
            raise ReceiptError(
                f"the receipt {shown(text)} has {count} parts, at least {_MIN_PARTS} are needed: start "
                "offset, pop time, invisible time, revive queue, topic kind, broker"
            )
        kind = parts[4]
        numbers = parts[:4] + parts[_MIN_PARTS:_MAX_PARTS]
        digits = "".join(numbers)
        if len(digits) > _MAX_NUMBERS_DIGITS or not (
            digits.isdecimal() and digits.isascii() and kind in _KINDS and all(numbers)
        ):
            raise ReceiptError(_problem(text, parts))
        start_offset, pop_time, invisible_time_ms, revive_queue_id = map(int, parts[:4])
        queue_id = int(parts[6]) if count > 6 else None
        queue_offset = int(parts[7]) if count > 7 else None
        if (
            max(start_offset, pop_time, invisible_time_ms, queue_offset or 0) > INT64_MAX
            or max(revive_queue_id, queue_id or 0) > INT32_MAX
        ):
            raise ReceiptError(_problem(text, parts))
        return Receipt(
            start_offset,
            pop_time,
            invisible_time_ms,
            revive_queue_id,
            kind,
            parts[5],
            queue_id,
            queue_offset,
        )

    def __str__(self) -> str:
        parts = [
            self.start_offset,
            self.pop_time,
            self.invisible_time_ms,
            self.revive_queue_id,
            self.kind,
            self.broker_name,
        ]
        parts += [part for part in (self.queue_id, self.queue_offset) if part is not None]
        return _SEPARATOR.join(map(str, parts))

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def revive_time(self) -> int:
        """Time at which an unacknowledged message becomes visible again, in ms since the epoch."""
        return self.pop_time + self.invisible_time_ms


def _problem(text: str, parts: list[str]) -> str:
    """Return why a text with enough parts is no receipt."""
    for place, name, limit in _NUMBERS:
        if place < len(parts) and not _is_number(parts[place], limit):
            return (
                f"the receipt {shown(text)} has {shown(parts[place])} as its {name}, "
                f"which must be a number of 0 to {limit}"
            )
    return f"the receipt {shown(text)} has the topic kind {shown(parts[4])}, which must be 0, 1 or 2"


def _is_number(part: str, limit: int) -> bool:
    return part.isdecimal() and part.isascii() and len(part) <= _MAX_DIGITS and int(part) <= limit
