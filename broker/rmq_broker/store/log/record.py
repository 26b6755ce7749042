"""Records: packing a message for the log, and checking a record of the log.

Layout: Apache RocketMQ 5.3.3, MessageExtEncoder and MessageDecoder. `rmq_remoting.message_codec` holds the
complete codec. This module holds what each append executes, and what recovery reads of each record.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from mmap import mmap
from struct import Struct
from struct import error as StructError
from typing import Final, cast

from rmq_remoting.sys_flags import MessageSysFlag

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
MIN_RECORD_BYTES: Final = 91
BLANK_BYTES: Final = 8  # that stay free behind the last record of a file
MAX_PROPERTIES_BYTES: Final = 32767
_SHORT_BYTES: Final = 255  # of a topic that is kept in memory: damaged records may have any
# The property that holds the CRC of the record before it (enabledAppendPropCRC).
_CRC_NAME: Final = b"__CRC32#\x01"
CRC_PROPERTY_BYTES: Final = len(_CRC_NAME) + 10 + 1

_HOST: Final = Struct(">4si")
_HOST_V6: Final = Struct(">16si")
_BLANK: Final = Struct(">ii")
_pack_length: Final = Struct(">h").pack
_crc32 = zlib.crc32

# size, magic, crc, queue, flag, queue offset, physical offset, sys flag, born time, born host, store time,
# store host, reconsume times, prepared transaction offset, body length
RECORD_HEADS: Final = {
    (born, store): Struct(f">iiiiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)
}


def pack_host(host: str, port: int) -> bytes:
    """Return an address as in a record: 8 bytes, or 20 for IPv6."""
    if ":" in host:
        return _HOST_V6.pack(socket.inet_pton(socket.AF_INET6, host.split("%", maxsplit=1)[0]), port)
    return _HOST.pack(socket.inet_aton(host), port)


def pack_blank(size: int) -> bytes:
    """Return the blank that ends a file: the rest of it, `size` bytes, is empty."""
    return _BLANK.pack(size, MAGIC_BLANK)


class RecordTemplate:
    """The parts of a record that all messages of one target have in common."""

    __slots__ = (
        "_crc_bytes",
        "_flag",
        "_magic",
        "_pack_head",
        "_queue_id",
        "_reconsume_times",
        "_store_host",
        "_sys_flag",
        "fixed_bytes",
        "head_bytes",
        "max_properties_bytes",
        "topic_part",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        born_host_bytes: int,
        store_host: bytes,
        append_crc: bool = False,
    ) -> None:
        topic_bytes = topic.encode()
        if len(topic_bytes) > 127:
            self._magic = MAGIC_V2
            self.topic_part = len(topic_bytes).to_bytes(2, "big") + topic_bytes
        else:
            self._magic = MAGIC_V1
            self.topic_part = bytes((len(topic_bytes),)) + topic_bytes
        if born_host_bytes == 20:
            sys_flag |= MessageSysFlag.BORN_HOST_V6
        if len(store_host) == 20:
            sys_flag |= MessageSysFlag.STORE_HOST_V6
        head = RECORD_HEADS[born_host_bytes, len(store_host)]
        self._pack_head = head.pack
        self._queue_id = queue_id
        self._flag = flag
        self._sys_flag = sys_flag
        self._reconsume_times = reconsume_times
        self._store_host = store_host
        self._crc_bytes = CRC_PROPERTY_BYTES if append_crc else 0
        self.max_properties_bytes = MAX_PROPERTIES_BYTES - self._crc_bytes
        self.head_bytes = head.size  # before the body
        # Everything but body and properties.
        self.fixed_bytes = head.size + len(self.topic_part) + 2 + self._crc_bytes

    @property
    def appends_crc(self) -> bool:
        """Whether each record ends with a property that holds its CRC."""
        return self._crc_bytes > 0

    def pack(
        self,
        size: int,
        body: bytes,
        properties: bytes,
        *,
        queue_offset: int,
        physical_offset: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_timestamp_ms: int,
        flag: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> bytes:
        """Return the record's bytes; `size` is `fixed_bytes` plus the lengths of body and properties.

        The properties take at most MAX_PROPERTIES_BYTES, including the CRC if one is appended.
        """
        record = b"".join(
            (
                self._pack_head(
                    size,
                    self._magic,
                    _crc32(body) & 0x7FFFFFFF,
                    self._queue_id,
                    self._flag if flag is None else flag,
                    queue_offset,
                    physical_offset,
                    self._sys_flag,
                    born_timestamp_ms,
                    born_host,
                    store_timestamp_ms,
                    self._store_host,
                    self._reconsume_times,
                    prepared_transaction_offset,
                    len(body),
                ),
                body,
                self.topic_part,
                _pack_length(len(properties) + self._crc_bytes),
                properties,
            )
        )
        return record + crc_property(record) if self._crc_bytes else record


def crc_property(record: bytes) -> bytes:
    """Return the property with a record's CRC, which ends the record: ten digits, the lowest first.

    (Apache RocketMQ 5.3.3, MessageDecoder.createCrc32.)
    """
    digits = b"%010d" % (_crc32(record) & 0x7FFFFFFF)
    return _CRC_NAME + digits[::-1] + b"\x02"


@dataclass(slots=True)
class RecordSummary:
    """The fields of a stored record that recovery and dispatch use."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    properties: bytes

    def __init__(
        self,
        physical_offset: int,
        size: int,
        topic: str,
        queue_id: int,
        queue_offset: int,
        sys_flag: int,
        store_timestamp_ms: int,
        properties: bytes,
    ) -> None:
        self.physical_offset = physical_offset
        self.size = size
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.sys_flag = sys_flag
        self.store_timestamp_ms = store_timestamp_ms
        self.properties = properties


