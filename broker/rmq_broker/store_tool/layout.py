"""Layouts of a store's files, and the decoding and checking of one record of the log.

Layouts: Apache RocketMQ 5.3.3, MessageExtEncoder, ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt,
IndexFile, StoreCheckpoint. They are a second, independent copy, because this tool checks the broker's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from mmap import mmap
from struct import Struct
from typing import Final, NamedTuple

from crcmod.predefined import mkCrcFun

MAGIC_V1: Final = b"\xda\xa3\x20\xa7"
MAGIC_V2: Final = b"\xda\xa3\x20\xab"
MAGIC_BLANK: Final = b"\xcb\xd4\x31\x94"
BLANK: Final = Struct(">i4s")

QUEUE_ENTRY: Final = Struct(">qiq")  # physical offset, size, tags code or time
# Fills a queue where it has no message: in its first file before the first message, and in gaps.
PLACEHOLDER: Final = QUEUE_ENTRY.pack(0, 0x7FFFFFFF, 0)
# physical offset, size, tags code, store time, first queue offset, messages, place when compacted, reserved
BATCH_UNIT: Final = Struct(">qiqqqhii")
LARGEST_BATCH: Final = 32767  # messages
EXT_UNIT: Final = Struct(">hqqh")  # size, tags code, store time, bytes of the bit map that follows
# A tags code at or below this limit is an address in the queue's extension files.
EXT_ADDRESS_LIMIT: Final = -(2**31) - 1
EXT_ADDRESS_BASE: Final = -(2**63)

# first and last store time, first and last physical offset, slots in use, entries + 1
INDEX_HEADER: Final = Struct(">qqqqii")
INDEX_ENTRY: Final = Struct(">iqii")  # hash, physical offset, seconds since the first store time, one before
INDEX_SLOT_BYTES: Final = 4

CHECKPOINT: Final = Struct(">qqqqq")
FINE_CHECKPOINT: Final = Struct(">4sqqI")  # rmq_checkpoint: mark, written, flushed, CRC of these
TIMER_CHECKPOINT: Final = Struct(">qqqq")
TIMER_SLOT: Final = Struct(">qqqii")
TIMER_UNIT: Final = Struct(">iqiqiqiiq")

COMPRESSED: Final = 0x1
TRANSACTION_MASK: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_ROLLED_BACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700

MIN_RECORD_BYTES: Final = 91
LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999
_HEADS: Final = {
    (born, store): Struct(f">i4siiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)
}
_HEAD_V4_BYTES: Final = _HEADS[8, 8].size
_unpack_head_v4: Final = _HEADS[8, 8].unpack_from
_unpack_int16: Final = Struct(">h").unpack_from
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_ANY_HOST_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_CHECKSUM_NAME: Final = b"__CRC32#\x01"
_CHECKSUM_DIGITS: Final = 11  # with the mark of the property's end
_CHECKSUM_BYTES: Final = 20
# First bytes of a compressed body: zlib's first byte, LZ4's frame, Zstandard's frame.
_COMPRESSED_BEGINS: Final = {
    0: b"\x78",
    1: b"\x04\x22\x4d\x18",
    2: b"\x28\xb5\x2f\xfd",
    3: b"\x78",
}
_INNER_HEAD: Final = Struct(">iiiii")

crc32 = mkCrcFun("crc-32")
"""CRC-32 of some bytes, with another implementation than the broker's, at a fraction of its speed."""


class BadRecord(Exception):
    """There is no valid record at a position of the log; `kind` names the failed check."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Record(NamedTuple):
    """One stored message as encoded in the log; times in ms, hosts packed."""

    physical_offset: int
    size: int
    magic: bytes
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_time_ms: int
    born_host: bytes
    store_time_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body_at: int  # in the file
    body_bytes: int
    topic: bytes
    properties: bytes

    @property
    def transaction(self) -> int:
        """One of the TRANSACTION_ bits; 0 for none."""
        return self.sys_flag & TRANSACTION_MASK


def read_record(data: mmap | bytes, position: int, file_start: int) -> Record:
    """Read the record at `position` of a file that begins at `file_start`, and check all of its fields.

    Raises BadRecord.
    """
    limit = len(data)
    head_bytes = _HEAD_V4_BYTES
    if position + head_bytes > limit:
        raise BadRecord("log.size", f"only {limit - position} bytes are left in the file")
    fields = _unpack_head_v4(data, position)
    size, magic, sys_flag = fields[0], fields[1], fields[7]
    if magic not in _MAGICS:
        raise BadRecord("log.magic", f"no record begins here: size {size}, magic {magic.hex()}")
    if size < MIN_RECORD_BYTES or position + size > limit:
        raise BadRecord(
            "log.size",
            f"the size {size} is below {MIN_RECORD_BYTES} or above the {limit - position} bytes that the "
            "file has left",
        )
    if sys_flag & _ANY_HOST_V6:
        head = _HEADS[20 if sys_flag & BORN_HOST_V6 else 8, 20 if sys_flag & STORE_HOST_V6 else 8]
        head_bytes = head.size
        if head_bytes > size:
            raise BadRecord(
                "log.size", f"the size {size} is below the {head_bytes} bytes of the record's head"
            )
        fields = head.unpack_from(data, position)
    if fields[6] != file_start + position:
        raise BadRecord("log.physical_offset", f"the record's own offset is {fields[6]}")
    raw = data[position : position + size]
    body_end = head_bytes + fields[14]
    topic, properties_at = _topic(raw, body_end, magic, fields[14])
    properties = raw[properties_at:]
    (properties_bytes,) = _unpack_int16(raw, properties_at - 2)
    if properties_bytes != size - properties_at:
        raise BadRecord(
            "log.lengths",
            f"the lengths do not add up: properties of {properties_bytes} bytes from byte {properties_at} "
            f"on, in a record of {size}",
        )
    record = Record._make(
        (
            fields[6],
            size,
            magic,
            *fields[2:6],
            *fields[7:14],
            position + head_bytes,
            fields[14],
            topic,
            properties,
        )
    )
    _check_fields(record)
    _check_sums(raw, raw[head_bytes:body_end], record)
    return record


def body_of(data: mmap | bytes, record: Record) -> bytes:
    """Return the body as it is stored."""
    return data[record.body_at : record.body_at + record.body_bytes]


def _topic(raw: bytes, at: int, magic: bytes, body_bytes: int) -> tuple[bytes, int]:
    """Return the topic's name and the position of the properties, behind their length, in a record."""
    stop = len(raw)
    length_bytes = 1 if magic == MAGIC_V1 else 2
    if body_bytes < 0 or at + length_bytes + 2 > stop:
        raise BadRecord("log.lengths", f"a body of {body_bytes} bytes does not fit in the record")
    length = int.from_bytes(raw[at : at + length_bytes], "big", signed=True)
    at += length_bytes
    if length <= 0 or at + length + 2 > stop:
        raise BadRecord("log.lengths", f"a topic of {length} bytes does not fit in the record")
    return _checked_topic(raw[at : at + length]), at + length + 2


