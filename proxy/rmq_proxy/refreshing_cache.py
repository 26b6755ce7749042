"""A cache whose values are asked for again while they are in use."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rmq_client.errors import ClientError
from rmq_remoting.tasks import cancel_all, is_being_cancelled, shielded

log = logging.getLogger("rmq.proxy")

V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    loaded_at: float
    used_at: float


class RefreshingCache(Generic[V]):
    """Values by name. Concurrent requests for one name share one load; a failed load is not kept.

    A value older than `refresh_seconds` is returned, and loaded again in the background. If that fails, the
    old value stays in use.
    """

    def __init__(
        self,
        about: str,
        load: Callable[[str], Awaitable[V]],
        *,
        refresh_seconds: float,
        expire_seconds: float,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`about` names the values in the log. Beyond `most` the least recently used one is dropped."""
        self.name = about
        self._load = load
        self._refresh_seconds = refresh_seconds
        self._expire_seconds = expire_seconds
        self._most = most
        self._clock = clock
        self._entries: OrderedDict[str, _Entry[V]] = OrderedDict()
        self._loading: dict[str, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, name: str) -> V:
        """Return a value, loaded if necessary. Raises what the load raises."""
        entry = self._entries.get(name)
        now = self._clock()
        if entry is None or now - entry.used_at >= self._expire_seconds:
            return await self.reload(name)
        entry.used_at = now
        self._entries.move_to_end(name)
        if now - entry.loaded_at >= self._refresh_seconds:
            self._start(name)
        return entry.value

    async def reload(self, name: str) -> V:
        """Load a value now. Raises what the load raises."""
        task = self._start(name)
        try:
            return await shielded(task)
        except asyncio.CancelledError:
            if task.cancelled() and not is_being_cancelled():
                raise ClientError(f"{self.name} {name} not loaded: the proxy stops") from None
            raise

    def known(self, name: str) -> V | None:
        """Return a value that is in the cache, however old; None without one."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def drop(self, name: str) -> None:
        """Forget a value: it is no longer true, and an old one must not stay in use."""
        self._entries.pop(name, None)

    def outdate(self, is_meant: Callable[[V], bool]) -> None:
        """Load the meant values again at their next use, in the background."""
        for entry in self._entries.values():
            if is_meant(entry.value):
                entry.loaded_at = -math.inf

    async def stop(self) -> None:
        """Cancel the loads in flight."""
        await cancel_all(self._loading.values())

    def _start(self, name: str) -> asyncio.Task[V]:
        task = self._loading.get(name)
        if task is None:
            task = asyncio.ensure_future(self._loaded(name))
            self._loading[name] = task
            task.add_done_callback(lambda ended: self._ended(name, ended))
        return task

    async def _loaded(self, name: str) -> V:
        value = await self._load(name)
        now = self._clock()
        self._entries[name] = _Entry(value, now, now)
        self._entries.move_to_end(name)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return value

    def _ended(self, name: str, task: asyncio.Task[V]) -> None:
        self._loading.pop(name, None)
        error = None if task.cancelled() else task.exception()
        entry = self._entries.get(name)
        if error is None or entry is None:
            return
        entry.loaded_at = self._clock()
        log.warning("%s not refreshed name=%s cause=%s; the known one stays", self.name, name, error)
