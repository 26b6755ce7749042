"""Receipts: what a consumer acknowledges with, and the lists in an answer that clients make them of.

    start offset, pop time, invisible time, revive queue, kind of topic, broker, queue, queue offset

with blanks in between (Apache RocketMQ 5.3.3, ExtraInfoUtil). The revive queue 999 says that the message was
popped in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rmq_remoting.errors import shown
from rmq_remoting.integers import INT32_MAX, INT64_MAX

from .retry_topics import NORMAL, RETRY_V1, RETRY_V2, kind_of

ORDER_REVIVE_QUEUE: Final = 999

_SEPARATOR: Final = " "
_MIN_PARTS: Final = 6
_MOST_DIGITS: Final = 19
_NUMBERS_DIGITS: Final = 4 * _MOST_DIGITS
_KINDS: Final = frozenset({NORMAL, RETRY_V1, RETRY_V2})
_NUMBERS: Final = ("start offset", "pop time", "invisible time", "revive queue")


class ReceiptError(ValueError):
    """A receipt that no broker has made; the message is a remark for who sent it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says; times in ms."""

    start_offset: int
    pop_time: int
    invisible_time_ms: int
    revive_queue_id: int
    kind: str
    broker_name: str
    queue_id: int | None = None
    queue_offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Read a receipt. Raises ReceiptError."""
        parts = text.split(_SEPARATOR)
        if len(parts) < _MIN_PARTS:
            raise ReceiptError(
                f"the receipt {shown(text)} has {len(parts)} parts, {_MIN_PARTS} are needed: start offset, "
                "pop time, invisible time, revive queue, kind of topic, broker"
            )
        # A broker's name may have blanks in it; what follows it are numbers.
        queue_id, queue_offset, name_end = None, None, len(parts)
        if name_end >= _MIN_PARTS + 2 and _is_number(parts[-1]) and _is_number(parts[-2]):
            queue_id, queue_offset, name_end = int(parts[-2]), int(parts[-1]), name_end - 2
        elif name_end >= _MIN_PARTS + 1 and _is_number(parts[-1]):
            queue_id, name_end = int(parts[-1]), name_end - 1
        kind = parts[4]
        digits = parts[0] + parts[1] + parts[2] + parts[3]
        if len(digits) > _NUMBERS_DIGITS or not (
            digits.isdecimal() and digits.isascii() and kind in _KINDS and all(parts[:4])
        ):
            raise ReceiptError(_problem(text, parts))
        start_offset, pop_time, invisible, revive_queue = map(int, parts[:4])
        if max(start_offset, pop_time, invisible) > INT64_MAX or revive_queue > INT32_MAX:
            raise ReceiptError(_problem(text, parts))
        broker_name = parts[5] if name_end == _MIN_PARTS else _SEPARATOR.join(parts[5:name_end])
        return cls(start_offset, pop_time, invisible, revive_queue, kind, broker_name, queue_id, queue_offset)

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
        """When the message comes back if nobody acknowledges it."""
        return self.pop_time + self.invisible_time_ms


def _is_number(part: str) -> bool:
    return part.isdecimal() and len(part) <= _MOST_DIGITS


def _problem(text: str, parts: list[str]) -> str:
    """What is wrong with a receipt."""
    for name, part in zip(_NUMBERS, parts, strict=False):
        limit = INT32_MAX if name == "revive queue" else INT64_MAX
        if not (part.isdecimal() and part.isascii()) or len(part) > _MOST_DIGITS or int(part) > limit:
            return f"the receipt {shown(text)} has the {name} {shown(part)}, which is none"
    return f"the receipt {shown(text)} has the kind of topic {shown(parts[4])}: not 0, 1 or 2"


class AnswerInfos:
    """The lists in the answer to a pop, queue by queue: `kind queue value`, with semicolons in between."""

    __slots__ = ("_message_offsets", "_order_counts", "_start_offsets")

    def __init__(self) -> None:
        self._start_offsets: list[str] = []
        self._message_offsets: list[str] = []
        self._order_counts: list[str] = []

    def add(self, topic: str, queue_id: int, start_offset: int, offsets: Iterable[int]) -> None:
        """Messages were popped from a queue, which was read from `start_offset` on."""
        kind = kind_of(topic)
        self._start_offsets.append(f"{kind} {queue_id} {start_offset}")
        self._message_offsets.append(f"{kind} {queue_id} {','.join(map(str, offsets))}")

    def add_counts(
        self, topic: str, queue_id: int, offsets: Sequence[int], counts: Mapping[int, int]
    ) -> None:
        """How often messages of an orderly pop were given before; old clients look at the queue's lowest."""
        kind = kind_of(topic)
        self._order_counts += [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
        lowest = min(counts.values(), default=0) if len(counts) == len(offsets) else 0
        self._order_counts.append(f"{kind} {queue_id} {lowest}")

    @property
    def start_offset_info(self) -> str:
        """Where each queue was read from."""
        return ";".join(self._start_offsets)

    @property
    def msg_offset_info(self) -> str:
        """The offsets of each queue's messages."""
        return ";".join(self._message_offsets)

    @property
    def order_count_info(self) -> str:
        """How often the messages were given before."""
        return ";".join(self._order_counts)