_unpack_int32: Final = Struct(">i").unpack_from
_unpack_int64: Final = Struct(">q").unpack_from
_unpack_uint16: Final = Struct(">H").unpack_from
# The last byte of the magic number, the sys flag, the body's length if both hosts are IPv4.
_unpack_landmarks: Final = Struct(">7xB28xi44xi").unpack_from
_HOSTS_V6: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
_LAST_BYTE_OF_V1: Final = MAGIC_V1 & 0xFF


def store_timestamp_at(data: mmap | bytes, position: int) -> int:
    """Return when the record at `position` was stored, in ms."""
    (sys_flag,) = _unpack_int32(data, position + 36)
    offset = 68 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 56
    return int(_unpack_int64(data, position + offset)[0])


def properties_of(data: bytes, position: int, size: int) -> bytes:
    """Return the raw properties of the record at `position`; none of a damaged record."""
    try:
        last_of_magic, sys_flag, body_length = _unpack_landmarks(data, position)
        topic_at = position + 88 + body_length
        if sys_flag & _HOSTS_V6:
            shift = 12 * bool(sys_flag & MessageSysFlag.BORN_HOST_V6)
            shift += 12 * bool(sys_flag & MessageSysFlag.STORE_HOST_V6)
            topic_at += shift - body_length + _unpack_int32(data, position + 84 + shift)[0]
        if last_of_magic == _LAST_BYTE_OF_V1:
            return data[topic_at + 3 + data[topic_at] : position + size]
        return data[topic_at + 4 + _unpack_uint16(data, topic_at)[0] : position + size]
    except (IndexError, StructError):
        return b""


