"""Brings back what was popped and not acknowledged in time (Apache RocketMQ 5.3.3, PopReviveService)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ..store.errors import MessageRejected, StoreUnavailable
from ..store.reader import ColdRead, GetStatus
from .check_point import CheckPoint
from .retry_topics import normal_topic

if TYPE_CHECKING:
    from ..groups.table import SubscriptionGroupTable
    from ..persistence import ClockMs
    from ..store.message_store import MessageStore
    from ..topics.table import TopicTable
    from .in_flight import InFlight
    from .journal import Journal
    from .returns import Returns

log = logging.getLogger("rmq.broker.pop")

TICK_SECONDS: Final = 0.1
_RETRY_MS: Final = 1000
# So many messages come back in a row before the loop goes on with other work.
_SLICE: Final = 16


class Revival:
    """Looks for check points that are due."""

    def __init__(
        self,
        in_flight: InFlight,
        journal: Journal,
        returns: Returns,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        now_ms: ClockMs,
    ) -> None:
        self.messages_gone = 0
        self._in_flight = in_flight
        self._journal = journal
        self._returns = returns
        self._store = store
        self._topics = topics
        self._groups = groups
        self._now_ms = now_ms
        self._in_a_row = 0
        self._is_failing = False

    async def run(self) -> None:
        """Revive until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self.revive_due()

    async def revive_due(self) -> None:
        """Bring back what is due now."""
        for point in self._in_flight.due(self._now_ms()):
            await self._revive(point)

    async def _revive(self, point: CheckPoint) -> None:
        key = point.key
        group = self._groups.get(key.group)
        if group is None or normal_topic(key.topic, key.group) not in self._topics:
            log.info("nothing of %s comes back: the topic or the group is gone", key)
            self._in_flight.drop(point)
            return
        settled: list[int] = []
        try:
            for offset in point.remaining():
                record = await self._record(point, offset)
                if offset not in point.remaining():
                    continue  # was acknowledged at the last moment
                if record is None:
                    self.messages_gone += 1
                    log.warning(
                        "message %d of %s cannot come back: it is not in the log any more", offset, key
                    )
                else:
                    self._give_back(point, offset, record)
                settled.append(offset)
                await self._breathe()
            self._settle(point, settled)
            self._is_failing = False
        except (StoreUnavailable, OSError) as error:
            if not self._is_failing:
                log.warning("messages cannot come back now, trying again: %s", error)
            self._is_failing = True
            for offset in settled:
                self._in_flight.ack(point, offset, is_consumed=False)
            self._in_flight.look_again(point, self._now_ms() + _RETRY_MS)

    def _give_back(self, point: CheckPoint, offset: int, record: bytes) -> None:
        group = self._groups.get(point.key.group)
        assert group is not None
        try:
            self._returns.give_back(point.key, group, record)
        except MessageRejected as error:
            # It would fail the next time as well.
            self.messages_gone += 1
            log.error("message %d of %s cannot come back: %s", offset, point.key, error)

    def _settle(self, point: CheckPoint, offsets: list[int]) -> None:
        """The messages are on their way: with their own check point's acknowledgement nothing is twice."""
        if offsets:
            self._journal.ack(point, offsets)
        for offset in offsets:
            self._in_flight.ack(point, offset, is_consumed=False)

    async def _record(self, point: CheckPoint, offset: int) -> bytes | None:
        """A message's record; None where it is gone. Raises OSError."""
        key = point.key
        result = self._store.get_now(key.topic, key.queue_id, offset, 1, None)
        if isinstance(result, ColdRead):
            await asyncio.get_running_loop().run_in_executor(None, result.run)
            result = self._store.reader.finish(result)
        return result.body if result.status is GetStatus.FOUND else None

    async def _breathe(self) -> None:
        self._in_a_row += 1
        if self._in_a_row >= _SLICE:
            self._in_a_row = 0
            await asyncio.sleep(0)
