"""Timed messages: when the second that one waits in is over it is stored again, where it belongs.

Source: Apache RocketMQ 5.3.3, TimerMessageStore (dequeue, convert, doPut).
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from rmq_remoting.message_properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    decode_properties,
    find_property,
)

from ..delivery.inner_message import InnerMessage, read_message
from ..delivery.original_queue import restore_original_queue
from ..delivery.stall_log import StallLog
from ..delivery.timer_admission import TIMER_PROPERTIES
from ..delivery.timer_entry import TimerEntry
from ..store.api import (
    CRC_PROPERTY_BYTES,
    MAX_PROPERTIES_BYTES,
    ColdLog,
    MessageRejected,
    StoreUnavailable,
    parse_record,
)
from ..topics.names import TIMER_TOPIC, is_revive_topic

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from ..settings.timers import TimerSettings
    from ..store.api import MessageStore
    from .intake import TimerIntake
    from .pending import DueSlot
    from .timer_log import Unit

log = logging.getLogger("rmq.broker.timers")

# So many messages, of so many bytes, are delivered in one go, before others have a turn.
_SLICE: Final = 64
_SLICE_BYTES: Final = 1 << 20
# What has come is entered, and what is due is delivered, this often.
_LONGEST_SECONDS: Final = 0.1
_SHORTEST_SECONDS: Final = 0.005
# After a read that failed.
_READ_RETRY_MS: Final = 10_000
_MOST_DIGITS: Final = 18
_MOST_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - CRC_PROPERTY_BYTES
_MS: Final = 1000

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class _Turn:
    """The slot that is being delivered; by key, the topics of what is to be taken back from it."""

    slot: DueSlot
    recalled: dict[str, str]
    missed: set[str]
    is_refused: bool = False  # by the store, when it was asked last


class TimedMessages:
    """Delivers what is due; belongs to the loop's thread, and gives way after each slice."""

    def __init__(
        self,
        settings: TimerSettings,
        store: MessageStore,
        intake: TimerIntake,
        writer: MessageWriter,
        now_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._store = store
        self._pending = intake.pending
        self._entering = intake.entering
        self._counts = intake.counts
        self._writer = writer
        self._now_ms = now_ms
        self._turn: _Turn | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._stall_log = StallLog(log, "timed messages")
        self._retry_at_ms = 0

    # --- life ---

    async def deliver_due(self) -> None:
        """Enter what has come, deliver what is due by now; to be called every `pause_seconds`."""
        if 0 < self._retry_at_ms - self._now_ms() <= _READ_RETRY_MS:
            return
        try:
            await self._work()
        except OSError as error:
            self._retry_at_ms = self._now_ms() + _READ_RETRY_MS
            log.error("timed messages cannot be read, will try again: %s", error)

    async def _work(self) -> None:
        """Raises OSError: it can be tried again."""
        if self._turn is None:
            self._pending.mind_the_clock()
        await self._enter_new()
        while not self._settings.timer_stop_dequeue and (turn := await self._next_turn()) is not None:
            while turn.slot.done < len(turn.slot.messages):
                if not await self._slice(turn):
                    return
                await self._enter_new()
            self._end(turn)

    async def leave_off(self) -> None:
        """The broker stops, and this has been cancelled: what has come of a slot is not to come again.

        What is left of it waits in the next slot. Where the store takes nothing, or the entries cannot be
        read, all of the slot comes again.
        """
        if self._reading is not None:
            await asyncio.wait([self._reading])
        turn = self._turn
        if turn is None or not turn.slot.done or turn.is_refused:
            return
        if turn.slot.done == len(turn.slot.messages):
            self._end(turn)
            return
        try:
            units = await self._in_thread(self._pending.units_left, turn.slot)
        except OSError as error:
            log.error("what is due cannot be read, some of it comes again: %s", error)
            return
        if units is not None:
            self._put_off(turn, units)

    def _put_off(self, turn: _Turn, units: list[Unit]) -> None:
        self._pending.put_off(turn.slot.time_ms, units)
        for key in turn.recalled.keys() - turn.missed:
            # What has taken something back waits once more, and then takes nothing back.
            self._counts.left(turn.recalled[key])
        self._turn = None

    async def _in_thread(self, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Read in a thread, which goes on where this is cancelled. Raises OSError."""
        call = partial(read, *args, **kwargs)
        self._reading = reading = asyncio.get_running_loop().run_in_executor(None, call)
        reading.add_done_callback(_look_at)
        return await asyncio.shield(reading)

    def pause_seconds(self) -> float:
        """When to look again: at the end of the second, or soon."""
        precision_ms = self._pending.wheel.precision_ms
        left_ms = precision_ms - self._now_ms() % precision_ms
        return min(max(left_ms / _MS, _SHORTEST_SECONDS), _LONGEST_SECONDS)

    # --- a slot ---

    async def _enter_new(self) -> None:
        if self._settings.timer_stop_enqueue:
            return
        pending = self._pending
        is_busy = self._turn is not None
        await self._entering.enter_new(pending.read_ms + (pending.wheel.precision_ms if is_busy else 0))

    async def _next_turn(self) -> _Turn | None:
        if self._turn is None:
            slot = self._pending.next_due()
            if slot is None:
                return None
            due = await self._in_thread(self._pending.entries_of, slot)
            recalled: dict[str, str] = {}
            for begin in range(0, len(due.deletes), _SLICE):
                positions = due.deletes[begin : begin + _SLICE]
                recalled.update(await self._in_thread(self._read_recalls, positions, self._log()))
            self._turn = _Turn(due, recalled, set(recalled))
        return self._turn

    def _end(self, turn: _Turn) -> None:
        for key in turn.missed:
            self._counts.missed(turn.recalled[key])
        self._pending.done(turn.slot.time_ms)
        self._turn = None
        if not self._pending.count and not self._entering.behind:
            self._counts.set_waiting({})

    async def _slice(self, turn: _Turn) -> bool:
        """Deliver some of a slot's messages; False where the store does not take them now. Raises OSError."""
        slot = turn.slot
        positions = slot.messages[slot.done : slot.done + _SLICE]
        for unit, record in await self._in_thread(self._read, positions, self._log()):
            try:
                turn.is_refused = not self._deliver(turn, unit, record)
                if turn.is_refused:
                    return False
            except MessageRejected as error:
                turn.is_refused = False
                self._skip(unit, str(error))
            slot.done += 1
        if self._store.flushes_each_message:
            # Who delivers no faster than the disk takes it keeps nothing in memory.
            await self._store.flushed()
        return True

    # --- reading; in a thread ---

    def _log(self) -> ColdLog:
        return self._store.cold_log()

    def _read(self, positions: array[int], commit_log: ColdLog) -> list[tuple[Unit | None, bytes | None]]:
        """The entries at these positions, and the records of their messages: some of them, one at least.

        None where there is no entry, or no sound record. Raises OSError; blocks.
        """
        units: list[Unit | None] = []
        total = 0
        for position in positions:
            unit = self._pending.timer_log.unit(position)
            total += 0 if unit is None else unit.size
            if units and total > _SLICE_BYTES:
                break
            units.append(unit)
        there = sorted((unit.physical_offset, unit.size) for unit in units if unit is not None)
        if there:
            commit_log.expect(there)
        return [(unit, None if unit is None else _record(unit, commit_log)) for unit in units]

    def _read_recalls(self, positions: array[int], commit_log: ColdLog) -> dict[str, str]:
        """What is to be taken back: topic and unique key as one, and the topic. Raises OSError; blocks."""
        recalls = {}
        for position in positions:
            unit = self._pending.timer_log.unit(position)
            record = None if unit is None else _record(unit, commit_log)
            if record is None:
                continue
            properties = read_message(record).message.properties
            key = find_property(properties, PROPERTY_TIMER_DEL_UNIQKEY.encode())
            if key:
                topic = find_property(properties, PROPERTY_REAL_TOPIC.encode()) or b""
                recalls[key.decode("utf-8", "replace")] = topic.decode("utf-8", "replace")
        return recalls

    # --- a message ---

    def _deliver(self, turn: _Turn, unit: Unit | None, record: bytes | None) -> bool:
        """Store one message where it belongs; False where the store does not take it now.

        Raises MessageRejected.
        """
        if unit is None or record is None:
            return self._skip(unit, "it is not in the log any more, or damaged")
        message = read_message(record).message
        fields = decode_properties(message.properties)
        topic = fields.get(PROPERTY_REAL_TOPIC, "")
        if message.topic != TIMER_TOPIC:
            return self._skip(unit, f"there is a message of topic {message.topic}")
        if is_revive_topic(topic):
            return True  # entered by Apache's broker; POP keeps the time itself
        if unit.rolls:
            return self._roll(unit, message, fields)
        key = f"{topic}+{fields.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, '')}"
        if key in turn.recalled:
            turn.missed.discard(key)
            self._counts.recalled += 1
            return True
        problem = restore_original_queue(message)
        if problem:
            return self._skip(unit, problem)
        del fields[PROPERTY_REAL_TOPIC], fields[PROPERTY_REAL_QUEUE_ID]
        self._set_properties(message, fields, self._stamps(unit))
        if not self._put(lambda: self._writer.put_due(message)):
            return False
        self._counts.left(topic)
        self._counts.delivered[topic] += 1
        self._counts.lateness_ms.observe(self._now_ms() - self._due_ms(fields, unit))
        return True

    def _roll(self, unit: Unit, message: InnerMessage, fields: dict[str, str]) -> bool:
        """A message that is still too far away goes on waiting. Raises MessageRejected."""
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
        """Whether to go on: False where the store does not take anything now. Raises MessageRejected."""
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
        """The stamps only inform: where there is no room for them the message goes without."""
        message.set_properties(fields | stamps)
        if len(message.properties) > _MOST_PROPERTIES_BYTES:
            message.set_properties(fields)

    def _due_ms(self, fields: dict[str, str], unit: Unit) -> int:
        """When a message was due: what its sender said, or, where that was a delay, the end of its second."""
        name = next((name for name in TIMER_PROPERTIES if name in fields), None)
        if name == PROPERTY_TIMER_DELIVER_MS:
            return _number(fields[name])
        return unit.slot_ms + self._pending.wheel.precision_ms

    def _skip(self, unit: Unit | None, why: str) -> bool:
        if unit is None:
            self._counts.lost += 1
        else:
            self._counts.lost_while_waiting(unit.topic_hash)
        offset = -1 if unit is None else unit.physical_offset
        log.error("the timed message at %d of the log is passed over: %s", offset, why)
        return True


def _look_at(reading: asyncio.Future[Any]) -> None:
    """Nobody may be there any more to be told of an error."""
    if not reading.cancelled():
        reading.exception()


def _record(unit: Unit, commit_log: ColdLog) -> bytes | None:
    data = commit_log.read(unit.physical_offset, unit.size)
    if data is None or parse_record(data, 0, unit.physical_offset) is None:
        return None
    return data


def _number(text: str | None) -> int:
    """A property that this broker wrote; 0 where it is missing, or somebody else's."""
    if text is None or len(text) > _MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return 0
    return int(text)
