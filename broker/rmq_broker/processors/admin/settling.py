"""Answers that come later: when a change has arrived on disk (those of topics in the routes too), or when
somebody else has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer
from rmq_remoting.errors import CommandError

Settle = Callable[[], Awaitable[object]]
"""Waits until the changes so far have arrived. Raises OSError where they cannot be written."""

# The loop itself knows tasks only weakly.
_answering: Final[set[asyncio.Task[Answer]]] = set()


def answer_when_settled(response: RemotingCommand, settle: Settle) -> asyncio.Future[Answer]:
    """The response, when the change that it tells of has arrived; belongs to the loop's thread."""
    return answer_later(_answer(response, settle), "settle a change")


def answer_later(work: Coroutine[Any, Any, Answer], name: str) -> asyncio.Future[Answer]:
    """What a coroutine gives as its answer; belongs to the loop's thread."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _answering.add(task)
    task.add_done_callback(_answering.discard)
    return task


async def _answer(response: RemotingCommand, settle: Settle) -> Answer:
    try:
        await settle()
    except OSError as error:
        remark = f"done, but not written to disk yet ({error}); it is lost if the broker ends before it is"
        raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from error
    return response
