"""Held pulls (long polling), by queue.

Source: Apache RocketMQ 5.3.3, PullRequestHoldService. A held pull looks again when its queue gets a message
and when its time ends. A check every few seconds finds queues that have grown without a wake-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmq_remoting.answers import Answer

from ..delivery.turns import ITEMS_PER_SLICE
from ..delivery.waiting_requests import LookAgain, WaitingRequest, WaitingRequests
from ..store.api import ConsumeQueue

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection


@dataclass(slots=True, eq=False)
class HeldPull(WaitingRequest[ConsumeQueue]):
    """One held pull; `seen_offset` is the end of its queue at its last look."""

    seen_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.seen_offset = self.key.max_offset

    def look_begins(self) -> None:
        self.seen_offset = self.key.max_offset

    @property
    def has_missed_arrival(self) -> bool:
        return self.seen_offset != self.key.max_offset


class HeldPulls(WaitingRequests[ConsumeQueue, HeldPull]):
    """All held pulls. A message wakes every pull of its queue, the longest-waiting first."""

    def hold(
        self,
        connection: Connection,
        queue: ConsumeQueue,
        wait_seconds: float,
        look_again: LookAgain,
        size_bytes: int = 0,
    ) -> asyncio.Future[Answer]:
        """Hold a pull for `wait_seconds` at most. After `release_all` it answers at once.

        The caller has checked `has_share`.
        """
        pull = HeldPull(connection, queue, look_again, self._last_tick(wait_seconds), size_bytes)
        self._keep(pull)
        if self._released:
            self._look(pull, time_is_up=True)
        return pull.future

    def arrived(self, queue: ConsumeQueue) -> None:
        """Wake the pulls of a queue that got a message, once for all messages of this loop iteration."""
        if queue in self._by_key:
            self._woken[queue] = None
            self._look_soon()

    async def check_all(self) -> None:
        """Wake pulls whose queue grew without a wake-up, or whose client did not read its responses then.

        The loop serves requests between slices of queues.
        """
        for number, (queue, pulls) in enumerate(list(self._by_key.items()), start=1):
            end = queue.max_offset
            for pull in pulls:
                if pull.seen_offset != end:
                    self._woken[queue] = None
                    self._look_soon()
                    break
            if number % ITEMS_PER_SLICE == 0:
                await asyncio.sleep(0)

    def wake_all(self) -> None:
        """Wake all pulls: consumers waited for more than a message."""
        self._woken.update((queue, None) for queue in self._by_key)
        self._look_soon()

    def topics_removed(self, topics: Collection[str]) -> None:
        """Wake the pulls of deleted topics: there is nothing left to wait for."""
        if topics:
            self._woken.update((queue, None) for queue in self._by_key if queue.topic in topics)
            self._look_soon()

    def leaders_are(self, topic: str, queue_ids: Collection[int]) -> None:
        """Answer the pulls of a static topic's other queues, which get no more messages.

        Their clients look for the new leader then.
        """
        for queue, pulls in self._by_key.items():
            if queue.topic == topic and queue.queue_id not in queue_ids:
                self._expired.extend(pulls)
                self._look_soon()

    def _woken_by(self, key: ConsumeQueue) -> Iterable[HeldPull]:
        return self._by_key.get(key, ())
