"""One stored message: packed on the way in, checked on the way back after a crash.

Layout: Apache RocketMQ 5.3.3, MessageExtEncoder and MessageDecoder. `rmq_remoting.message_codec` holds the
complete codec; this is the part that every append pays for, and the part that recovery walks the log with.
"""

from __future__ import annotations

import socket
import zlib
from dataclasses import dataclass
from mmap import mmap
from struct import Struct
from struct import error as StructError
from typing import Final

from rmq_remoting.sys_flags import MessageSysFlag

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
_MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))
_MAGIC_BEGIN: Final = b"\xda\xa3\x20"
MIN_RECORD_BYTES: Final = 91
BLANK_BYTES: Final = 8  # what has to stay free behind the last record of a file
MAX_PROPERTIES_BYTES: Final = 32767
# A property that holds the CRC of all of the record before it (enabledAppendPropCRC).
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
    """An address as it stands in a record: 8 bytes, or 20 for IPv6."""
    if ":" in host:
        return _HOST_V6.pack(socket.inet_pton(socket.AF_INET6, host.split("%", maxsplit=1)[0]), port)
    return _HOST.pack(socket.inet_aton(host), port)


def pack_blank(size: int) -> bytes:
    """The record that says: the rest of this file is empty."""
    return _BLANK.pack(size, MAGIC_BLANK)


class RecordTemplate:
    """The parts of a record that are the same for all messages of one target."""

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
        self.head_bytes = head.size  # what stands before the body
        # Everything but body and properties.
        self.fixed_bytes = head.size + len(self.topic_part) + 2 + self._crc_bytes

    @property
    def appends_crc(self) -> bool:
        """Whether a property with the checksum of the whole is appended to each record."""
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
        """The record's bytes; `size` is fixed_bytes and the lengths of body and properties.

        The properties are at most MAX_PROPERTIES_BYTES, with the CRC among them where one is appended.
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
    """The property that goes behind all else of a record: ten digits, the lowest first.

    (Apache RocketMQ 5.3.3, MessageDecoder.createCrc32.)
    """
    digits = b"%010d" % (_crc32(record) & 0x7FFFFFFF)
    return _CRC_NAME + digits[::-1] + b"\x02"


@dataclass(slots=True)
class RecordSummary:
    """What recovery and dispatch need of a stored record."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    properties: bytes


_SUMMARY_HEAD: Final = Struct(">iiiiiqqi")
_unpack_head: Final = _SUMMARY_HEAD.unpack_from
_unpack_int32: Final = Struct(">i").unpack_from
_unpack_int64: Final = Struct(">q").unpack_from
_unpack_uint16: Final = Struct(">H").unpack_from
# Of the magic the byte that tells the versions apart, the sys flag, the body's length (between IPv4 hosts).
_unpack_landmarks: Final = Struct(">7xB28xi44xi").unpack_from
_HOSTS_V6: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
_LAST_BYTE_OF_V1: Final = MAGIC_V1 & 0xFF


def store_timestamp_at(data: mmap | bytes, position: int) -> int:
    """When the record at `position` was stored, in ms."""
    (sys_flag,) = _unpack_int32(data, position + 36)
    offset = 68 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 56
    return int(_unpack_int64(data, position + offset)[0])


def properties_of(data: bytes, position: int, size: int) -> bytes:
    """The raw properties of the record at `position`; a damaged record has none."""
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


class ScanEnd:
    """How a scan of a file ended: at a blank record (the file is full), or at the end of what is valid."""

    __slots__ = ("is_full", "position")

    def __init__(self) -> None:
        self.is_full = False
        self.position = 0


def next_record(data: mmap, position: int, file_start: int, until: int) -> int | None:
    """Where the first valid record begins between `position` and `until`; None where there is none."""
    while (magic_at := data.find(_MAGIC_BEGIN, position + 4, until)) >= 0:
        position = magic_at - 4
        if parse_record(data, position, file_start) is not None:
            return position
        position += 1
    return None


def parse_record(
    data: mmap | bytes, position: int, file_start: int, *, check_crc: bool = True
) -> RecordSummary | None:
    """The record that begins at `position`; None where there is no valid one.

    A record counts as valid if its lengths agree with each other, it says the physical offset that it is at,
    its topic and queue can be a folder's, and its body has the CRC that it names.
    """
    limit = len(data)
    if position < 0 or position + _SUMMARY_HEAD.size > limit:
        return None
    size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag = _unpack_head(data, position)
    if magic not in _MAGICS or size < MIN_RECORD_BYTES or position + size > limit:
        return None
    if physical_offset != file_start + position or queue_id < 0 or queue_offset < 0:
        return None
    born = 20 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 8
    store = 20 if sys_flag & MessageSysFlag.STORE_HOST_V6 else 8
    store_time_at = position + 48 + born
    body_length_at = store_time_at + 8 + store + 12
    stop = position + size
    if body_length_at + 4 > stop:
        return None
    (store_timestamp_ms,) = _unpack_int64(data, store_time_at)
    (body_length,) = _unpack_int32(data, body_length_at)
    body_at = body_length_at + 4
    topic_at = body_at + body_length
    if body_length < 0 or topic_at + 3 > stop:
        return None
    if check_crc and body_length and _crc32(data[body_at:topic_at]) & 0x7FFFFFFF != crc:
        return None
    if magic == MAGIC_V1:
        topic_length, topic_at = data[topic_at], topic_at + 1
    else:
        (topic_length,), topic_at = _unpack_uint16(data, topic_at), topic_at + 2
    properties_at = topic_at + topic_length + 2
    if properties_at > stop:
        return None
    (properties_length,) = _unpack_uint16(data, properties_at - 2)
    if properties_at + properties_length != stop:
        return None
    topic = _topic(data[topic_at : properties_at - 2])
    if topic is None:
        return None
    if check_crc and properties_length >= CRC_PROPERTY_BYTES:
        crc_at = stop - CRC_PROPERTY_BYTES
        if data[crc_at : crc_at + len(_CRC_NAME)] == _CRC_NAME and data[crc_at:stop] != crc_property(
            data[position:crc_at]
        ):
            return None
    return RecordSummary(
        physical_offset,
        size,
        topic,
        queue_id,
        queue_offset,
        sys_flag,
        store_timestamp_ms,
        data[properties_at:stop],
    )


def _topic(raw: bytes) -> str | None:
    """A topic's name, or None for what cannot be one: it becomes the name of a folder."""
    if not raw or b"/" in raw or b"\0" in raw or raw in (b".", b".."):
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
