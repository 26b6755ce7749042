"""Deferred answers: sent when a change is persisted, or when another client has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from ..answers import Answer, Result, answer_of
from ..codes import ResponseCode
from ..command import RemotingCommand
from ..errors import CommandError

Persist = Callable[[], Awaitable[object]]
"""Waits until all changes so far are persisted. Raises OSError if they cannot be written."""

# The event loop holds only weak references to tasks.
_answering: Final[set[asyncio.Task[Answer]]] = set()


def answer_when_persisted(response: RemotingCommand, persist: Persist) -> asyncio.Future[Answer]:
    """Return a future of the response, completed when its change is persisted; for the loop's thread."""
    return deferred_answer(_answer(response, persist), "persist a change")


def deferred_answer(work: Coroutine[Any, Any, Answer], name: str) -> asyncio.Future[Answer]:
    """Return a task with the answer of a coroutine; for the loop's thread."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _answering.add(task)
    task.add_done_callback(_answering.discard)
    return task


def answer_after(
    happened: Callable[[], Awaitable[object]], result: Result, name: str
) -> asyncio.Future[Answer]:
    """Return a task with the answer of a processor, completed once `happened` returns."""
    return deferred_answer(_answer_after(happened, result), name)


async def _answer_after(happened: Callable[[], Awaitable[object]], result: Result) -> Answer:
    await happened()
    return await answer_of(result)


async def _answer(response: RemotingCommand, persist: Persist) -> Answer:
    try:
        await persist()
    except OSError as error:
        remark = f"changed, but not persisted yet ({error}); the change is lost if the daemon stops before"
        raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from error
    return response
