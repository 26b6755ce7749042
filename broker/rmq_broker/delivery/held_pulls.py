"""Long polling: pulls that found nothing wait here for a message, or for their time to end.

Apache RocketMQ 5.3.3, PullRequestHoldService. A pull is looked at when its queue gets a message and when its
time ends; a check every few seconds finds the queues that grew by another way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_remoting.dispatch import Answer, HeldAnswer

from ..store.api import ConsumeQueue
from .waiting_requests import Retry, WaitingRequest, WaitingRequests

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

# Tiers in which a request waits for nothing but a message: that is no backlog.
HOLDING_TIERS: Final = frozenset({"pull", "lite_pull"})


@dataclass(slots=True, eq=False)
class HeldPull(WaitingRequest[ConsumeQueue]):
    """One waiting pull; `seen_offset` is the end of its queue when it was looked at last."""

    seen_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.look_begins()

    def look_begins(self) -> None:
        self.seen_offset = self.key.max_offset

    @property
    def has_missed_some(self) -> bool:
        return self.seen_offset != self.key.max_offset


class HeldPulls(WaitingRequests[ConsumeQueue, HeldPull]):
    """All waiting pulls, by queue; all that wait for a queue are woken, who waits longest first."""

    def hold(
        self, connection: Connection, queue: ConsumeQueue, wait_seconds: float, retry: Retry
    ) -> asyncio.Future[Answer]:
        """Keep a pull until it can be answered, `wait_seconds` at most; after `release_all` not at all."""
        if self._released:
            answer = retry(True)
            if isinstance(answer, asyncio.Future):
                return answer
            future = HeldAnswer()
            future.set_result(answer)
            return future
        pull = HeldPull(connection, queue, retry, self._last_tick(wait_seconds))
        self._keep(pull)
        return pull.future

    def arrived(self, queue: ConsumeQueue) -> None:
        """A message came: look at who waits for the queue, once for all messages of this loop iteration."""
        if queue in self._by_key:
            self._woken[queue] = None
            self._look_soon()

    def check_all(self) -> None:
        """Look at the pulls whose queue has grown unnoticed, or whose peer did not read at the time."""
        for queue, pulls in self._by_key.items():
            if any(pull.has_missed_some for pull in pulls):
                self._woken[queue] = None
                self._look_soon()

    def topics_removed(self, topics: Collection[str]) -> None:
        """Look at the pulls of topics that have just been deleted: there is nothing left to wait for."""
        if topics:
            self._woken.update((queue, None) for queue in self._by_key if queue.topic in topics)
            self._look_soon()

    def _woken_by(self, key: ConsumeQueue) -> Iterable[HeldPull]:
        return self._by_key.get(key, ())
