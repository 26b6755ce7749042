"""Bulk reading of plain records: expected queue and index entries of most records, without an object each.

A record is plain if it is valid and has no property or flag that needs more than a queue entry and index
entries. Reading stops before any other record, which `layout.read_record` judges. So this module decides only
that a record is valid, never why it is not.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from struct import Struct
from typing import Final, cast
from zlib import crc32 as quick_crc32

from .layout import (
    BORN_HOST_V6,
    COMPRESSED,
    INNER_BATCH,
    LAST_MS,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
    crc32,
)
from .properties import SCHEDULE_TOPIC, hash_on, index_hash, property_at, tags_hash, topic_hash

# size, magic, CRC of the body, queue id, queue offset, physical offset, sys flag, high half of the born port,
# store time, high half of the store port, offset of the prepared message, bytes of the body
_HEAD: Final = Struct(">iiii4xqqi12xH2xq4xH6xqi")
_HEAD_BYTES: Final = _HEAD.size
_Head = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
_unpack_head: Final = cast(Callable[[bytes, int], _Head], _HEAD.unpack_from)
_MAGIC: Final = int.from_bytes(MAGIC_V1, "big", signed=True)
# A prepared message has no queue entry; that bit is also set in messages that were rolled back.
_UNUSUAL: Final = COMPRESSED | INNER_BATCH | BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_PREPARED
_MAX_PROPERTIES_BYTES: Final = 0x7FFF
# The bodies of this many records of each part are also checked by the implementation of `layout.crc32`.
_CHECKED_TWICE: Final = 64
_UNIQUE_KEY_BYTES: Final = 32
_BEFORE_COUNTER: Final = 28
_MAX_HEADS: Final = 4096
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31

QueueKey = tuple[bytes, int]
"""Topic and queue id."""


class OpenRun:
    """Entries of one queue with consecutive offsets, which are being collected."""

    __slots__ = ("codes", "entries", "first", "is_batch", "is_light", "next", "physical", "sizes")

    def __init__(self, first: int, *, is_batch: bool, is_light: bool) -> None:
        self.first = first  # queue offset
        self.next = first  # queue offset behind the last message
        self.is_batch = is_batch
        self.is_light = is_light  # of a light message queue (LMQ), which only some brokers fill
        self.entries = bytearray()  # packed
        # Columns of the entries that follow and are not packed yet.
        self.physical: list[int] = []
        self.sizes: list[int] = []
        self.codes: list[int] = []

    def add(self, entry: bytes, following: int) -> None:
        """Add one packed entry of the messages before the queue offset `following`."""
        self.pack()
        self.entries += entry
        self.next = following

    def pack(self) -> None:
        """Pack all entries."""
        if not self.physical:
            return
        words = array("i", bytes(20 * len(self.physical)))
        _set_words(words, 0, array("q", self.physical))
        sizes = array("i", self.sizes)
        _to_big_endian(sizes)
        words[2::5] = sizes
        _set_words(words, 3, array("q", self.codes))
        self.entries += words.tobytes()
        self.physical, self.sizes, self.codes = [], [], []


class PlainRecords:
    """Collects the expected entries of plain records, and of others that are added one by one."""

    __slots__ = (
        "_hashes",
        "_heads",
        "_last_queue",
        "_last_run",
        "_last_topic",
        "_left_to_check",
        "_offsets",
        "_open",
        "_plain_topics",
        "_times",
        "_with_index",
        "last_ms",
        "message_bytes",
        "records",
        "runs",
        "times_rise",
    )

    def __init__(self, *, with_index: bool) -> None:
        self._with_index = with_index
        self._left_to_check = _CHECKED_TWICE
        self._plain_topics: dict[bytes, int] = {}  # the hash of `topic#`
        self._heads: dict[bytes, int] = {}  # the hash up to the counter, by topic and unique key up to there
        self._hashes: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._open: dict[QueueKey, OpenRun] = {}
        self._last_topic = b""
        self._last_queue = -1
        self._last_run = OpenRun(0, is_batch=False, is_light=False)
        self.runs: list[tuple[QueueKey, OpenRun]] = []
        self.records = 0
        self.message_bytes = 0
        self.last_ms = 0  # highest store time
        self.times_rise = True  # whether no message was stored earlier than the one before it

    def allow(self, topic: bytes) -> None:
        """Count records of a topic as plain from now on. The name must be valid, and not that of batches."""
        if topic != SCHEDULE_TOPIC:
            self._plain_topics[topic] = topic_hash(topic)

    def add_all(self, data: bytes, position: int, until: int, start: int) -> int:
        """Add the records of `data` from `position` on and before `until`, as long as they are plain.

        `start` is the log offset of the first byte of `data`. Returns the position behind the last record.
        """
        limit = len(data)
        last_head = limit - _HEAD_BYTES
        plain_topics = self._plain_topics
        while position < until and position <= last_head:
            (
                size,
                magic,
                crc,
                queue_id,
                queue_offset,
                physical,
                sys_flag,
                born_port,
                time_ms,
                store_port,
                prepared,
                body_bytes,
            ) = _unpack_head(data, position)
            if magic != _MAGIC or physical != start + position or sys_flag & _UNUSUAL:
                break
            body_at, stop = position + _HEAD_BYTES, position + size
            body_end = body_at + body_bytes
            if size < MIN_RECORD_BYTES or stop > limit or body_bytes < 0 or body_end + 3 > stop:
                break
            if queue_id < 0 or queue_offset < 0 or born_port or store_port:
                break
            if not 0 < time_ms <= LAST_MS or not 0 <= prepared <= physical:
                break
            topic_bytes = data[body_end]
            properties_at = body_end + 3 + topic_bytes
            if properties_at > stop:
                break
            properties_bytes = stop - properties_at
            if (
                properties_bytes > _MAX_PROPERTIES_BYTES
                or (data[properties_at - 2] << 8 | data[properties_at - 1]) != properties_bytes
            ):
                break
            topic = data[body_end + 1 : properties_at - 2]
            topic_value = plain_topics.get(topic, -1)
            if topic_value < 0:
                break
            if body_bytes and not self._is_crc_right(data[body_at:body_end], crc):
                break
            properties = data[properties_at:stop]
            # `find` takes half of the time of `in`, which tries its operand as a number first.
            if properties.find(b"INNER_MULTI_") >= 0 or properties.find(b"__CRC32#\x01") >= 0:
                break
            if properties.endswith(b"\0"):
                break
            tags = property_at(properties, b"TAGS\x01")
            self.add_entry(topic, queue_id, queue_offset, physical, size, tags_hash(tags) if tags else 0)
            if self._with_index:
                self._add_keys(topic, topic_value, properties, physical, time_ms)
            self.note(size, time_ms)
            self.records += 1
            position = stop
        return position

    def note(self, size: int, time_ms: int) -> None:
        """Count a record of `size` bytes."""
        self.message_bytes += size
        if time_ms >= self.last_ms:
            self.last_ms = time_ms
        else:
            self.times_rise = False

    def add_entry(
        self, topic: bytes, queue_id: int, offset: int, physical: int, size: int, code: int
    ) -> None:
        """Add a message's queue entry."""
        run = self._last_run
        if queue_id != self._last_queue or offset != run.next or topic != self._last_topic:
            run = self.run((topic, queue_id), offset)
            self._last_topic, self._last_queue, self._last_run = topic, queue_id, run
        run.physical.append(physical)
        run.sizes.append(size)
        run.codes.append(code)
        run.next = offset + 1

    def run(self, key: QueueKey, first: int, *, is_batch: bool = False, is_light: bool = False) -> OpenRun:
        """Return the run of a queue that an entry with the offset `first` continues or begins."""
        found = self._open.get(key)
        if found is not None and found.next == first:
            return found
        run = self._open[key] = OpenRun(first, is_batch=is_batch, is_light=is_light)
        self.runs.append((key, run))
        self._last_queue = -1  # the run that was used last may have been replaced
        return run

    def add_index_entry(self, hashed: int, physical: int, time_ms: int) -> None:
        """Add the index entry of one key."""
        self._hashes.append(hashed)
        self._offsets.append(physical)
        self._times.append(time_ms)

    def index(self) -> tuple[bytes, array[int]]:
        """Return the index entries, packed with zeros for time and previous entry, and their store times."""
        words = array("i", bytes(20 * len(self._hashes)))
        hashes = array("i", self._hashes)
        _to_big_endian(hashes)
        words[0::5] = hashes
        _set_words(words, 1, array("q", self._offsets))
        return words.tobytes(), array("q", self._times)

    def _is_crc_right(self, body: bytes, crc: int) -> bool:
        if self._left_to_check > 0:
            self._left_to_check -= 1
            if crc32(body) & 0x7FFFFFFF != crc:
                return False
        return quick_crc32(body) & 0x7FFFFFFF == crc

    def _add_keys(
        self, topic: bytes, topic_value: int, properties: bytes, physical: int, time_ms: int
    ) -> None:
        unique = property_at(properties, b"UNIQ_KEY\x01")
        if unique:
            if len(unique) == _UNIQUE_KEY_BYTES and unique.isascii():
                hashed = self._unique_key_hash(topic, topic_value, unique)
            else:
                hashed = index_hash(topic, unique)
            self.add_index_entry(hashed, physical, time_ms)
        keys = property_at(properties, b"KEYS\x01")
        if keys:
            for key in keys.split(b" "):
                if key:
                    self.add_index_entry(index_hash(topic, key), physical, time_ms)

    def _unique_key_hash(self, topic: bytes, topic_value: int, unique: bytes) -> int:
        """Return the hash of a unique key. Its part before the counter stays the same for a millisecond."""
        head = unique[:_BEFORE_COUNTER] + topic
        value = self._heads.get(head, -1)
        if value < 0:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            value = self._heads[head] = hash_on(topic_value, unique[:_BEFORE_COUNTER])
        value = (
            value * 923521 + unique[28] * 29791 + unique[29] * 961 + unique[30] * 31 + unique[31]
        ) & _MASK
        return value if value < _SIGN else -value & (_SIGN - 1)


def _to_big_endian(values: array[int]) -> None:
    if sys.byteorder == "little":
        values.byteswap()


def _set_words(words: array[int], at: int, values: array[int]) -> None:
    """Write integers of 64 bits into two of five words of each entry."""
    _to_big_endian(values)
    halves = array("i", values.tobytes())
    words[at::5] = halves[0::2]
    words[at + 1 :: 5] = halves[1::2]
