"""Outcomes of one look into a queue.

They stand for the response codes of Apache RocketMQ 5.3.3 (PullMessageProcessor):

| outcome | response code | the client |
|---|---|---|
| `Found` | SUCCESS | gets messages |
| `Skipped` | PULL_RETRY_IMMEDIATELY | continues behind messages that its filter rejects |
| `Deleted` | PULL_RETRY_IMMEDIATELY | continues behind messages that were just deleted |
| `Moved` | PULL_OFFSET_MOVED | continues at another offset: its own is out of range, or was reset |
| `NotFound` | PULL_NOT_FOUND | asks again; a pull that may be held waits for a message instead |

A refused pull has no outcome: it ends in a CommandError.
"""

from __future__ import annotations

from typing import ClassVar, Final

from rmq_remoting.codes import ResponseCode

from ..store.api import GetResult, GetStatus


class Found:
    """The queue holds messages for the pull."""

    __slots__ = ("read",)

    def __init__(self, read: GetResult) -> None:
        self.read = read


class _WithoutMessages:
    """`status` is the remark of the response; `next_offset` is where the client continues."""

    __slots__ = ("max_offset", "min_offset", "next_offset", "status")

    code: ClassVar[int]

    def __init__(self, status: GetStatus, next_offset: int, min_offset: int, max_offset: int) -> None:
        self.status = status
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset


class Skipped(_WithoutMessages):
    """None of the messages in the searched part of the queue passes the filter."""

    __slots__ = ()
    code: ClassVar[int] = int(ResponseCode.PULL_RETRY_IMMEDIATELY)

    @property
    def is_at_end(self) -> bool:
        """Whether the queue was searched up to its end."""
        return self.next_offset >= self.max_offset


class Deleted(_WithoutMessages):
    """The messages at the offset are gone from the log: their retention time has ended."""

    __slots__ = ()
    code: ClassVar[int] = int(ResponseCode.PULL_RETRY_IMMEDIATELY)


class Moved(_WithoutMessages):
    """The client has to continue at another offset."""

    __slots__ = ()
    code: ClassVar[int] = int(ResponseCode.PULL_OFFSET_MOVED)


class NotFound(_WithoutMessages):
    """The queue holds no message at the offset yet."""

    __slots__ = ()
    code: ClassVar[int] = int(ResponseCode.PULL_NOT_FOUND)


Empty = Skipped | Deleted | Moved | NotFound
Outcome = Found | Empty

_EMPTY_QUEUE: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_EMPTY: Final[dict[GetStatus, type[Empty]]] = {
    GetStatus.NO_MATCHED_MESSAGE: Skipped,
    GetStatus.MESSAGE_WAS_REMOVING: Deleted,
    GetStatus.OFFSET_FOUND_NULL: NotFound,
    GetStatus.OFFSET_OVERFLOW_ONE: NotFound,
    GetStatus.OFFSET_OVERFLOW_BADLY: Moved,
    GetStatus.OFFSET_TOO_SMALL: Moved,
    GetStatus.OFFSET_RESET: Moved,
}


def outcome_of(read: GetResult, asked_offset: int) -> Outcome:
    """Return the outcome of a read; `asked_offset` is the offset in the request, not that of a later look."""
    status = read.status
    if status is GetStatus.FOUND:
        return Found(read)
    if status is GetStatus.OFFSET_OVERFLOW_ONE:
        # The usual outcome at the tail of the queue. Comparing costs less than looking an enum up.
        kind: type[Empty] = NotFound
    elif status in _EMPTY_QUEUE:
        # An empty queue begins at 0: another offset is from a queue that existed before.
        kind = Moved if asked_offset else NotFound
    else:
        kind = _EMPTY[status]
    return kind(status, read.next_offset, read.min_offset, read.max_offset)
