"""The sources that a consumer pops: opened, closed and supervised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ...tasks import StartTask
from ..requests.pop_source import PopSource
from .pop_process_queue import PopProcessQueue
from .source_popper import PopConsumption, SourcePopper

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Running:
    popper: SourcePopper
    task: asyncio.Task[None]


class PopSources:
    """The pop loops of one consumer, by source. Belongs to the network loop."""

    def __init__(
        self,
        group: str,
        service: PopConsumption,
        make_popper: Callable[[PopSource], SourcePopper],
        start_task: StartTask,
    ) -> None:
        self._group = group
        self._service = service
        self._make_popper = make_popper
        self._start_task = start_task
        self._running: dict[PopSource, _Running] = {}
        self._stopping = False

    def sources(self) -> list[PopSource]:
        """Return the sources that are popped."""
        return list(self._running)

    def queues(self) -> list[PopProcessQueue]:
        """Return their process queues."""
        return [running.popper.queue for running in self._running.values()]

    def open(self, sources: Collection[PopSource]) -> None:
        """Start to pop these sources."""
        for source in sorted(set(sources) - self._running.keys(), key=lambda one: one.queue):
            if self._stopping:
                return
            popper = self._make_popper(source)
            task = self._start_task(popper.run(), f"pop {source.queue}")
            self._running[source] = _Running(popper, task)
            log.info("popping started group=%s source=%s", self._group, source.queue)

    async def close(self, is_unwanted: Callable[[PopSource], bool]) -> list[PopSource]:
        """Stop popping unwanted sources, and sources whose loop failed, so that they can be opened again.

        Returns the closed sources.
        """
        unwanted = [source for source, one in self._running.items() if is_unwanted(source) or one.task.done()]
        await asyncio.gather(*(self._close(source) for source in unwanted))
        return unwanted

    async def stop(self) -> list[PopSource]:
        """Stop popping all sources, and return them."""
        self._stopping = True
        return await self.close(lambda _: True)

    async def _close(self, source: PopSource) -> None:
        """Make messages visible again whose call has not begun; the others end as usual."""
        running = self._running.pop(source)
        self._service.close(running.popper.queue)
        running.task.cancel()
        await asyncio.wait([running.task])
        await running.popper.finish()
