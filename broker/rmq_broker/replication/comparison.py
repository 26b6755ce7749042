"""Compare a replica's log with its master's: how much of it does the master have?

A master that lost its last messages in a power cut, or a former master that becomes a replica, has other
messages at the same log offsets. The protocol of replication does not tell: Apache's replica appends what it
is sent, and the logs differ from there on (Apache RocketMQ 5.3.3, DefaultHAClient). Here the replica lets
the master send bytes that it has already, and compares them. It begins with the last 64 KiB, and goes back
in growing steps until a whole record agrees. A record holds its own log offset, times and keys: where a whole
record agrees, all bytes before it agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from .master import LogExtent, MasterConnection, MasterUnavailable

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ..store.api import MessageStore

Connect = Callable[[], AbstractAsyncContextManager[MasterConnection]]

_FIRST_WINDOW_BYTES: Final = 64 << 10
_WINDOW_GROWTH: Final = 16


class Unrelated(Exception):
    """The two logs have nothing in common, or no longer: the replica cannot follow."""


async def common_end(store: MessageStore, extent: LogExtent, executor: Executor, connect: Connect) -> int:
    """Return the log offset up to which the master, whose log has the `extent`, has this log.

    It is where a record ends. `connect` makes a connection to the master that is for this comparison alone.
    Raises MasterUnavailable, ReplicationProtocolError, Unrelated, OSError.
    """
    own = LogExtent(store.min_phy_offset(), store.max_phy_offset())
    if own.end < extent.begin:
        raise Unrelated(
            f"this log ends at {own.end}, the master's begins at {extent.begin}: the messages between are "
            "deleted there. Remove this replica's store, so that it begins from nothing"
        )
    if own.end == extent.begin:
        return own.end  # the master has deleted all that this log has, and nothing more
    # Offset 0 asks for the master's whole log, so the comparison begins behind it.
    begin = max(own.begin, extent.begin, 1)
    end = min(own.end, extent.end)
    if end <= begin:
        raise Unrelated(
            f"this log spans the offsets {own.begin} to {own.end}, the master's {extent.begin} to "
            f"{extent.end}: they have nothing in common. Is this the store of another broker?"
        )
    loop = asyncio.get_running_loop()
    window = _FIRST_WINDOW_BYTES
    while True:
        first = max(begin, end - window)
        async with connect() as connection:
            differs_at = await _compare(store, connection, first, end, executor)
        if differs_at is None:
            return end
        record, before = await loop.run_in_executor(executor, store.record_boundaries, differs_at)
        if before >= first or (first == begin and record > max(own.begin, extent.begin)):
            return record
        if first == begin:
            raise Unrelated(
                f"this log and the master's differ from offset {differs_at} on, and have no record in "
                "common. Is this the store of another broker? Nothing was changed; give the replica a store "
                "of its own"
            )
        window *= _WINDOW_GROWTH


async def _compare(
    store: MessageStore, connection: MasterConnection, begin: int, end: int, executor: Executor
) -> int | None:
    """Return the first offset from `begin` to `end` at which the master has another byte; None if none."""
    loop = asyncio.get_running_loop()
    connection.report(begin)
    position = begin
    while position < end:
        for offset, data in await connection.receive():
            if not data:
                continue
            if offset != position:
                raise MasterUnavailable(f"the master sent the log from {offset} on instead of {position}")
            theirs = data[: end - position]
            ours = await loop.run_in_executor(executor, _read, store, position, len(theirs))
            if ours != theirs:
                return position + _first_difference(ours, theirs)
            position += len(theirs)
            if position >= end:
                break
    return None


def _read(store: MessageStore, offset: int, size: int) -> bytes:
    """Read bytes of the log, which may span files. Raises OSError; blocks."""
    parts: list[bytes] = []
    while size > 0:
        part = store.log_bytes(offset, size)
        if not part:
            break
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)


def _first_difference(ours: bytes, theirs: bytes) -> int:
    """Return the index of the first byte that differs; the shorter length if one continues the other."""
    shorter = min(len(ours), len(theirs))
    low, high = 0, shorter
    while low < high:  # binary search for the length of the common prefix
        middle = (low + high + 1) // 2
        if ours[:middle] == theirs[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
