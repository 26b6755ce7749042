"""Back-pressure: bounds of messages and bytes in flight; sends are admitted in the order of their calls."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from ..checks import check_int, short_repr
from ..errors import TimedOut
from .in_flight import InFlightCount


@dataclass(frozen=True, slots=True, repr=False)
class InFlightLimits:
    """Bounds of one producer's messages in flight. Further sends wait."""

    max_messages: int = 10_000
    max_bytes: int = 64 * 1024 * 1024

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Refuse bounds that admit nothing."""
        check_int("max_messages", self.max_messages, least=1)
        check_int("max_bytes", self.max_bytes, least=1)


class BackPressure(InFlightCount):
    """Admits sends up to the limits. Belongs to one loop.

    A message that is larger than `max_bytes` by itself is admitted when no other message is in flight.
    """

    __slots__ = ("_bytes", "_max_bytes", "_max_count", "_waiting")

    def __init__(self, limits: InFlightLimits) -> None:
        super().__init__()
        self._max_count = limits.max_messages
        self._max_bytes = limits.max_bytes
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def messages(self) -> int:
        """The number of messages in flight."""
        return self._count

    @property
    def bytes(self) -> int:
        """The number of bytes in flight."""
        return self._bytes

    def try_acquire(self, size_bytes: int) -> bool:
        """Admit at once, if there is room and no send is waiting."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self._count += 1
        self._bytes += size_bytes
        return True

    async def acquire(self, size_bytes: int) -> None:
        """Wait for admission. A cancelled wait has no effect."""
        if self.try_acquire(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (turn, size_bytes)
        self._waiting.append(entry)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release(size_bytes)  # admitted, but cancelled before it ran
            else:
                self._waiting.remove(entry)
                self._admit()  # the next ones in line may fit
            raise

    async def acquire_within(self, size_bytes: int, timeout_seconds: float) -> float:
        """Wait for admission, and return how much of the timeout is left in seconds. Raises TimedOut."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.acquire(size_bytes)
        except TimeoutError:
            raise TimedOut(
                f"not sent within {timeout_seconds} s: {self.messages} messages ({self.bytes} bytes) of this "
                "producer are in flight; send slower, or raise the bounds with limits=InFlightLimits(...)"
            ) from None
        return timeout_seconds - (loop.time() - began)

    def release(self, size_bytes: int) -> None:
        """Release an admitted send."""
        self._count -= 1
        self._bytes -= size_bytes
        if self._waiting:
            self._admit()
        if self._idle is not None:
            self._wake_if_idle()

    def _fits(self, size_bytes: int) -> bool:
        if self._count == 0:
            return True
        return self._count < self._max_count and self._bytes + size_bytes <= self._max_bytes

    def _admit(self) -> None:
        waiting = self._waiting
        while waiting:
            turn, size_bytes = waiting[0]
            if turn.done():  # cancelled, and about to remove itself: `remove` must find it
                break
            if not self._fits(size_bytes):
                break
            waiting.popleft()
            self._count += 1
            self._bytes += size_bytes
            turn.set_result(None)
