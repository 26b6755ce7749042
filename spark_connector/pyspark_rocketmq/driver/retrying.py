"""Retries of the driver's requests, on the event loop of the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from rmq_client import ClientError

from ..retries import Backoff, is_transient

K = TypeVar("K")
T = TypeVar("T")

_MAX_IN_FLIGHT: Final = 64


async def with_retries(
    ask: Callable[[], Awaitable[T]], backoff: Backoff, *, raising: tuple[type[ClientError], ...] = ()
) -> T:
    """Call `ask` until it succeeds.

    Raises SourceUnavailable after the timeout, the errors `raising`, and those that are not transient.
    """
    while True:
        try:
            return await ask()
        except ClientError as error:
            if isinstance(error, raising) or not is_transient(error):
                raise
            await asyncio.sleep(backoff.next_pause(error))


async def attempt(
    keys: Iterable[K],
    ask: Callable[[K], Awaitable[T]],
    tolerates: Callable[[ClientError], bool] = is_transient,
) -> tuple[dict[K, T], dict[K, ClientError]]:
    """Call `ask` once for each key, many at a time.

    Return the answers, and the errors for which `tolerates` is true. Raises every other error.
    """
    room = asyncio.Semaphore(_MAX_IN_FLIGHT)
    answers: dict[K, T] = {}
    failed: dict[K, ClientError] = {}

    async def one(key: K) -> None:
        async with room:
            try:
                answers[key] = await ask(key)
            except ClientError as error:
                if not tolerates(error):
                    raise
                failed[key] = error

    await asyncio.gather(*(one(key) for key in keys))
    return answers, failed
