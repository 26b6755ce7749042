"""Index entries of many messages of the log at once."""

from __future__ import annotations

from typing import Final

from rmq_remoting.message_properties import (
    PROPERTY_KEYS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    find_value,
)

from ..log.plain_record import (
    MAX_PLAIN_TOPIC_BYTES,
    PLAIN_HEAD_BYTES,
    PLAIN_MAGIC,
    UNUSUAL_BITS,
    unpack_plain_head,
)
from ..log.record import MIN_RECORD_BYTES
from .index_file import IndexFile
from .keys import KeyHasher

# As they begin in a record's properties.
UNIQUE_KEY: Final = PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode() + b"\x01"
KEYS: Final = PROPERTY_KEYS.encode() + b"\x01"
# Entries that are added together, and messages that are read for them: they take 0.1 ms.
_MOST_TOGETHER: Final = 128
_MAX_TOPICS: Final = 4096


class PlainEntries:
    """Reads plain records, and adds the entries of their messages to an index file."""

    __slots__ = ("_hasher", "_topics")

    def __init__(self, hasher: KeyHasher) -> None:
        self._hasher = hasher
        self._topics: dict[bytes, str] = {}

    def allow(self, topic: str) -> None:
        """Count records of a topic, whose name is valid, as plain from now on."""
        raw = topic.encode()
        if raw not in self._topics and len(raw) <= MAX_PLAIN_TOPIC_BYTES:
            if len(self._topics) >= _MAX_TOPICS:
                self._topics.clear()
            self._topics[raw] = topic

    def enter(self, file: IndexFile, data: bytes, begin: int, offset: int) -> int:
        """Enter messages from position `begin` of `data` on, and return the position behind the last one.

        `offset` is where `data` begins in the log. It ends before a record that is not plain or not valid
        (see `parse_record`), where the file has no space, and after some messages.
        """
        limit, position, space = len(data), begin, min(file.space, _MOST_TOGETHER)
        hashes: list[int] = []
        offsets: list[int] = []
        times_ms: list[int] = []
        messages = 0
        while messages < _MOST_TOGETHER and position + PLAIN_HEAD_BYTES <= limit:
            size, magic, _, queue_id, queue_offset, physical, sys_flag, store_ms, body_bytes = (
                unpack_plain_head(data, position)
            )
            if magic != PLAIN_MAGIC or physical != offset + position or sys_flag & UNUSUAL_BITS:
                break
            stop, body_end = position + size, position + PLAIN_HEAD_BYTES + body_bytes
            if body_bytes < 0 or size < MIN_RECORD_BYTES or stop > limit or body_end + 3 > stop:
                break
            properties_at = body_end + 3 + data[body_end]
            if properties_at > stop or queue_id < 0 or queue_offset < 0:
                break
            if (data[properties_at - 2] << 8 | data[properties_at - 1]) != stop - properties_at:
                break
            topic = self._topics.get(data[body_end + 1 : properties_at - 2])
            if topic is None:
                break
            properties = data[properties_at:stop]
            unique_key = find_value(properties, UNIQUE_KEY)
            keys = find_value(properties, KEYS)
            if keys:
                found = self._hasher.all_keys(topic, unique_key or b"", keys)
                if len(hashes) + len(found) > space:
                    break
                hashes += found
                offsets += [physical] * len(found)
                times_ms += [store_ms] * len(found)
            elif unique_key:
                if len(hashes) >= space:
                    break
                hashes.append(self._hasher.unique_keys(topic, unique_key))
                offsets.append(physical)
                times_ms.append(store_ms)
            messages += 1
            position = stop
        if hashes:
            file.put_many(hashes, offsets, times_ms)
        return position