@lru_cache(maxsize=1024)
def _checked_topic(topic: bytes) -> bytes:
    """Return the name. Raises BadRecord for an invalid one."""
    if b"/" in topic or b"\0" in topic or topic in (b".", b".."):
        raise BadRecord("log.topic", f"the topic {topic!r} is not valid as the name of a folder")
    try:
        topic.decode()
    except UnicodeDecodeError:
        raise BadRecord("log.topic", f"the topic {topic!r} is not UTF-8") from None
    return topic


def _check_fields(record: Record) -> None:
    """Check the fields that the broker sets; those of the client may have any value. Raises BadRecord."""
    if record.queue_id < 0 or record.queue_offset < 0:
        raise BadRecord(
            "log.field",
            f"queue id {record.queue_id}, queue offset {record.queue_offset}: neither may be negative",
        )
    if not 0 < record.store_time_ms <= LAST_MS:
        raise BadRecord(
            "log.field", f"the store time {record.store_time_ms} is not in the years 1970 to 9999"
        )
    if not 0 <= record.prepared_offset <= record.physical_offset:
        raise BadRecord(
            "log.field",
            f"the offset {record.prepared_offset} of the prepared message is not before the record",
        )
    if record.born_host[-4:-2] != b"\0\0" or record.store_host[-4:-2] != b"\0\0":
        raise BadRecord(
            "log.field", f"ports above 65535: {record.born_host[-4:].hex()}, {record.store_host[-4:].hex()}"
        )


def _check_sums(raw: bytes, body: bytes, record: Record) -> None:
    if body and crc32(body) & 0x7FFFFFFF != record.body_crc:
        raise BadRecord("log.body_crc", f"the CRC of the body differs from the record's ({record.body_crc})")
    properties = record.properties
    if _CHECKSUM_NAME not in properties or properties[-_CHECKSUM_BYTES:-_CHECKSUM_DIGITS] != _CHECKSUM_NAME:
        return
    digits = properties[-_CHECKSUM_DIGITS:]
    # The lowest digit comes first.
    if b"%010d" % (crc32(raw[:-_CHECKSUM_BYTES]) & 0x7FFFFFFF) != digits[-2::-1] or digits[-1] != 2:
        raise BadRecord(
            "log.record_crc", f"the CRC of the record differs from its property __CRC32# ({digits!r})"
        )


def is_compressed_as_said(record: Record, body: bytes) -> bool:
    """Return whether a body begins like the compression in its record's flag, which the client sets."""
    if record.sys_flag & COMPRESSED == 0:
        return True
    begin = _COMPRESSED_BEGINS.get((record.sys_flag & COMPRESSION_MASK) >> 8)
    return begin is not None and body.startswith(begin)


class InnerMessage(NamedTuple):
    """One message of a batch that is stored as one record."""

    flag: int
    body: bytes
    properties: bytes


def inner_messages(body: bytes) -> Iterator[InnerMessage]:
    """Yield the messages in the body of an inner batch. Raises BadRecord for an invalid body."""
    count, position = 0, 0
    while position < len(body):
        if position + _INNER_HEAD.size + 2 > len(body):
            raise BadRecord("log.inner_batch", f"message {count} of the inner batch is cut off")
        size, _, _, flag, body_bytes = _INNER_HEAD.unpack_from(body, position)
        body_at = position + _INNER_HEAD.size
        properties_at = body_at + body_bytes + 2
        if body_bytes < 0 or properties_at > min(len(body), position + size):
            raise BadRecord("log.inner_batch", f"message {count} of the inner batch does not fit in it")
        (properties_bytes,) = _unpack_int16(body, properties_at - 2)
        if properties_bytes < 0 or properties_at + properties_bytes != position + size:
            raise BadRecord("log.inner_batch", f"the lengths in message {count} of the inner batch are wrong")
        position += size
        count += 1
        yield InnerMessage(flag, body[body_at : body_at + body_bytes], body[properties_at:position])
