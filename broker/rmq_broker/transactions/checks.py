"""Check transactions that do not end: ask their producers for the outcome, and finally give them up.

Source: Apache RocketMQ 5.3.3, TransactionalMessageServiceImpl, DefaultTransactionalMessageCheckListener.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_properties import (
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
)
from rmq_remoting.tasks import finished

from ..delivery.inner_message import InnerMessage, read_message
from ..delivery.stall_log import StallLog
from ..store.api import ColdData, MessageRejected, StoreUnavailable
from ..topics.names import TRANSACTION_CHECKED_OUT_TOPIC
from .half_messages import HalfMessage, Outcome

if TYPE_CHECKING:
    from ..clock import Clocks
    from ..delivery.elsewhere import Elsewhere
    from ..delivery.message_writer import MessageWriter
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .check_requests import CheckRequests
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

log = logging.getLogger("rmq.broker.transactions")

_CHECKED_OUT_QUEUES: Final = 1
_HOUR_MS: Final = 3_600_000
# The transactions that are visited, and that are checked, before the event loop runs other work.
_VISITS: Final = 1000
_SLICE: Final = 16


class Checks:
    """Checks all overdue transactions every `transactionCheckInterval`; belongs to the loop's thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        store: MessageStore,
        writer: MessageWriter,
        halves: HalfMessages,
        ops: OpMessages,
        check_requests: CheckRequests,
        clocks: Clocks,
        elsewhere: Elsewhere,
    ) -> None:
        """`elsewhere` takes the transactions over if this broker is a replica."""
        self.given_up = 0
        self.lost = 0  # transactions whose half message could not be read
        self._settings = settings
        self._topics = topics
        self._store = store
        self._writer = writer
        self._halves = halves
        self._ops = ops
        self._check_requests = check_requests
        self._clocks = clocks
        self._elsewhere = elsewhere
        self._stall_log = StallLog(log, "half messages")
        self.moved = 0  # transactions that another master has taken over

    def period_seconds(self) -> float:
        """Return the pause between two calls of `run`, by the current setting."""
        return self._settings.transaction_check_interval_ms / 1000

    async def run(self) -> None:
        """Check each transaction that has been in progress for too long."""
        given_up = self.given_up
        await self._round()
        if self.given_up > given_up:
            log.warning(
                "transactions given up, their producers did not report an outcome; their messages were moved "
                "transactions=%d topic=%s",
                self.given_up - given_up,
                TRANSACTION_CHECKED_OUT_TOPIC,
            )

    async def _round(self) -> None:
        if self._elsewhere.is_used:
            await self._move_due()
            return
        done = 0
        for number, half in enumerate(self._halves.in_order(), 1):
            if number % _VISITS == 0:
                await asyncio.sleep(0)
            if not self._halves.is_current(half) or not self._is_due(half):
                continue
            try:
                await self._check(half)
            except StoreUnavailable as error:
                log.warning("transaction checks interrupted, will retry cause=%s", error)
                return
            except OSError as error:
                log.error(
                    "reading a half message failed, will retry physical_offset=%d cause=%s",
                    half.physical_offset,
                    error,
                )
            done += 1
            if done % _SLICE == 0:
                await self._yield()

    async def _move_due(self) -> None:
        """Store overdue half messages with another master, which checks them from then on.

        In the order of their queue: the progress does not pass one that is not stored.
        """
        for half in self._halves.in_order():
            if not self._halves.is_current(half) or not self._is_due(half):
                continue
            try:
                message = await self._read(half)
            except OSError as error:
                self._stall_log.stalled(f"reading a half message at {half.physical_offset} failed: {error}")
                return
            if message is None:
                self._lose(half, "its half message is no longer in the commit log")
            elif not await finished(self._move(half, message)):
                return

    async def _move(self, half: HalfMessage, message: InnerMessage) -> bool:
        (problem,) = await self._elsewhere.put_all([message])
        if problem:
            self._stall_log.stalled(problem)
            return False
        self._stall_log.delivered()
        self._halves.end(half.first_offset, Outcome.MOVED)
        self.moved += 1
        return True

    async def _yield(self) -> None:
        """Let other work run; with SYNC_FLUSH also wait for the flush of the appended messages."""
        if self._store.answers_when_durable:
            await self._store.durable()
        else:
            await asyncio.sleep(0)

    def _age_ms(self, half: HalfMessage) -> int:
        """Return for how long a transaction has been in progress.

        Negative if it was recovered and the clock was set back while the broker was down.
        """
        return self._clocks.steady_ms() - half.since_ms

    def _is_due(self, half: HalfMessage) -> bool:
        """Whether a transaction has been in progress for `transactionTimeOut`, or its age is unknown."""
        age_ms = self._age_ms(half)
        return not 0 <= age_ms < self._settings.transaction_timeout_ms

    async def _check(self, half: HalfMessage) -> None:
        message = await self._read(half)
        if not self._halves.is_current(half):
            return  # it ended during the read
        if message is None:
            self._lose(half, "its half message is no longer in the commit log")
            return
        if self._is_over(half) or not self._append_again(half, message):
            self._give_up(half, message)

    async def _read(self, half: HalfMessage) -> InnerMessage | None:
        """Read the half message, flushed or not; None if it is not in the log. Raises OSError."""
        try:
            record = self._store.record_now(half.physical_offset, entered=False)
        except ColdData:
            if half.physical_offset >= self._store.entries_end:
                raise OSError("it is neither in memory nor flushed yet") from None
            record = await asyncio.get_running_loop().run_in_executor(
                None, self._store.record_at, half.physical_offset
            )
        return None if record is None else read_message(record).message

    def _is_over(self, half: HalfMessage) -> bool:
        """Whether the last check is over, or the transaction older than messages are kept.

        (needDiscard, needSkip.)
        """
        age_ms = self._age_ms(half)
        return (
            half.checks >= self._settings.transaction_check_max
            or age_ms > self._settings.file_reserved_hours * _HOUR_MS
        )

    def _append_again(self, half: HalfMessage, message: InnerMessage) -> bool:
        """Append the half message again and send a check request; False if its properties get too long.

        The producer of an immune transaction is not asked. Its half message is appended again nevertheless,
        because it would hold back the committed offset of the queue.
        """
        is_immune = half.immune_ms is not None and 0 <= self._age_ms(half) < half.immune_ms
        checks = half.checks + (0 if is_immune else 1)
        fields = decode_properties(message.properties)
        if checks:
            fields[PROPERTY_TRANSACTION_CHECK_TIMES] = str(checks)
        fields[PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET] = str(half.first_offset)
        checked = replace(message)
        checked.set_properties(fields)
        try:
            written = self._writer.put(checked)
        except MessageRejected:
            return False
        again = replace(
            half,
            queue_offset=written.queue_offset,
            physical_offset=written.physical_offset,
            size=written.size_bytes,
            stored_ms=self._clocks.now_ms(),
            checks=checks,
            message=None,
        )
        self._halves.add(again)
        self._ops.add(half.queue_offset)
        if not is_immune:
            self._check_requests.send(again, checked)
        return True

    def _give_up(self, half: HalfMessage, message: InnerMessage) -> None:
        """Move the half message to a topic where administrators find it and can resume its checks (323)."""
        topic = self._topics.create_for_group(TRANSACTION_CHECKED_OUT_TOPIC, _CHECKED_OUT_QUEUES)
        message.topic, message.queue_id = topic.topic_name, 0
        try:
            self._writer.put(message)
        except MessageRejected as error:
            self._lose(half, str(error))
            return
        self._end(half)
        self.given_up += 1

    def _lose(self, half: HalfMessage, cause: str) -> None:
        self.lost += 1
        log.error(
            "transaction dropped group=%s topic=%s physical_offset=%d cause=%s",
            half.group,
            half.topic,
            half.physical_offset,
            cause,
        )
        self._end(half)

    def _end(self, half: HalfMessage) -> None:
        self._halves.end(half.first_offset, Outcome.GIVEN_UP)
        self._ops.add(half.queue_offset)
