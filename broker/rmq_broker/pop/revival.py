"""Brings back what was popped and not acknowledged in time (Apache RocketMQ 5.3.3, PopReviveService)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ..store.api import ColdRead, GetStatus, MessageRejected, StoreUnavailable
from .check_point import CheckPoint
from .retry_topics import normal_topic

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig

    from ..clock import ClockMs
    from ..groups.table import SubscriptionGroupTable
    from ..store.api import MessageStore
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
        try:
            await self._give_all_back(point)
        except (StoreUnavailable, OSError) as error:
            self._failed(error)
        finally:
            # Also when it is cancelled in the middle: what has come back is not to come twice.
            self._settle(point)
            if self._is_in_flight(point) and not point.is_done:
                self._in_flight.look_again(point, self._now_ms() + _RETRY_MS)

    async def _give_all_back(self, point: CheckPoint) -> None:
        """Raises StoreUnavailable, OSError."""
        for offset in point.remaining():
            if offset in point.given_back:
                continue
            record = await self._record(point, offset)
            group = self._group(point)
            if group is None or not self._is_in_flight(point):
                log.info("nothing of %s comes back: the topic or the group is gone", point.key)
                self._in_flight.drop(point)
                return
            if not point.is_open(offset):
                continue  # was acknowledged at the last moment
            if record is None:
                self.messages_gone += 1
                log.warning(
                    "message %d of %s cannot come back: it is not in the log any more", offset, point.key
                )
            else:
                self._give_back(point, group, offset, record)
            point.given_back += (offset,)
            await self._breathe()

    def _group(self, point: CheckPoint) -> SubscriptionGroupConfig | None:
        """The group that messages come back to; None where it is gone, or the topic is."""
        key = point.key
        return self._groups.get(key.group) if normal_topic(key.topic, key.group) in self._topics else None

    def _is_in_flight(self, point: CheckPoint) -> bool:
        """Whether the check point was not dropped meanwhile."""
        return self._in_flight.get(point.key) is point

    def _give_back(
        self, point: CheckPoint, group: SubscriptionGroupConfig, offset: int, record: bytes
    ) -> None:
        try:
            self._returns.give_back(point.key, group, record)
        except MessageRejected as error:
            # It would fail the next time as well.
            self.messages_gone += 1
            log.error("message %d of %s cannot come back: %s", offset, point.key, error)

    def _settle(self, point: CheckPoint) -> None:
        """What is on its way is done with: where the journal says so, nothing comes twice after a start."""
        if not point.given_back:
            return
        try:
            self._journal.ack(point, point.given_back)
        except StoreUnavailable as error:
            self._failed(error)
            return
        except MessageRejected as error:
            log.error("%s comes back a second time after a start: %s", point.key, error)
        if self._is_in_flight(point):
            for offset in point.given_back:
                self._in_flight.ack(point, offset, is_consumed=False)
        point.given_back = ()
        self._is_failing = False

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("messages cannot come back now, trying again: %s", error)
        self._is_failing = True

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
