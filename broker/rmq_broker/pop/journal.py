"""The journal of POP: check points and acknowledgements, from which the state is rebuilt after a crash.

Each entry is a message in the form in which Apache's broker stores it for its timer. That timer would deliver
it to the revive topic at the end of the invisible time (Apache RocketMQ 5.3.3,
PopMessageProcessor.buildCkMsg, AckMessageProcessor, HookUtils.transformTimerMessage). This broker keeps the
times itself and reads the journal at its start only. Apache's broker, started on the directory, continues
from the journal. Redelivered messages are acknowledged in the journal, so that it does not redeliver them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.pop import AckMsg, BatchAckMsg, OrderAck, OrderInfo, PopCheckPoint
from rmq_remoting.errors import BodyError
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_codec import decode_stored_message
from rmq_remoting.message_errors import MessageDecodeError

from ..clock import ClockMs
from ..delivery.timer_entry import TimerEntry
from ..store.api import RecordTemplate
from ..topics.names import TIMER_TOPIC
from .check_point import CheckPoint, CheckPointKey

if TYPE_CHECKING:
    from ..store.api import MessageStore

_CHECK_POINT: Final = "ck"
_ACK: Final = "ack"
_BATCH_ACK: Final = "bAck"
_TAGS_CODES: Final = {tag: tags_code(tag) for tag in (_CHECK_POINT, _ACK, _BATCH_ACK)}
# Apache's timer delivers a check point this long before its acknowledgements.
_AHEAD_MS: Final = 1000
_TIMER_PRECISION_MS: Final = 1000
_READ_ENTRIES: Final = 1000
# Values in place of an acknowledged message's offset.
_RESET: Final = -1
_PENDING_RESET: Final = -2
# Value in place of the topic for all topics of a group.
_NO_TOPIC: Final = ""

ENTRIES_QUEUE_ID: Final = 0


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


class Place(NamedTuple):
    """The place of a read entry: its offset in the journal's queue, and its offset in the log."""

    journal_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class Written:
    """The place of a written entry: its offset in the journal, and up to where the log has to be flushed."""

    journal_offset: int
    log_end: int


class Journal:
    """Writes entries on the loop, and reads them back at the start."""

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
        unique_key = (
            f"{key.topic}@{key.queue_id}@{start}@{key.group}@{key.pop_time}@{key.broker_name}@{_CHECK_POINT}"
        )
        due = point.revive_time - _AHEAD_MS
        written = self._put(_CHECK_POINT, body, unique_key, due, point.revive_queue_id)
        point.journal_offset = written.journal_offset
        return written

    def ack(self, point: CheckPoint, offsets: Sequence[int]) -> Written:
        """Write that messages were acknowledged, or are redelivered."""
        key = point.key
        if len(offsets) == 1:
            body = _ack_body(key, offsets[0])
            unique_key = (
                f"{key.topic}@{key.queue_id}@{offsets[0]}@{key.group}@{key.pop_time}@{key.broker_name}@{_ACK}"
            )
            return self._put(_ACK, body, unique_key, point.revive_time, point.revive_queue_id)
        body = b'{"ao":-1,"aol":[%b],"bn":%b,"c":%b,"pt":%d,"q":%d,"so":%d,"t":%b}' % (
            b",".join([b"%d" % offset for offset in offsets]),
            _json(key.broker_name),
            _json(key.group),
            key.pop_time,
            key.queue_id,
            key.start_offset,
            _json(key.topic),
        )
        unique_key = f"{key.topic}@{key.queue_id}@{list(offsets)}@{key.group}@{key.pop_time}@{_BATCH_ACK}"
        return self._put(_BATCH_ACK, body, unique_key, point.revive_time, point.revive_queue_id)

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
        unique_key = f"{place}@{moved.group}@{info.pop_time}@{broker_name}@{_ACK}"
        return self._put(_ACK, body, unique_key, self._now_ms(), 0)

    def reset(self, reset: Reset, broker_name: str) -> Written:
        """Write a reset; Apache's broker ignores it like `order_progress`."""
        mark = _PENDING_RESET if reset.is_pending else _RESET
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
        unique_key = f"{reset.topic}@{reset.queue_id}@{mark}@{reset.group}@{now_ms}@{broker_name}@{_ACK}"
        return self._put(_ACK, body, unique_key, now_ms, 0)

    def _put(self, tag: str, body: bytes, unique_key: str, due_ms: int, revive_queue_id: int) -> Written:
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
        self._tell_timer(
            TimerEntry(queue_offset, physical_offset, size, out_ms, self._revive_topic, is_journal=True)
        )
        return Written(queue_offset, physical_offset + size)

    def _property_tail(self, tag: str, revive_queue_id: int) -> bytes:
        tail = self._property_tails.get((tag, revive_queue_id))
        if tail is None:
            text = f"TAGS\x01{tag}\x02REAL_TOPIC\x01{self._revive_topic}\x02REAL_QID\x01{revive_queue_id}\x02"
            tail = self._property_tails[tag, revive_queue_id] = text.encode()
        return tail

    # --- reading; blocks ---

    def read(self, begin: int, broker_name: str) -> Iterator[tuple[Place, Entry]]:
        """Yield the entries from `begin` on with their places; skip other messages. Raises OSError."""
        yield from self._read(
            TIMER_TOPIC,
            ENTRIES_QUEUE_ID,
            begin,
            broker_name,
            lambda properties: properties.get("REAL_TOPIC") == self._revive_topic,
        )

    def read_handed_over(self, queue_id: int, begin: int, broker_name: str) -> Iterator[tuple[Place, Entry]]:
        """Yield the entries that Apache's timer has delivered to a revive queue. Raises OSError."""
        yield from self._read(self._revive_topic, queue_id, begin, broker_name, lambda properties: True)

    def handed_over_end(self, queue_id: int) -> int:
        """Return the end of a queue of the revive topic."""
        return self._store.max_offset(self._revive_topic, queue_id)

    def _read(
        self,
        topic: str,
        queue_id: int,
        begin: int,
        broker_name: str,
        wanted: Callable[[dict[str, str]], bool],
    ) -> Iterator[tuple[Place, Entry]]:
        offset = max(begin, self._store.min_offset(topic, queue_id))
        end = self._store.max_offset(topic, queue_id)
        while offset < end:
            entries = self._store.queue_entries(topic, queue_id, offset, min(_READ_ENTRIES, end - offset))
            if not entries:
                return
            for index, (physical_offset, _, _) in enumerate(entries):
                record = self._store.record_at(physical_offset)
                entry = None if record is None else _entry_of(record, broker_name, wanted)
                if entry is not None:
                    yield Place(offset + index, physical_offset), entry
            offset += len(entries)


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


