"""Half messages: what producers have sent in transactions that have not ended yet.

A half message lies in `RMQ_SYS_TRANS_HALF_TOPIC` (Apache RocketMQ 5.3.3, TransactionalMessageBridge). At each
check it is appended there again, so that it is not left behind where the log is cleaned; the first of these
records names the transaction, whichever of them a producer's answer is about.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    find_property,
)

from ..topics.names import has_illegal_characters

if TYPE_CHECKING:
    from ..delivery.inner_message import InnerMessage, StoredMessage

HALF_QUEUE_ID: Final = 0
_MOST_QUEUE_ID: Final = 65_535
# How many transactions are remembered after their end.
_MOST_ENDED: Final = 20_000
# Most transactions end at once: so many small messages of those that began last are at hand.
_MOST_AT_HAND: Final = 1000
_SMALL_BYTES: Final = 4096


class End(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"


@dataclass(slots=True)
class HalfMessage:
    """One transaction that has not ended, and where its half message was appended last."""

    first_offset: int  # in the queue of half messages
    queue_offset: int
    physical_offset: int
    size: int  # of the record there
    stored_ms: int  # when it was appended last
    since_ms: int  # since when the transaction is under way
    immune_ms: int | None  # for how long from then on its producer does not want to be asked
    checks: int
    group: str
    topic: str
    queue_id: int
    message: InnerMessage | None = None  # as it stands in the log, while it is at hand

    @classmethod
    def of(cls, stored: StoredMessage) -> HalfMessage | None:
        """The half message in a record of the half topic; None for what is none, whoever wrote it there."""
        properties = stored.message.properties
        group = property_text(properties, PROPERTY_PRODUCER_GROUP)
        topic = property_text(properties, PROPERTY_REAL_TOPIC)
        queue_id = _number(properties, PROPERTY_REAL_QUEUE_ID)
        if not group or not topic or has_illegal_characters(topic):
            return None
        if queue_id is None or queue_id > _MOST_QUEUE_ID:
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
            # A producer's clock may be wrong: it counts only where nothing else is known.
            min(stored.message.born_timestamp_ms, stored_ms) if was_checked else stored_ms,
            immune_ms(properties),
            checks or 0,
            sys.intern(group),
            sys.intern(topic),
            queue_id,
        )


class HalfMessages:
    """The transactions that are under way, and how the last ones ended. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by the topic that the messages are for
        # By first offset; in the order of the queue, as what is appended again goes to the end.
        self._halves: dict[int, HalfMessage] = {}
        self._ended: OrderedDict[int, End] = OrderedDict()
        self._at_hand: deque[HalfMessage] = deque()

    def __len__(self) -> int:
        return len(self._halves)

    def add(self, half: HalfMessage) -> None:
        """A transaction has begun, or its half message was appended again."""
        before = self._halves.pop(half.first_offset, None)
        if before is None:
            self.counts[half.topic] += 1
        self._halves[half.first_offset] = half
        if half.message is not None:
            self._keep_at_hand(half)

    def _keep_at_hand(self, half: HalfMessage) -> None:
        if half.size > _SMALL_BYTES:
            half.message = None
            return
        self._at_hand.append(half)
        if len(self._at_hand) > _MOST_AT_HAND:
            self._at_hand.popleft().message = None

    def get(self, first_offset: int) -> HalfMessage | None:
        """The transaction whose half message was appended there first, if it has not ended."""
        return self._halves.get(first_offset)

    def is_current(self, half: HalfMessage) -> bool:
        """Whether it has neither ended nor been appended again."""
        return self._halves.get(half.first_offset) is half

    def forget(self, first_offset: int) -> None:
        """A transaction is not under way any more; how it ended is not known."""
        half = self._halves.pop(first_offset, None)
        if half is not None:
            self.counts[half.topic] -= 1
            if not self.counts[half.topic]:
                del self.counts[half.topic]

    def end(self, first_offset: int, how: End) -> None:
        """A transaction has ended."""
        self.forget(first_offset)
        ended = self._ended
        ended[first_offset] = how
        if len(ended) > _MOST_ENDED:
            ended.popitem(last=False)

    def ending_of(self, first_offset: int) -> End | None:
        """How a transaction ended; None where that is not remembered."""
        return self._ended.get(first_offset)

    def in_order(self) -> list[HalfMessage]:
        """All that are under way, in the order in which their half messages were appended last."""
        return list(self._halves.values())

    @property
    def oldest_offset(self) -> int | None:
        """Where in their queue the first of them is; None where there is none."""
        return next((half.queue_offset for half in self._halves.values()), None)


def property_text(properties: bytes, name: str) -> str:
    """The value of a property, empty where there is none."""
    return (find_property(properties, name.encode()) or b"").decode("utf-8", "replace")


def immune_ms(properties: bytes) -> int | None:
    """For how long nobody is to be asked, if the message says so (CHECK_IMMUNITY_TIME_IN_SECONDS)."""
    seconds = _number(properties, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
    return None if seconds is None else seconds * 1000


def _number(properties: bytes, name: str) -> int | None:
    """A property that is a number, not negative."""
    text = find_property(properties, name.encode())
    return int(text) if text is not None and text.isdigit() and len(text) < 19 else None
