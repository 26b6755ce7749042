"""Half messages: the messages of transactions that have not ended.

A half message is stored in `RMQ_SYS_TRANS_HALF_TOPIC` (Apache RocketMQ 5.3.3, TransactionalMessageBridge).
Each check appends it there again, so that it is not deleted with the old files of the log. The queue offset
of the first of these records identifies the transaction, whichever record a producer's answer names.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rmq_remoting.message_properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    find_property,
)

from ..delivery.inner_message import InnerMessage, StoredMessage
from ..topics.names import has_illegal_characters

HALF_QUEUE_ID: Final = 0
_MAX_QUEUE_ID: Final = 65_535
# The number of ended transactions whose outcome is kept.
_MAX_ENDED: Final = 20_000
# Most transactions end soon, so the small messages of the newest ones are kept in memory.
_MAX_IN_MEMORY: Final = 1000
_SMALL_BYTES: Final = 4096


class Outcome(Enum):
    """The outcome of a transaction."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"
    MOVED = "moved to another broker"


@dataclass(slots=True, init=False)
class HalfMessage:
    """A transaction in progress, and the last record of its half message."""

    first_offset: int  # in the queue of half messages
    queue_offset: int
    physical_offset: int
    size: int  # of the last record
    stored_ms: int  # when the last record was appended
    since_ms: int  # when the transaction began, by the steady clock
    immune_ms: int | None  # the time from then on in which the producer does not want to be checked
    checks: int
    group: str
    topic: str
    queue_id: int
    message: InnerMessage | None  # as in the log, while it is kept in memory

    # Written out: a compiled class keeps a dataclass's own as interpreted code.
    def __init__(
        self,
        first_offset: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        stored_ms: int,
        since_ms: int,
        immune_ms: int | None,
        checks: int,
        group: str,
        topic: str,
        queue_id: int,
        message: InnerMessage | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.size = size
        self.stored_ms = stored_ms
        self.since_ms = since_ms
        self.immune_ms = immune_ms
        self.checks = checks
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.message = message

    @classmethod
    def of(cls, stored: StoredMessage) -> HalfMessage | None:
        """Return the half message in a record of the half topic; None if its properties are invalid."""
        properties = stored.message.properties
        group = property_text(properties, PROPERTY_PRODUCER_GROUP)
        topic = property_text(properties, PROPERTY_REAL_TOPIC)
        queue_id = _number(properties, PROPERTY_REAL_QUEUE_ID)
        if not group or not topic or has_illegal_characters(topic):
            return None
        if queue_id is None or queue_id > _MAX_QUEUE_ID:
            return None
        first = _number(properties, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
        checks = _number(properties, PROPERTY_TRANSACTION_CHECK_TIMES)
        stored_ms = stored.store_timestamp_ms
        was_checked = first is not None or checks is not None
        return cls(
            stored.queue_offset if first is None else first,
            stored.queue_offset,
            stored.physical_offset,
            stored.size,
            stored_ms,
            # A producer's clock may be wrong, so it counts only if the time of the first record is unknown.
            min(stored.message.born_timestamp_ms, stored_ms) if was_checked else stored_ms,
            immune_ms(properties),
            checks or 0,
            sys.intern(group),
            sys.intern(topic),
            queue_id,
        )


class HalfMessages:
    """The transactions in progress, and the outcomes of the last ended ones; belongs to the loop's thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by the topic that the messages are for
        # By first offset, in the order of the queue: a half message that is appended again moves to the end.
        self._halves: dict[int, HalfMessage] = {}
        self._ended: OrderedDict[int, Outcome] = OrderedDict()
        self._in_memory: deque[HalfMessage] = deque()

    def __len__(self) -> int:
        return len(self._halves)

    def add(self, half: HalfMessage) -> None:
        """Note a new transaction, or another record of a half message."""
        before = self._halves.pop(half.first_offset, None)
        if before is None:
            self.counts[half.topic] += 1
        self._halves[half.first_offset] = half
        if half.message is not None:
            self._keep_in_memory(half)

    def _keep_in_memory(self, half: HalfMessage) -> None:
        if half.size > _SMALL_BYTES:
            half.message = None
            return
        self._in_memory.append(half)
        if len(self._in_memory) > _MAX_IN_MEMORY:
            self._in_memory.popleft().message = None

    def get(self, first_offset: int) -> HalfMessage | None:
        """Return the transaction in progress whose first record has this queue offset, or None."""
        return self._halves.get(first_offset)

    def is_current(self, half: HalfMessage) -> bool:
        """Whether the transaction is in progress and this is its last record."""
        return self._halves.get(half.first_offset) is half

    def forget(self, first_offset: int) -> None:
        """Drop a transaction whose outcome is unknown."""
        half = self._halves.pop(first_offset, None)
        if half is not None:
            self.counts[half.topic] -= 1
            if not self.counts[half.topic]:
                del self.counts[half.topic]

    def end(self, first_offset: int, outcome: Outcome) -> None:
        """Drop a transaction and keep its outcome."""
        self.forget(first_offset)
        ended = self._ended
        ended[first_offset] = outcome
        if len(ended) > _MAX_ENDED:
            ended.popitem(last=False)

    def outcome_of(self, first_offset: int) -> Outcome | None:
        """Return the outcome of a transaction; None if it is not known any more."""
        return self._ended.get(first_offset)

    def clear(self) -> None:
        """Forget the transactions in progress; the known outcomes stay."""
        self._halves.clear()
        self._in_memory.clear()
        self.counts.clear()

    def in_order(self) -> list[HalfMessage]:
        """Return the transactions in progress, in the order of their last records."""
        return list(self._halves.values())

    @property
    def oldest_offset(self) -> int | None:
        """The lowest queue offset of a transaction in progress; None without one."""
        return next((half.queue_offset for half in self._halves.values()), None)


def property_text(properties: bytes, name: str) -> str:
    """Return the value of a property; empty if it is missing."""
    return (find_property(properties, name.encode()) or b"").decode("utf-8", "replace")


def immune_ms(properties: bytes) -> int | None:
    """Return the immunity time (CHECK_IMMUNITY_TIME_IN_SECONDS) in ms; None if it is missing."""
    seconds = _number(properties, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
    return None if seconds is None else seconds * 1000


def _number(properties: bytes, name: str) -> int | None:
    """Return the value of a property that is a non-negative number; None otherwise."""
    text = find_property(properties, name.encode())
    return int(text) if text is not None and text.isdigit() and len(text) < 19 else None