def _entry_of(record: bytes, broker_name: str, wanted: Callable[[dict[str, str]], bool]) -> Entry | None:
    """Return the entry in a record; None for any other message, whoever wrote it."""
    try:
        message = decode_stored_message(record)
        if not wanted(message.properties):
            return None
        tag = message.properties.get("TAGS")
        if tag == _CHECK_POINT:
            revive_queue = message.properties.get("REAL_QID", "")
            return _check_point_of(message.body, broker_name, int(revive_queue or message.queue_id))
        if tag == _ACK:
            return _ack_of(message.body, broker_name)
        if tag == _BATCH_ACK:
            batch = BatchAckMsg.decode(message.body)
            return Acked(_key_of(batch, broker_name), tuple(batch.ack_offset_list))
    except (MessageDecodeError, BodyError, ValueError):
        return None
    return None


def _check_point_of(body: bytes, broker_name: str, revive_queue_id: int) -> CheckPoint | None:
    data = PopCheckPoint.decode(body)
    if data.topic is None or data.consumer_group is None:
        return None
    # Old brokers write no list: the messages are consecutive.
    diffs = data.queue_offset_diff or list(range(data.message_count))
    if not diffs:
        return None
    key = CheckPointKey(
        data.topic,
        data.consumer_group,
        data.queue_id,
        data.start_offset,
        data.pop_time,
        data.broker_name or broker_name,
    )
    offsets = tuple(data.start_offset + diff for diff in diffs)
    return CheckPoint(key, data.invisible_time_ms, offsets, revive_queue_id)


def _ack_of(body: bytes, broker_name: str) -> Entry:
    ack = OrderAck.decode(body)
    if ack.next_offset is not None:
        place = (ack.topic or "", ack.consumer_group or "", ack.queue_id)
        if not ack.topic:
            return GroupDeleted(ack.consumer_group or "")
        if ack.order is None:
            return Reset(*place, ack.next_offset, is_pending=ack.ack_offset == _PENDING_RESET)
        return OrderProgress(*place, ack.next_offset, ack.order)
    return Acked(_key_of(ack, broker_name), (ack.ack_offset,))


def _key_of(ack: AckMsg, broker_name: str) -> CheckPointKey:
    return CheckPointKey(
        ack.topic or "",
        ack.consumer_group or "",
        ack.queue_id,
        ack.start_offset,
        ack.pop_time,
        ack.broker_name or broker_name,
    )
