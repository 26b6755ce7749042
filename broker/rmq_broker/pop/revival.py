"""Revival: unacknowledged messages are redelivered when their invisible time ends.

Source: Apache RocketMQ 5.3.3, PopReviveService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.tasks import finished

from ..store.api import GetStatus, MessageRejected, StoreUnavailable
from .check_point import CheckPoint
from .retry_topics import normal_topic

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig

    from ..delivery.elsewhere import Elsewhere
    from ..groups.table import SubscriptionGroupTable
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .closed_pops import ClosedPops
    from .in_flight import InFlight
    from .journal import Journal
    from .redelivery import Redelivery

log = logging.getLogger("rmq.broker.pop")

PERIOD_SECONDS: Final = 0.1
_RETRY_MS: Final = 1000
# How many messages are redelivered in a row before other work of the loop gets its turn.
_SLICE: Final = 16


class Revival:
    """Redelivers the open messages of check points that are due."""

    def __init__(
        self,
        in_flight: InFlight,
        journal: Journal,
        returns: Redelivery,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        elsewhere: Elsewhere,
        closed: ClosedPops,
    ) -> None:
        """`elsewhere` stores the messages if this broker is a replica, and `closed` tells its master."""
        self.messages_gone = 0
        self._in_flight = in_flight
        self._journal = journal
        self._redelivery = returns
        self._store = store
        self._topics = topics
        self._groups = groups
        self._elsewhere = elsewhere
        self._closed = closed
        self._in_a_row = 0
        self._is_failing = False

    async def revive_due(self) -> None:
        """Redeliver the messages that are due now; to be called every `PERIOD_SECONDS`."""
        while (point := self._in_flight.take_due()) is not None:
            await self._revive(point)

    async def _revive(self, point: CheckPoint) -> None:
        try:
            await self._redeliver_all(point)
        except (StoreUnavailable, OSError) as error:
            self._failed(error)
        finally:
            # Also when cancelled in the middle, or the redelivered messages would be redelivered again.
            self._journal_redelivered(point)
            if self._is_in_flight(point) and not point.is_complete:
                self._in_flight.reschedule(point, _RETRY_MS)

    async def _redeliver_all(self, point: CheckPoint) -> None:
        """Raises StoreUnavailable, OSError."""
        for offset in point.open_offsets():
            if offset in point.redelivered:
                continue
            record = await self._record(point, offset)
            group = self._group(point)
            if group is None or not self._is_in_flight(point):
                log.info("redelivery dropped check_point=%s cause=topic or group was deleted", point.key)
                self._in_flight.drop(point)
                return
            if not point.is_open(offset):
                continue  # acknowledged while the record was read
            if record is None:
                self.messages_gone += 1
                log.warning(
                    "redelivery impossible offset=%d check_point=%s cause=the log does not hold the message "
                    "any more; it is skipped",
                    offset,
                    point.key,
                )
            elif self._elsewhere.is_used:
                await finished(self._redeliver_elsewhere(point, offset, record))
                continue
            else:
                self._redeliver(point, group, offset, record)
            point.redelivered += (offset,)
            await self._yield_to_loop()

    def _group(self, point: CheckPoint) -> SubscriptionGroupConfig | None:
        """Return the group of the messages; None if it or the topic was deleted."""
        key = point.key
        return self._groups.get(key.group) if normal_topic(key.topic, key.group) in self._topics else None

    def _is_in_flight(self, point: CheckPoint) -> bool:
        """Tell whether the check point was not dropped meanwhile."""
        return self._in_flight.get(point.key) is point

    def _redeliver(
        self, point: CheckPoint, group: SubscriptionGroupConfig, offset: int, record: bytes
    ) -> None:
        try:
            self._redelivery.redeliver(point.key, group, record)
        except MessageRejected as error:
            # A retry would fail as well.
            self.messages_gone += 1
            log.error(
                "redelivery impossible offset=%d check_point=%s cause=%s; it is skipped",
                offset,
                point.key,
                error,
            )

    async def _redeliver_elsewhere(self, point: CheckPoint, offset: int, record: bytes) -> None:
        """Store a message with another master. Raises StoreUnavailable if none has stored it."""
        (problem,) = await self._elsewhere.put_all([self._redelivery.retry_of(point.key, record)])
        if problem:
            raise StoreUnavailable(problem)
        self._redelivery.redelivered += 1
        point.redelivered += (offset,)
        self._closed.note(point, (offset,))

    def _journal_redelivered(self, point: CheckPoint) -> None:
        """Close redelivered messages in the journal, so that a restart does not redeliver them again."""
        if not point.redelivered:
            return
        try:
            if not self._elsewhere.is_used:
                self._journal.ack(point, point.redelivered)
        except StoreUnavailable as error:
            self._failed(error)
            return
        except MessageRejected as error:
            log.error(
                "redelivery not journaled check_point=%s cause=%s; a restart redelivers again",
                point.key,
                error,
            )
        if self._is_in_flight(point):
            for offset in point.redelivered:
                self._in_flight.ack(point, offset, is_consumed=False)
        point.redelivered = ()
        self._is_failing = False

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("redelivery failed cause=%s; retrying every %d ms", error, _RETRY_MS)
        self._is_failing = True

    async def _record(self, point: CheckPoint, offset: int) -> bytes | None:
        """Return a message's record; None if the log does not hold it any more. Raises OSError."""
        key = point.key
        result = await self._store.get_async(key.topic, key.queue_id, offset, 1, None)
        return result.body if result.status is GetStatus.FOUND else None

    async def _yield_to_loop(self) -> None:
        self._in_a_row += 1
        if self._in_a_row >= _SLICE:
            self._in_a_row = 0
            await asyncio.sleep(0)
