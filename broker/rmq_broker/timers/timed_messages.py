"""Deliver timed messages: when a slot is over its messages are stored again, in their original queues.

Source: Apache RocketMQ 5.3.3, TimerMessageStore (dequeue, convert, doPut).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from rmq_remoting.message_properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    decode_properties,
)
from rmq_remoting.tasks import finished, shielded

from ..delivery.elsewhere import ELSEWHERE_RETRY_MS, Elsewhere
from ..delivery.inner_message import InnerMessage, read_message
from ..delivery.original_queue import restore_original_queue
from ..delivery.stall_log import StallLog
from ..delivery.timer_admission import TIMER_PROPERTIES
from ..delivery.timer_entry import TimerEntry
from ..store.api import (
    CRC_PROPERTY_BYTES,
    MAX_PROPERTIES_BYTES,
    MessageRejected,
    StoreUnavailable,
)
from ..topics.names import TIMER_TOPIC, is_revive_topic
from .slot_reading import SlotReading

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from ..settings.timers import TimerSettings
    from ..store.api import MessageStore
    from .intake import TimerIntake
    from .log_unit import Unit
    from .pending import DueSlot

log = logging.getLogger("rmq.broker.timers")

# The messages that are delivered before the event loop runs other work.
_SLICE: Final = 64
# The pause between two deliveries, each of which enters new messages first.
_LONGEST_SECONDS: Final = 0.1
_LONGEST_IDLE_SECONDS: Final = 1.0
_SHORTEST_SECONDS: Final = 0.005
# The pause after a failed read.
_READ_RETRY_MS: Final = 10_000
_MAX_DIGITS: Final = 18
_MAX_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - CRC_PROPERTY_BYTES
_MS: Final = 1000

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class _SlotDelivery:
    """The delivery of one slot, with the topics of its recalls by key, and the recalls not matched so far."""

    slot: DueSlot
    recalled: dict[str, str]
    missed: set[str]
    is_refused: bool = False  # whether the store did not accept the last message
    # Places in the slot of messages that another master has stored, behind one that it has not.
    stored_ahead: set[int] = field(default_factory=set)


class _Due(NamedTuple):
    """A message for its original queue, and when it was due."""

    message: InnerMessage
    due_ms: int


class TimedMessages:
    """Delivers due messages; belongs to the loop's thread and yields to other work after each slice."""

    def __init__(
        self,
        settings: TimerSettings,
        store: MessageStore,
        intake: TimerIntake,
        writer: MessageWriter,
        now_ms: ClockMs,
        elsewhere: Elsewhere,
    ) -> None:
        """`elsewhere` stores the messages if this broker is a replica."""
        self._settings = settings
        self._store = store
        self._pending = intake.pending
        self._entering = intake.entering
        self._counts = intake.counts
        self._writer = writer
        self._now_ms = now_ms
        self._elsewhere = elsewhere
        self._reading_slots = SlotReading(intake.pending.timer_log)
        self._current: _SlotDelivery | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._stall_log = StallLog(log, "timed messages")
        self._retry_at_ms = 0
        self._entered_to = -1  # the offset of the timer's queue at the last pause

    # --- life ---

    async def deliver_due(self) -> None:
        """Enter new messages and deliver all due ones; to be called every `pause_seconds`."""
        if 0 < self._retry_at_ms - self._now_ms() <= _READ_RETRY_MS:
            return
        try:
            await self._work()
        except OSError as error:
            self._retry_at_ms = self._now_ms() + _READ_RETRY_MS
            log.error("reading timed messages failed, will retry retry_ms=%d cause=%s", _READ_RETRY_MS, error)

    async def _work(self) -> None:
        """Raises OSError, and can be retried then."""
        if self._current is None:
            self._pending.follow_clock_back()
        await self._enter_new()
        while not self._settings.timer_stop_dequeue and (delivery := await self._next_slot()) is not None:
            while delivery.slot.done < len(delivery.slot.messages):
                if not await self._slice(delivery):
                    return
                await self._enter_new()
            self._end(delivery)

    async def finish_interrupted_slot(self) -> None:
        """Keep the delivered messages of a slot from being redelivered, after the delivery was cancelled.

        The remaining messages move to the next slot. If the store was not accepting messages, or the entries
        cannot be read, the whole slot is redelivered after the next start.
        """
        if self._reading is not None:
            await asyncio.wait([self._reading])
        delivery, self._current = self._current, None
        if delivery is None or not delivery.slot.done or delivery.is_refused:
            return
        if delivery.slot.done == len(delivery.slot.messages):
            self._end(delivery)
            return
        try:
            units = await self._in_thread(self._pending.remaining_units, delivery.slot)
        except OSError as error:
            log.error("reading a due slot failed, some timed messages will be redelivered cause=%s", error)
            return
        if units is not None:
            self._finish_partly(delivery, units)

    def _finish_partly(self, delivery: _SlotDelivery, units: list[Unit]) -> None:
        self._pending.finish_partly(delivery.slot.time_ms, units)
        for key in delivery.recalled.keys() - delivery.missed:
            # A recall that has matched waits once more, and has no message to recall then.
            self._counts.left(delivery.recalled[key])

    async def _in_thread(self, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Read in a thread, which continues if the caller is cancelled. Raises OSError."""
        call = partial(read, *args, **kwargs)
        self._reading = reading = asyncio.get_running_loop().run_in_executor(None, call)
        reading.add_done_callback(_retrieve_error)
        return await shielded(reading)

    def pause_seconds(self) -> float:
        """Return the pause until the next delivery: to the end of the slot.

        It is not longer than 0.1 s while new messages come, nor than 1 s otherwise.
        """
        offset, before = self._pending.queue_offset, self._entered_to
        self._entered_to = offset
        is_idle = offset == before and not self._entering.behind and self._current is None
        precision_ms = self._pending.wheel.precision_ms
        left_ms = precision_ms - self._now_ms() % precision_ms
        longest = _LONGEST_IDLE_SECONDS if is_idle else _LONGEST_SECONDS
        return min(max(left_ms / _MS, _SHORTEST_SECONDS), longest)

    # --- a slot ---

    async def _enter_new(self) -> None:
        if self._settings.timer_stop_enqueue:
            return
        pending = self._pending
        is_busy = self._current is not None
        await self._entering.enter_new(pending.read_ms + (pending.wheel.precision_ms if is_busy else 0))

    async def _next_slot(self) -> _SlotDelivery | None:
        if self._current is None:
            slot = self._pending.next_due()
            if slot is None:
                return None
            due = await self._in_thread(self._pending.read_slot, slot)
            recalled: dict[str, str] = {}
            for begin in range(0, len(due.deletes), _SLICE):
                positions = due.deletes[begin : begin + _SLICE]
                read = self._reading_slots.recalls
                recalled.update(await self._in_thread(read, positions, self._store.cold_log()))
            self._current = _SlotDelivery(due, recalled, set(recalled))
        return self._current

    def _end(self, delivery: _SlotDelivery) -> None:
        for key in delivery.missed:
            self._counts.missed(delivery.recalled[key])
        self._pending.done(delivery.slot.time_ms)
        self._current = None
        if not self._pending.count and not self._entering.behind:
            self._counts.set_waiting({})

    async def _slice(self, delivery: _SlotDelivery) -> bool:
        """Deliver a slice of a slot; return False if the store is unavailable. Raises OSError."""
        slot = delivery.slot
        positions = slot.messages[slot.done : slot.done + _SLICE]
        found = await self._in_thread(self._reading_slots.messages, positions, self._store.cold_log())
        if self._elsewhere.is_used:
            # A message on its way is waited for, even if this task is cancelled.
            return await finished(self._deliver_elsewhere(delivery, found))
        for unit, record in found:
            try:
                delivery.is_refused = not self._deliver(delivery, unit, record)
                if delivery.is_refused:
                    return False
            except MessageRejected as error:
                delivery.is_refused = False
                self._skip(unit, str(error))
            slot.done += 1
        if self._store.answers_when_durable:
            # Delivering no faster than the disk flushes keeps the messages out of memory.
            await self._store.durable()
        return True

    async def _deliver_elsewhere(
        self, delivery: _SlotDelivery, found: Sequence[tuple[Unit | None, bytes | None]]
    ) -> bool:
        """Store messages with another master; return False if one of them is not stored."""
        slot, ahead = delivery.slot, delivery.stored_ahead
        begin = slot.done
        due: dict[int, _Due] = {}
        for place, (unit, record) in enumerate(found, begin):
            if place not in ahead:
                message = self._due_message(delivery, unit, record)
                if message is not None:
                    due[place] = message
        problems = await self._elsewhere.put_all([each.message for each in due.values()])
        failed = {place: problem for place, problem in zip(due, problems, strict=True) if problem}
        for place, each in due.items():
            if place not in failed:
                self._delivered(each)
        end = begin + len(found)
        stop = min(failed, default=end)
        ahead.update(place for place in range(stop, end) if place not in failed)
        ahead.difference_update(range(stop))
        slot.done = stop
        if failed:
            self._stall_log.stalled(failed[stop])
            self._retry_at_ms = self._now_ms() + ELSEWHERE_RETRY_MS
            return False
        self._stall_log.delivered()
        return True

    # --- delivering a message ---

    def _deliver(self, delivery: _SlotDelivery, unit: Unit | None, record: bytes | None) -> bool:
        """Store one message in its original queue; return False if the store is unavailable.

        Raises MessageRejected.
        """
        if unit is not None and record is not None and unit.rolls:
            message = read_message(record).message
            fields = decode_properties(message.properties)
            if message.topic == TIMER_TOPIC and not is_revive_topic(fields.get(PROPERTY_REAL_TOPIC, "")):
                return self._roll(unit, message, fields)
        due = self._due_message(delivery, unit, record)
        if due is None:
            return True
        if not self._put(lambda: self._writer.put_due(due.message)):
            return False
        self._delivered(due)
        return True

    def _due_message(self, delivery: _SlotDelivery, unit: Unit | None, record: bytes | None) -> _Due | None:
        """Return a message for its original queue; None if it is not to be stored there."""
        if unit is None or record is None:
            self._skip(unit, "its record is missing or damaged")
            return None
        message = read_message(record).message
        fields = decode_properties(message.properties)
        topic = fields.get(PROPERTY_REAL_TOPIC, "")
        if message.topic != TIMER_TOPIC:
            self._skip(unit, f"its record is of topic {message.topic}")
            return None
        if is_revive_topic(topic):
            return None  # entered by Apache's broker; here POP redelivers at its time
        if unit.rolls:
            self._wait_on(delivery, unit, fields)
            return None
        key = f"{topic}+{fields.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, '')}"
        if key in delivery.recalled:
            delivery.missed.discard(key)
            self._counts.recalled += 1
            return None
        problem = restore_original_queue(message)
        if problem:
            self._skip(unit, problem)
            return None
        del fields[PROPERTY_REAL_TOPIC], fields[PROPERTY_REAL_QUEUE_ID]
        self._set_properties(message, fields, self._stamps(unit))
        return _Due(message, self._due_ms(fields, unit))

    def _delivered(self, due: _Due) -> None:
        topic = due.message.topic
        self._counts.left(topic)
        self._counts.delivered[topic] += 1
        self._counts.lateness_ms.observe(self._now_ms() - due.due_ms)

    def _wait_on(self, delivery: _SlotDelivery, unit: Unit, fields: dict[str, str]) -> None:
        """Enter a message again that is still due beyond the window, without storing it again.

        On a replica: its log accepts no message.
        """
        out_ms = _number(fields.get(PROPERTY_TIMER_OUT_MS)) + unit.later_ms
        topic = fields.get(PROPERTY_REAL_TOPIC, "")
        entry = TimerEntry(0, unit.physical_offset, unit.size, out_ms, topic, unit.deletes)
        self._pending.enter(entry, delivery.slot.time_ms + self._pending.wheel.precision_ms)
        self._counts.rolled += 1

    def _roll(self, unit: Unit, message: InnerMessage, fields: dict[str, str]) -> bool:
        """Enter a message again that is still due beyond the window. Raises MessageRejected."""
        topic, out_ms = fields.get(PROPERTY_REAL_TOPIC, ""), _number(fields.get(PROPERTY_TIMER_OUT_MS))
        if unit.later_ms:
            out_ms = self._pending.second_of(out_ms + unit.later_ms)
            fields[PROPERTY_TIMER_OUT_MS] = str(out_ms)
        rolls = str(_number(fields.get(PROPERTY_TIMER_ROLL_TIMES)) + 1)
        self._set_properties(message, fields, {PROPERTY_TIMER_ROLL_TIMES: rolls, **self._stamps(unit)})
        entry = TimerEntry(0, 0, 0, out_ms, topic, unit.deletes)
        if not self._put(lambda: self._writer.put_rolled(message, entry)):
            return False
        self._counts.rolled += 1
        self._counts.left(topic)
        return True

    def _put(self, put: Callable[[], None]) -> bool:
        """Store a message; return False if the store is unavailable. Raises MessageRejected."""
        try:
            put()
        except StoreUnavailable as error:
            self._stall_log.stalled(str(error))
            return False
        self._stall_log.delivered()
        return True

    def _stamps(self, unit: Unit) -> dict[str, str]:
        return {
            PROPERTY_TIMER_ENQUEUE_MS: str(unit.written_ms),
            PROPERTY_TIMER_DEQUEUE_MS: str(self._now_ms()),
        }

    @staticmethod
    def _set_properties(message: InnerMessage, fields: dict[str, str], stamps: dict[str, str]) -> None:
        """Set the properties; the stamps are only for information, and are left out if there is no room."""
        message.set_properties(fields | stamps)
        if len(message.properties) > _MAX_PROPERTIES_BYTES:
            message.set_properties(fields)

    def _due_ms(self, fields: dict[str, str], unit: Unit) -> int:
        """Return when a message was due: its delivery time, or the end of its slot if it had a delay."""
        name = next((name for name in TIMER_PROPERTIES if name in fields), None)
        if name == PROPERTY_TIMER_DELIVER_MS:
            return _number(fields[name])
        return unit.slot_ms + self._pending.wheel.precision_ms

    def _skip(self, unit: Unit | None, cause: str) -> None:
        if unit is None:
            self._counts.lost += 1
        else:
            self._counts.lost_while_waiting(unit.topic_hash)
        offset = -1 if unit is None else unit.physical_offset
        log.error("timed message skipped, it is not delivered physical_offset=%d cause=%s", offset, cause)


def _retrieve_error(reading: asyncio.Future[Any]) -> None:
    """Retrieve an error that no caller may be waiting for any more, so that asyncio does not log it."""
    if not reading.cancelled():
        reading.exception()


def _number(text: str | None) -> int:
    """Parse a property that this broker wrote; 0 if it is missing or was written otherwise."""
    if text is None or len(text) > _MAX_DIGITS or not (text.isascii() and text.isdigit()):
        return 0
    return int(text)
