"""Waiting for messages without taking them: brokers tell that there is something to pop.

A pop that waits at a broker cannot be called back: what it finds is kept from the other consumers, whether
or not somebody here still wants it. So the simple consumer asks the brokers of all its topics at once whether
there is something (200054), and pops where there is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ...errors import ClientError
from ..requests.pop_client import PopClient
from ..requests.pop_source import PopSource

log = logging.getLogger("rmq.client.pop")

# How long a broker holds a question (Apache RocketMQ 5.3.3: 15 s for a pull).
_HOLD_MS: Final = 15_000
# A question that is answered 'nothing' sooner than this, or not at all, is not repeated sooner.
_MIN_POLL_SECONDS: Final = 1.0

AddressOf = Callable[[PopSource], Awaitable[str]]
"""The address of a broker. Raises ClientError."""


class ArrivalNotifications:
    """One question under way for each place, for whoever waits. Belongs to one loop."""

    def __init__(self, client: PopClient, address_of: AddressOf) -> None:
        self._client = client
        self._address_of = address_of
        self._asking: dict[PopSource, asyncio.Task[bool]] = {}

    async def wait(self, sources: Iterable[PopSource], timeout_seconds: float) -> PopSource | None:
        """A place that has something; None where none of them had for so long, or one could not tell.

        Who is cancelled takes nothing along: the questions stay, and are the next one's.
        """
        tasks = {self._ask(source): source for source in sources}
        done, _ = await asyncio.wait(
            tasks, timeout=max(0.0, timeout_seconds), return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            if not task.cancelled() and task.result():
                return tasks[task]
        return None

    async def stop(self) -> None:
        """Ask no more; who waits goes on at once."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ask(self, source: PopSource) -> asyncio.Task[bool]:
        task = self._asking.get(source)
        if task is None:
            task = asyncio.create_task(self._has_news(source), name=f"rmq news of {source.topic}")
            self._asking[source] = task
            task.add_done_callback(lambda _: self._asking.pop(source, None))
        return task

    async def _has_news(self, source: PopSource) -> bool:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if await self._client.has_messages(await self._address_of(source), source, _HOLD_MS):
                return True
        except ClientError as error:
            log.info("%s", error)
        await asyncio.sleep(max(0.0, began + _MIN_POLL_SECONDS - loop.time()))
        return False
