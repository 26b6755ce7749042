"""The journal of POP: check points and acknowledgements, from which the state is rebuilt after a crash.

Each entry is a message in the form in which Apache's broker stores it for its timer. That timer would deliver
it to the revive topic at the end of the invisible time (Apache RocketMQ 5.3.3,
PopMessageProcessor.buildCkMsg, AckMessageProcessor, HookUtils.transformTimerMessage). This broker keeps the
times itself and reads the journal (`journal_reader`) at its start only. Apache's broker, started on the
directory, continues from the journal. Redelivered messages are acknowledged in the journal, so that it does
not redeliver them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.pop import OrderAck, OrderInfo
from rmq_remoting.java_hash import tags_code

from ..clock import ClockMs
from ..delivery.timer_entry import TimerEntry
from ..store.api import RecordTemplate
from ..topics.names import TIMER_TOPIC
from .check_point import CheckPoint, CheckPointKey

if TYPE_CHECKING:
    from ..store.api import MessageStore

# Tags of the entries' messages.
CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
_TAGS_CODES: Final = {tag: tags_code(tag) for tag in (CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG)}
# Apache's timer delivers a check point this long before its acknowledgements.
_AHEAD_MS: Final = 1000
_TIMER_PRECISION_MS: Final = 1000
# Values in place of an acknowledged message's offset.
PENDING_RESET: Final = -2
_RESET: Final = -1
# Value in place of the topic for all topics of a group.
_NO_TOPIC: Final = ""

ENTRIES_QUEUE_ID: Final = 0
# Takes half of the time of `TimerEntry(...)` or less, which calls a Python function first.
_new_tuple: Final = tuple.__new__


@dataclass(frozen=True, slots=True)
class Acked:
    """Acknowledged or redelivered offsets of a check point."""

    key: CheckPointKey
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OrderProgress:
    """Progress of a group that pops in order: its next offset of a queue, and its messages in flight."""

    topic: str
    group: str
    queue_id: int
    next_offset: int
    info: OrderInfo


@dataclass(frozen=True, slots=True)
class Reset:
    """A group's position in a queue was reset.

    `is_pending`: an administrator has requested the reset. Pops continue at the old position until a further
    entry says that the reset was applied.
    """

    topic: str
    group: str
    queue_id: int
    offset: int
    is_pending: bool = False


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """A group was deleted with its offsets. Earlier entries do not count for a new group of the same name."""

    group: str


Entry = CheckPoint | Acked | OrderProgress | Reset | GroupDeleted


@dataclass(slots=True, init=False)
class Written:
    """The place of a written entry: its offset in the journal, and up to where the log has to be flushed."""

    journal_offset: int
    log_end: int

    # Written out: a compiled class keeps a dataclass's own as interpreted code.
    def __init__(self, journal_offset: int, log_end: int) -> None:
        self.journal_offset = journal_offset
        self.log_end = log_end


class Journal:
    """Writes entries; belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        revive_topic: str,
        store_host: bytes,
        now_ms: ClockMs,
        tell_timer: Callable[[TimerEntry], None],
        *,
        append_crc: bool = False,
    ) -> None:
        """`tell_timer` is called with each entry, since it stands in the queue of timed messages."""
        # On an acting replica, whose log accepts nothing: entries are not written. Its messages in flight are
        # lost with its process, so it commits no offset behind one of them (Positions.commit_before).
        self.is_volatile = False
        self._tell_timer = tell_timer
        self._store = store
        self._revive_topic = revive_topic
        self._store_host = store_host
        self._now_ms = now_ms
        self._template = RecordTemplate(
            TIMER_TOPIC,
            ENTRIES_QUEUE_ID,
            flag=0,
            sys_flag=0,
            reconsume_times=0,
            born_host_bytes=len(store_host),
            store_host=store_host,
            append_crc=append_crc,
        )
        self._property_tails: dict[tuple[str, int], bytes] = {}

    @property
    def end(self) -> int:
        """The offset of the next entry."""
        queue = self._store.queues.get(TIMER_TOPIC, ENTRIES_QUEUE_ID)
        return 0 if queue is None else queue.next_offset

    # --- writing; each raises StoreUnavailable, MessageRejected ---

    def check_point(self, point: CheckPoint) -> Written:
        """Write a check point, and set its `journal_offset`."""
        key = point.key
        start = key.start_offset
        body = (
            b'{"bm":0,"bn":%b,"c":%b,"d":[%b],"it":%d,"n":%d,"pt":%d,"q":%d,"reviveTime":%d,"ro":0,"so":%d,"t":%b}'
            % (
                _json(key.broker_name),
                _json(key.group),
                b",".join([b"%d" % (offset - start) for offset in point.offsets]),
                point.invisible_time_ms,
                len(point.offsets),
                key.pop_time,
                key.queue_id,
                point.revive_time,
                start,
                _json(key.topic),
            )
        )
        place = f"{key.topic}@{key.queue_id}@{start}"
        unique_key = f"{place}@{key.group}@{key.pop_time}@{key.broker_name}@{CHECK_POINT_TAG}"
        due = point.revive_time - _AHEAD_MS
        written = self._put(CHECK_POINT_TAG, body, unique_key, due, point.revive_queue_id)
        point.journal_offset = written.journal_offset
        return written

    def ack(self, point: CheckPoint, offsets: Sequence[int]) -> Written:
        """Write that messages were acknowledged, or are redelivered."""
        key = point.key
        if len(offsets) == 1:
            body = _ack_body(key, offsets[0])
            place = f"{key.topic}@{key.queue_id}@{offsets[0]}"
            unique_key = f"{place}@{key.group}@{key.pop_time}@{key.broker_name}@{ACK_TAG}"
            return self._put(ACK_TAG, body, unique_key, point.revive_time, point.revive_queue_id)
        body = b'{"ao":-1,"aol":[%b],"bn":%b,"c":%b,"pt":%d,"q":%d,"so":%d,"t":%b}' % (
            b",".join([b"%d" % offset for offset in offsets]),
            _json(key.broker_name),
            _json(key.group),
            key.pop_time,
            key.queue_id,
            key.start_offset,
            _json(key.topic),
        )
        unique_key = f"{key.topic}@{key.queue_id}@{list(offsets)}@{key.group}@{key.pop_time}@{BATCH_ACK_TAG}"
        return self._put(BATCH_ACK_TAG, body, unique_key, point.revive_time, point.revive_queue_id)

    def order_progress(self, moved: OrderProgress, acked_offset: int, broker_name: str) -> Written:
        """Write the progress of a group that pops in order.

        Apache's broker reads it as an acknowledgement without a check point, and ignores it.
        """
        info = moved.info
        start = info.queue_offsets()[0]
        body = OrderAck(
            ack_offset=acked_offset,
            broker_name=broker_name,
            consumer_group=moved.group,
            pop_time=info.pop_time,
            queue_id=moved.queue_id,
            start_offset=start,
            topic=moved.topic,
            order=info,
            next_offset=moved.next_offset,
        ).encode()
        place = f"{moved.topic}@{moved.queue_id}@{acked_offset}"
        unique_key = f"{place}@{moved.group}@{info.pop_time}@{broker_name}@{ACK_TAG}"
        return self._put(ACK_TAG, body, unique_key, self._now_ms(), 0)

    def reset(self, reset: Reset, broker_name: str) -> Written:
        """Write a reset; Apache's broker ignores it like `order_progress`."""
        mark = PENDING_RESET if reset.is_pending else _RESET
        return self._note(reset, mark, broker_name)

    def group_deleted(self, group: str, broker_name: str) -> Written:
        """Write the deletion of a group; Apache's broker ignores it like `order_progress`."""
        return self._note(Reset(_NO_TOPIC, group, -1, -1), _RESET, broker_name)

    def _note(self, reset: Reset, mark: int, broker_name: str) -> Written:
        now_ms = self._now_ms()
        body = OrderAck(
            ack_offset=mark,
            broker_name=broker_name,
            consumer_group=reset.group,
            pop_time=now_ms,
            queue_id=reset.queue_id,
            start_offset=-1,
            topic=reset.topic,
            next_offset=reset.offset,
        ).encode()
        unique_key = f"{reset.topic}@{reset.queue_id}@{mark}@{reset.group}@{now_ms}@{broker_name}@{ACK_TAG}"
        return self._put(ACK_TAG, body, unique_key, now_ms, 0)

    def _put(self, tag: str, body: bytes, unique_key: str, due_ms: int, revive_queue_id: int) -> Written:
        if self.is_volatile:
            return Written(self.end, sys.maxsize)
        out_ms = _timer_second(due_ms)  # Apache's timer does not take messages that are due already
        key = unique_key.encode()
        properties = b"UNIQ_KEY\x01%b\x02TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02%b" % (
            key,
            due_ms,
            out_ms,
            self._property_tail(tag, revive_queue_id),
        )
        template = self._template
        physical_offset, queue_offset, size = self._store.put(
            self._store.queues.get_or_create(TIMER_TOPIC, ENTRIES_QUEUE_ID),
            template,
            body,
            properties,
            tags_code=_TAGS_CODES[tag],
            born_timestamp_ms=self._now_ms(),
            born_host=self._store_host,
            unique_key=key,
        )
        entry = (queue_offset, physical_offset, size, out_ms, self._revive_topic, False, True)
        self._tell_timer(_new_tuple(TimerEntry, entry))
        return Written(queue_offset, physical_offset + size)

    def _property_tail(self, tag: str, revive_queue_id: int) -> bytes:
        tail = self._property_tails.get((tag, revive_queue_id))
        if tail is None:
            text = f"TAGS\x01{tag}\x02REAL_TOPIC\x01{self._revive_topic}\x02REAL_QID\x01{revive_queue_id}\x02"
            tail = self._property_tails[tag, revive_queue_id] = text.encode()
        return tail


def handed_over_at(revive_time: int) -> int:
    """Return when Apache's timer delivers a check point whose invisible time ends at `revive_time`."""
    return _timer_second(revive_time - _AHEAD_MS)


def _timer_second(due_ms: int) -> int:
    """Return the whole second of Apache's timer before a time."""
    return (due_ms - 1) // _TIMER_PRECISION_MS * _TIMER_PRECISION_MS


def _ack_body(key: CheckPointKey, offset: int) -> bytes:
    return b'{"ao":%d,"bn":%b,"c":%b,"pt":%d,"q":%d,"so":%d,"t":%b}' % (
        offset,
        _json(key.broker_name),
        _json(key.group),
        key.pop_time,
        key.queue_id,
        key.start_offset,
        _json(key.topic),
    )


@lru_cache(maxsize=4096)
def _json(text: str) -> bytes:
    return fastjson.dumps(text)
