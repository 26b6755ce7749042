"""Whether a shard still answers: the supervisor asks it regularly over their connection.

The end of a process shows by itself. A process that is stopped, or whose event loop is blocked, keeps its
connections and ports, and clients wait for it in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestTimeout, TooManyRequests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq_remoting.connection import Connection

QUESTION: Final = RequestCode.HEART_BEAT
# Longer than the pauses of a busy broker. After an answer, the next question follows after this time, too.
_ANSWER_SECONDS: Final = 10.0
# More than one: after the supervisor itself stood still, the time for an answer is over before it is read.
_UNANSWERED: Final = 3
SILENT_SECONDS: Final = _ANSWER_SECONDS * _UNANSWERED


async def until_silent(connection: Connection, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Return once a shard has answered nothing for SILENT_SECONDS. Raises ConnectionClosed."""
    unanswered = 0
    while unanswered < _UNANSWERED:
        try:
            await connection.send_request(RemotingCommand.request(QUESTION), _ANSWER_SECONDS)
        except RequestTimeout:
            unanswered += 1
            continue
        except TooManyRequests:  # it has not read for long
            unanswered += 1
        else:
            unanswered = 0
        await sleep(_ANSWER_SECONDS)


def answer(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer the supervisor's question."""
    return request.response(ResponseCode.SUCCESS)
