"""An answer that a processor gives later, without a future: for answers by the ten thousand each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from .command import RemotingCommand

# Called with the answer, or with the error in its place.
AnswerTaker = Callable[[RemotingCommand | bytes | None, Exception | None], object]


class PendingAnswer:
    """Given once, in the loop's thread. Its taker is called by `give` and `fail` themselves.

    A future would call it in the next iteration of the loop, by a handle of its own.
    """

    __slots__ = ("_answer", "_error", "_is_given", "_taker")

    def __init__(self) -> None:
        self._answer: RemotingCommand | bytes | None = None
        self._error: Exception | None = None
        self._is_given = False
        self._taker: AnswerTaker | None = None

    def give(self, answer: RemotingCommand | bytes | None) -> None:
        """Give the answer."""
        self._end(answer, None)

    def fail(self, error: Exception) -> None:
        """Give an error in place of the answer."""
        self._end(None, error)

    def taken_by(self, taker: AnswerTaker) -> None:
        """Call `taker` once the answer is given; at once if it is."""
        if self._is_given:
            taker(self._answer, self._error)
        else:
            self._taker = taker

    def as_future(self) -> asyncio.Future[RemotingCommand | bytes | None]:
        """Return a future that takes the answer; in a running event loop."""
        future: asyncio.Future[RemotingCommand | bytes | None] = asyncio.get_running_loop().create_future()
        self.taken_by(partial(_complete, future))
        return future

    def _end(self, answer: RemotingCommand | bytes | None, error: Exception | None) -> None:
        self._answer, self._error, self._is_given = answer, error, True
        if self._taker is not None:
            self._taker(answer, error)


def _complete(
    future: asyncio.Future[RemotingCommand | bytes | None],
    answer: RemotingCommand | bytes | None,
    error: Exception | None,
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)
