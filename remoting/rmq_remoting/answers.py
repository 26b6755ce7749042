"""What processors return: an answer, or the future answer to a held request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from .command import RemotingCommand
from .pending_answer import PendingAnswer

# A response, an encoded response frame, or None for no response.
Answer = RemotingCommand | bytes | None
# An answer, or a future of it.
Eventual = Answer | asyncio.Future[Answer]
# The result of a processor.
Result = Eventual | PendingAnswer


async def answer_of(result: Result) -> Answer:
    """Return the answer of a processor's result, once there is one."""
    if isinstance(result, PendingAnswer):
        return await result.as_future()
    return await result if isinstance(result, asyncio.Future) else result


class HeldAnswer(asyncio.Future[Answer]):
    """The future answer to a held request, such as a long poll.

    Its taker is called by `set_result` itself and not in the loop's next iteration. The latency of held
    requests has a metric of its own: it tells how often messages arrive, not how fast the server is.
    """

    __slots__ = ("_taker",)

    def __init__(self) -> None:
        super().__init__()
        self._taker: Callable[[HeldAnswer], object] | None = None

    def taken_by(self, taker: Callable[[HeldAnswer], object]) -> None:
        """Call `taker` once the future is done."""
        if self.done():
            self.add_done_callback(cast(Callable[[asyncio.Future[Answer]], object], taker))
        else:
            self._taker = taker

    def set_result(self, result: Answer, /) -> None:
        """Set the answer, and hand it to the taker."""
        super().set_result(result)
        if self._taker is not None:
            self._taker(self)

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        """Set the error, and hand it to the taker."""
        super().set_exception(exception)
        if self._taker is not None:
            self._taker(self)

    def cancel(self, msg: object = None) -> bool:
        """Cancel the future, and tell the taker."""
        was_open = super().cancel(msg)
        if was_open and self._taker is not None:
            self._taker(self)
        return was_open
