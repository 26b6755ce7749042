"""Sends that wait for space in the commit log, because the disk is slow.

Apache's broker refuses sends while a put holds the lock of the log for long (RocketMQ 5.3.3,
BrokerFastFailure). Here a send waits first, since most disks provide the space within milliseconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.pending_answer import PendingAnswer

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ..store.api import LogSpace

# Bodies of all waiting sends. The tier of sends bounds their number.
MAX_HELD_BYTES: Final = 64 * 1024 * 1024

Send = Callable[["Connection", "RemotingCommand"], Result]
Refuse = Callable[["RemotingCommand", CommandError], Answer]


class StillNoSpace(Exception):
    """A send that was tried again has to wait on."""


@dataclass(slots=True, eq=False)
class _HeldSend:
    """A waiting send; it is refused at `deadline`, by the loop's clock."""

    connection: Connection
    request: RemotingCommand
    deadline: float
    future: asyncio.Future[Answer]


class HeldSends:
    """Waiting sends in the order of their arrival; belongs to the loop's thread."""

    def __init__(
        self, space: LogSpace, send: Send, refuse: Refuse, max_wait_seconds: Callable[[], float]
    ) -> None:
        """`send` stores a send, and calls `hold` if there is still no space.

        `refuse` makes the answer of a send that is refused. `max_wait_seconds` returns how long a send waits
        at most.
        """
        self._space = space
        self._send = send
        self._refuse = refuse
        self._max_wait_seconds = max_wait_seconds
        self._held: deque[_HeldSend] = deque()
        self._held_bytes = 0
        self._is_trying = False
        self._timer: asyncio.TimerHandle | None = None
        space.on_ready(self._try_again)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, connection: Connection, request: RemotingCommand) -> Result:
        """Let a send wait for space; return its future answer, or a refusal if too many bytes wait.

        Raises StillNoSpace for a send that waits already.
        """
        if self._is_trying:
            raise StillNoSpace
        size = len(request.body)
        if self._held_bytes + size > MAX_HELD_BYTES:
            remark = (
                f"[REJECTREQUEST]broker busy: sends of {self._held_bytes} bytes wait for the disk, "
                f"at most {MAX_HELD_BYTES} may. Nothing was stored"
            )
            return self._refuse(request, CommandError(ResponseCode.SYSTEM_BUSY, remark))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_wait_seconds()
        held = _HeldSend(connection, request, deadline, loop.create_future())
        if self._timer is None:  # first, so that no send waits without it if memory is short
            self._timer = loop.call_at(deadline, self._expire)
        self._held.append(held)
        self._held_bytes += size
        return held.future

    # --- inside ---

    def _try_again(self) -> None:
        """Store waiting sends, until there is no space again."""
        while self._held and not self._space.is_short:
            held = self._held[0]
            self._is_trying = True
            try:
                result = self._send(held.connection, held.request)
            except StillNoSpace:
                return
            except Exception as error:
                self._drop_first()
                if not held.future.done():
                    held.future.set_exception(error)
                continue
            finally:
                self._is_trying = False
            self._drop_first()
            _complete(held.future, result)

    def _expire(self) -> None:
        """Refuse the sends that have waited for too long, and let the first of the others try.

        There may be space although `LogSpace.ready` was not called: it was not if memory was short then.
        """
        loop = asyncio.get_running_loop()
        self._timer = None
        try:
            while self._held and self._held[0].deadline <= loop.time():
                self._refuse_first()
            self._space.is_short = False
            self._try_again()
        finally:
            if self._held:
                self._timer = loop.call_at(self._held[0].deadline, self._expire)

    def _refuse_first(self) -> None:
        held = self._drop_first()
        if held.future.done():
            return
        try:
            held.future.set_result(self._refuse(held.request, self._too_late()))
        except Exception as error:  # memory is short
            if not held.future.done():
                held.future.set_exception(error)

    def _too_late(self) -> CommandError:
        wait_ms = self._max_wait_seconds() * 1000
        return CommandError(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy: the disk has not provided space for the message in "
            f"{wait_ms:.0f} ms (waitTimeMillsInSendQueue). Nothing was stored",
        )

    def _drop_first(self) -> _HeldSend:
        held = self._held.popleft()
        self._held_bytes -= len(held.request.body)
        return held


def _complete(future: asyncio.Future[Answer], result: Result) -> None:
    """Answer a send as its result says, now or when the result is known."""
    if isinstance(result, PendingAnswer):
        result = result.as_future()
    if isinstance(result, asyncio.Future):
        result.add_done_callback(partial(_copy, future))
    elif not future.done():
        future.set_result(result)


def _copy(future: asyncio.Future[Answer], result: asyncio.Future[Answer]) -> None:
    if result.cancelled():
        future.cancel()
        return
    error = result.exception()
    if future.done():
        return
    if error is None:
        future.set_result(result.result())
    else:
        future.set_exception(error)
