"""Notifications that a source has messages to pop, without popping them.

A pop that waits at a broker cannot be withdrawn: messages that it finds become invisible to the other
consumers, whether or not a caller here still waits. So the simple consumer asks the brokers of all its topics
at once whether there are messages (200054), and pops then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from rmq_remoting.tasks import cancel_all

from ...errors import ClientError
from ..requests.pop_client import PopClient
from ..requests.pop_source import PopSource

log = logging.getLogger(__name__)

# How long a broker holds a notification request (Apache RocketMQ 5.3.3: 15 s for a pull).
_HOLD_MS: Final = 15_000
# A request that is answered 'nothing' earlier, or not at all, is not repeated before this time.
_MIN_POLL_SECONDS: Final = 1.0

AddressOf = Callable[[PopSource], Awaitable[str]]
"""Returns the address of a broker. Raises ClientError."""


class ArrivalNotifications:
    """One notification request in flight per source, for all waiting callers. Belongs to one loop."""

    def __init__(self, client: PopClient, address_of: AddressOf) -> None:
        self._client = client
        self._address_of = address_of
        self._asking: dict[PopSource, asyncio.Task[bool]] = {}

    async def wait(self, sources: Iterable[PopSource], timeout_seconds: float) -> PopSource | None:
        """Return a source that has messages; None if none has in time, or a broker could not tell.

        A cancelled caller does not cancel the requests: they serve the next caller.
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
        """Cancel all requests. Waiting callers return at once."""
        await cancel_all(self._asking.values())

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
            log.info("arrivals not known source=%s cause=%s; asked again", source.queue, error)
        await asyncio.sleep(max(0.0, began + _MIN_POLL_SECONDS - loop.time()))
        return False