# size, magic, crc, queue id, (flag), queue offset, physical offset, sys flag, (born time, born host),
# store time, (store host, reconsume times, prepared transaction offset), body length; by the bits of the sys
# flag that make the born host and the store host an IPv6 address.
_SUMMARY_HEADS: Final = tuple(
    Struct(f">iiii4xqqi{8 + born}xq{store + 12}xi") for store in (8, 20) for born in (8, 20)
)
_Head = tuple[int, int, int, int, int, int, int, int, int]
_SUMMARY_UNPACKERS: Final[list[tuple[Callable[[mmap | bytes, int], _Head], int]]] = [
    (cast(Callable[[mmap | bytes, int], _Head], head.unpack_from), head.size) for head in _SUMMARY_HEADS
]
_LOW_BYTE_OF_SYS_FLAG_AT: Final = 39
_HOSTS_SHIFT: Final = 4  # of the two bits in the sys flag
# Lengths of topic and properties, and the two texts.
_MAX_BYTES_BEHIND_BODY: Final = 2 + 0xFFFF + 2 + 0xFFFF


def parse_record(
    data: mmap | bytes, position: int, file_start: int, *, check_crc: bool = True, limit: int | None = None
) -> RecordSummary | None:
    """Return the record that begins at `position`; None if there is no valid one before `limit`.

    A record is valid if

    - its lengths agree with each other,
    - the physical offset in it is that of its place,
    - its topic and queue can be the names of folders,
    - its body has the CRC that it names, and so has the whole record, if it names one. With `check_crc`
      off, neither is compared.
    """
    if limit is None:
        limit = len(data)
    if position < 0 or position + MIN_RECORD_BYTES > limit:
        return None
    unpack_head, head_bytes = _SUMMARY_UNPACKERS[
        data[position + _LOW_BYTE_OF_SYS_FLAG_AT] >> _HOSTS_SHIFT & 3
    ]
    body_at = position + head_bytes
    if body_at > limit:
        return None
    head = unpack_head(data, position)
    size, magic, crc, queue_id, queue_offset, physical_offset, sys_flag, store_ms, body_length = head
    if physical_offset != file_start + position:
        return None
    if magic == MAGIC_V1:
        topic_at = 1
    elif magic == MAGIC_V2:
        topic_at = 2
    else:
        return None
    body_end, stop = body_at + body_length, position + size
    if not body_at <= body_end < stop <= limit or stop - body_end > _MAX_BYTES_BEHIND_BODY:
        return None
    if size < MIN_RECORD_BYTES or queue_id < 0 or queue_offset < 0:
        return None
    if check_crc and body_length and _crc32(data[body_at:body_end]) & 0x7FFFFFFF != crc:
        return None
    rest: bytes = data[body_end:stop]  # topic length, topic, properties length, properties
    length = len(rest)
    if length < topic_at:
        return None
    topic_end = 1 + rest[0] if topic_at == 1 else 2 + (rest[0] << 8 | rest[1])
    properties_at = topic_end + 2
    if properties_at > length:
        return None
    if properties_at + (rest[topic_end] << 8 | rest[topic_end + 1]) != length:
        return None
    topic = _topic(rest[topic_at:topic_end])
    if topic is None:
        return None
    properties = rest[properties_at:]
    if check_crc and not _is_crc_right(data, position, stop, properties):
        return None
    return RecordSummary(physical_offset, size, topic, queue_id, queue_offset, sys_flag, store_ms, properties)


def _is_crc_right(data: mmap | bytes, position: int, stop: int, properties: bytes) -> bool:
    """Whether a record from `position` to `stop` has the CRC that ends its properties, if one does."""
    name_at = len(properties) - CRC_PROPERTY_BYTES
    if name_at < 0 or properties[name_at] != _CRC_NAME[0] or not properties.startswith(_CRC_NAME, name_at):
        return True
    crc_at = stop - CRC_PROPERTY_BYTES
    return properties[name_at:] == crc_property(data[position:crc_at])


def _topic(raw: bytes) -> str | None:
    """Return a topic's name; None for bytes that cannot name a topic, which becomes the name of a folder."""
    return _short_topic(raw) if len(raw) <= _SHORT_BYTES else _decode_topic(raw)


@lru_cache(maxsize=4096)
def _short_topic(raw: bytes) -> str | None:
    return _decode_topic(raw)


def _decode_topic(raw: bytes) -> str | None:
    if not raw or b"/" in raw or b"\0" in raw or raw in (b".", b".."):
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
