"""Spans in Apache's format: one line per message and event (Apache RocketMQ 5.3.3, TraceDataEncoder).

Fields are separated by \x01, lines end with \x02. A missing value is the text `null`, as Java writes it; some
readers take an empty last field for a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from ..transactions import TransactionState

_FIELD: Final = "\x01"
_END: Final = "\x02"
_NULL: Final = "null"
_TRUE: Final = "true"
_FALSE: Final = "false"
# LocalTransactionState.
_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class TracedType(IntEnum):
    """Type of a sent message; the numbers are those of the format (MessageType)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


# The constant fields of plain sends: the type, and the outcome at the end of the line.
_NORMAL: Final = f"\x01{TracedType.NORMAL.value}\x01"
_STORED: Final = f"\x01{_TRUE}\x02"
_NOT_STORED: Final = f"\x01{_FALSE}\x02"


class Span(Protocol):
    """One line of a trace."""

    msg_id: str
    keys: str | None

    def line(self) -> str:
        """Return the encoded line."""


@dataclass(slots=True)
class SendSpan:
    """A message was sent. Times are milliseconds since 1970 UTC; `broker` is host:port."""

    msg_id: str
    keys: str | None
    tags: str | None
    topic: str
    group: str
    region: str
    broker: str
    body_bytes: int
    began_ms: int
    cost_ms: int
    type: TracedType
    offset_msg_id: str
    success: bool

    def line(self) -> str:
        """Return the encoded line."""
        # As `_line` would, in less than half of the time: there is one such span for each send.
        return (
            f"Pub\x01{self.began_ms}\x01{self.region or _NULL}\x01{self.group or _NULL}\x01{self.topic}\x01"
            f"{self.msg_id or _NULL}\x01{self.tags or _NULL}\x01{self.keys or _NULL}\x01{self.broker}\x01"
            f"{self.body_bytes}\x01{self.cost_ms}\x01{self.type.value}\x01{self.offset_msg_id or _NULL}\x01"
            f"{_TRUE if self.success else _FALSE}\x02"
        )


PlainSend: TypeAlias = tuple[str, int, str, str, str, str, bool, int, int]
"""A sent message without properties, in place of its SendSpan, which takes ten times as long to create.

Topic, bytes of the body, message id, offset message id, region, broker (host:port), whether it is stored as
durably as configured, begin and end of the send in nanoseconds since 1970 UTC. The garbage collector need not
look into a tuple of such values, as it does for a SendResult.
"""


class PlainSendLines:
    """Encodes the plain sends of one producer.

    Most sends of a batch differ only in ids and times, and many begin in the same millisecond. Formatting the
    rest once takes less than half of the time of `SendSpan.line`.
    """

    __slots__ = ("_group",)

    def __init__(self, group: str) -> None:
        self._group = group or _NULL

    def encode(self, sends: Iterable[PlainSend]) -> list[str]:
        """Return the lines of the spans."""
        lines: list[str] = []
        kind: object = None
        head = after_begin = after_id = ""
        last_ms = -1
        for topic, body_bytes, msg_id, offset_msg_id, region, broker, stored, began_ns, ended_ns in sends:
            if (topic, body_bytes, region, broker) != kind:
                kind, last_ms = (topic, body_bytes, region, broker), -1
                after_begin = f"\x01{region or _NULL}\x01{self._group}\x01{topic}\x01"
                after_id = f"\x01{_NULL}\x01{_NULL}\x01{broker}\x01{body_bytes}\x01"
            began_ms = began_ns // 1_000_000
            if began_ms != last_ms:
                last_ms = began_ms
                head = f"Pub\x01{began_ms}{after_begin}"
            lines.append(
                f"{head}{msg_id}{after_id}{ended_ns // 1_000_000 - began_ms}{_NORMAL}"
                f"{offset_msg_id or _NULL}{_STORED if stored else _NOT_STORED}"
            )
        return lines


@dataclass(slots=True)
class ConsumeStartSpan:
    """A listener gets a message; `call_id` is the same for all messages of a call, and for its end."""

    msg_id: str
    keys: str | None
    region: str | None
    group: str
    call_id: str
    began_ms: int
    retry_times: int

    def line(self) -> str:
        """Return the encoded line."""
        return _line(
            "SubBefore",
            self.began_ms,
            self.region,
            self.group,
            self.call_id,
            self.msg_id,
            self.retry_times,
            self.keys,
        )


@dataclass(slots=True)
class ConsumeEndSpan:
    """The call of the listener has ended; `code` is its outcome (ConsumeReturnType)."""

    msg_id: str
    keys: str | None
    group: str
    call_id: str
    ended_ms: int
    cost_ms: int
    success: bool
    code: int

    def line(self) -> str:
        """Return the encoded line."""
        return _line(
            "SubAfter",
            self.call_id,
            self.msg_id,
            self.cost_ms,
            self.success,
            self.keys,
            self.code,
            self.ended_ms,
            self.group,
        )


@dataclass(slots=True)
class EndTransactionSpan:
    """A broker was told the outcome of a transaction; `from_check`: it asked for it."""

    msg_id: str
    keys: str | None
    tags: str | None
    topic: str
    group: str
    region: str
    broker: str
    told_ms: int
    transaction_id: str
    state: TransactionState
    from_check: bool

    def line(self) -> str:
        """Return the encoded line."""
        return _line(
            "EndTransaction",
            self.told_ms,
            self.region,
            self.group,
            self.topic,
            self.msg_id,
            self.tags,
            self.keys,
            self.broker,
            TracedType.TRANSACTION_COMMIT.value,
            self.transaction_id,
            _STATES[self.state],
            self.from_check,
        )


@dataclass(slots=True)
class RecallSpan:
    """A message was recalled."""

    msg_id: str
    topic: str
    group: str
    region: str
    recalled_ms: int
    keys: str | None = None

    def line(self) -> str:
        """Return the encoded line."""
        return _line("Recall", self.recalled_ms, self.region, self.group, self.topic, self.msg_id, True)


def _line(*fields: object) -> str:
    return _FIELD.join(map(_text, fields)) + _END


def _text(field: object) -> str:
    if field is True:
        return _TRUE
    if field is False:
        return _FALSE
    return _NULL if field is None or field == "" else str(field)
