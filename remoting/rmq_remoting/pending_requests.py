"""Requests of this side that wait for a response: matching by request number, and time-outs. Pure: no I/O."""

from __future__ import annotations

from typing import Protocol

from .codes import FLAG_RESPONSE
from .command import RemotingCommand
from .errors import ConnectionClosed, RequestTimeout, TooManyRequests


class Reply(Protocol):
    """The waiting end of a request: an asyncio future, or an object that behaves like one."""

    def done(self) -> bool:
        """Whether the reply has its outcome, or nobody waits for it any more."""

    def set_result(self, result: RemotingCommand, /) -> None:
        """Take the response."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Take the RequestError that says why there is no response."""


class PendingRequests:
    """At most `max_requests` requests to one peer, by request number ("opaque")."""

    __slots__ = ("_max_requests", "by_number", "peer")

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        # Reply, time at which it times out, time-out in seconds. Only this class changes the dictionary. It
        # is public because asking whether it is empty must not cost a call for each read from the socket.
        self.by_number: dict[int, tuple[Reply, float, float]] = {}
        self.peer = ""  # host:port, for error messages

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, opaque: int, reply: Reply, timeout_seconds: float, now: float) -> None:
        """Wait for the response to request number `opaque` until `timeout_seconds` after `now`.

        Raises TooManyRequests at the bound, ValueError where a request of that number is pending.
        """
        by_number = self.by_number
        if len(by_number) >= self._max_requests:
            raise TooManyRequests(
                f"{len(by_number)} requests to {self.peer} wait for a response already, the limit is "
                f"{self._max_requests}; slow down"
            )
        if opaque in by_number:
            raise ValueError(f"request number {opaque} to {self.peer} is pending already")
        by_number[opaque] = (reply, now + timeout_seconds, timeout_seconds)

    def complete(self, commands: list[RemotingCommand]) -> list[RemotingCommand]:
        """Hand each response among `commands` to the reply that waits for it; return the requests.

        A response without a pending request is dropped: it came after its time-out.
        """
        by_number = self.by_number
        requests: list[RemotingCommand] = []
        for command in commands:
            if not command.flag & FLAG_RESPONSE:
                requests.append(command)
                continue
            entry = by_number.pop(command.opaque, None)
            if entry is not None and not entry[0].done():
                entry[0].set_result(command)
        return requests

    def expire(self, now: float) -> None:
        """Fail each request whose time-out has passed at `now`; drop those that nobody waits for any more."""
        by_number = self.by_number
        expired = [number for number, (reply, due, _) in by_number.items() if due <= now or reply.done()]
        for number in expired:
            reply, _, timeout_seconds = by_number.pop(number)
            if not reply.done():
                reply.set_exception(
                    RequestTimeout(f"no response from {self.peer} within {timeout_seconds:g} s")
                )

    def fail_all(self, cause: Exception | None) -> None:
        """Fail every request, because the connection has ended; `cause` is the transport's error, if any."""
        ended, self.by_number = self.by_number, {}
        for reply, _, _ in ended.values():
            if not reply.done():
                reply.set_exception(
                    ConnectionClosed(f"the connection to {self.peer} ended" + (f": {cause}" if cause else ""))
                )
