"""Walking a log file finds what a second, independent parser of records finds."""

from __future__ import annotations

import mmap
import random
import struct
import zlib

from rmq_broker.store.log.record import (
    BLANK_BYTES,
    CRC_PROPERTY_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    RecordSummary,
    RecordTemplate,
    crc_property,
    pack_blank,
    pack_host,
)
from rmq_broker.store.log.record_walk import RecordWalk
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.rows import each_row
from tests.support.stores import BORN_HOST, STORE_HOST

FILE_BYTES = 64 * 1024
FILE_START = 3 * FILE_BYTES
V6_HOST = pack_host("2001:db8::1", 5)


def plain_record(data: mmap.mmap, position: int, file_start: int, *, check_crc: bool) -> RecordSummary | None:
    """Parse a record field by field, after Apache RocketMQ 5.3.3, CommitLog.checkMessageAndReturnSize."""
    limit = len(data)
    if position + 40 > limit:
        return None
    size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag = struct.unpack_from(
        ">iiiiiqqi", data, position
    )
    stop = position + size
    if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_BYTES or stop > limit:
        return None
    if physical_offset != file_start + position or queue_id < 0 or queue_offset < 0:
        return None
    store_time_at = position + 48 + (20 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 8)
    body_at = store_time_at + 8 + (20 if sys_flag & MessageSysFlag.STORE_HOST_V6 else 8) + 16
    if body_at > stop:
        return None
    (store_timestamp_ms,) = struct.unpack_from(">q", data, store_time_at)
    (body_length,) = struct.unpack_from(">i", data, body_at - 4)
    topic_at = body_at + body_length
    if body_length < 0 or topic_at + 3 > stop:
        return None
    if check_crc and body_length and zlib.crc32(data[body_at:topic_at]) & 0x7FFFFFFF != crc:
        return None
    if magic == MAGIC_V1:
        topic_length, topic_at = data[topic_at], topic_at + 1
    else:
        (topic_length,), topic_at = struct.unpack_from(">H", data, topic_at), topic_at + 2
    properties_at = topic_at + topic_length + 2
    if properties_at > stop:
        return None
    (properties_length,) = struct.unpack_from(">H", data, properties_at - 2)
    topic = data[topic_at : properties_at - 2]
    if properties_at + properties_length != stop or not topic or topic in (b".", b".."):
        return None
    if b"/" in topic or b"\0" in topic:
        return None
    crc_at = stop - CRC_PROPERTY_BYTES
    if check_crc and crc_at >= properties_at and data[crc_at : crc_at + 9] == b"__CRC32#\x01":  # noqa: SIM102
        if data[crc_at:stop] != crc_property(data[position:crc_at]):
            return None
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    return RecordSummary(
        physical_offset,
        size,
        name,
        queue_id,
        queue_offset,
        sys_flag,
        store_timestamp_ms,
        data[properties_at:stop],
    )


# The records of a file, the position behind the last, and whether the file's closing blank follows.
Found = tuple[list[RecordSummary], int, bool]


def plain_walk(data: mmap.mmap, position: int, *, check_crc: bool) -> Found:
    """Walk over the file with `plain_record`, for comparison."""
    records: list[RecordSummary] = []
    while position + BLANK_BYTES <= len(data):
        record = plain_record(data, position, FILE_START, check_crc=check_crc)
        if record is None:
            size, magic = struct.unpack_from(">ii", data, position)
            return records, position, magic == MAGIC_BLANK and size == len(data) - position
        records.append(record)
        position += record.size
    return records, position, False


def log_of(chance: random.Random) -> tuple[bytearray, list[int]]:
    """Records of all layouts, and where they begin; the file ends with a blank or with zeros."""
    data = bytearray(FILE_BYTES)
    position = 0
    places: list[int] = []
    while True:
        topic = chance.choice(("TopicA", "%RETRY%G", "ü", "x" * 127, "x" * 128, "a/b", "..", "a\0b"))
        born, store = chance.choice((BORN_HOST, V6_HOST)), chance.choice((STORE_HOST, V6_HOST))
        made = RecordTemplate(
            topic,
            chance.randrange(4),
            flag=0,
            sys_flag=chance.choice((0, 4, 8, 12, 1)),
            reconsume_times=0,
            born_host_bytes=len(born),
            store_host=store,
        )
        if topic in ("a/b", "..", "a\0b") and chance.random() < 0.8:
            continue  # an invalid record, where the walk ends
        body = chance.randbytes(chance.choice((0, 1, 100, 3000)))
        properties = chance.choice((b"", b"TAGS\x01a\x02", b"a\x01" + b"v" * 300 + b"\x02", b"__CRC32#12"))
        with_crc = chance.random() < 0.2
        size = made.fixed_bytes + len(body) + len(properties) + (CRC_PROPERTY_BYTES if with_crc else 0)
        if position + size + 8 > FILE_BYTES:
            if chance.random() < 0.5:
                data[position : position + 8] = pack_blank(FILE_BYTES - position)
            return data, places
        fields = {
            "queue_offset": chance.randrange(1 << 40),
            "physical_offset": FILE_START + position,
            "born_timestamp_ms": 1,
            "born_host": born,
            "store_timestamp_ms": 1_700_000_000_000 + position,
        }
        if with_crc:
            unfinished = made.pack(size, body, properties + bytes(CRC_PROPERTY_BYTES), **fields)  # type: ignore[arg-type]
            properties += crc_property(unfinished[:-CRC_PROPERTY_BYTES])
        record = made.pack(size, body, properties, **fields)  # type: ignore[arg-type]
        assert len(record) == size
        data[position : position + size] = record
        places.append(position)
        position += size


def mapped(content: bytes) -> mmap.mmap:
    data = mmap.mmap(-1, len(content))
    data[:] = content
    return data


def walked(data: mmap.mmap, position: int, *, check_crc: bool) -> Found:
    walk = RecordWalk(data, position, FILE_START, check_crc=check_crc)
    return list(walk), walk.position, walk.is_full


def check_same(content: bytes, position: int = 0) -> int:
    data = mapped(content)
    count = 0
    for check_crc in (True, False):
        plain = plain_walk(data, position, check_crc=check_crc)
        assert walked(data, position, check_crc=check_crc) == plain
        count = len(plain[0])
    data.close()
    return count


@each_row("seed", range(15))
def test_undamaged_logs(seed: int) -> None:
    content, places = log_of(random.Random(seed))
    assert sum(check_same(bytes(content), place) for place in places) > 0


@each_row("seed", range(15))
def test_damaged_logs(seed: int) -> None:
    """From the damaged record on, both parsers find the same."""
    chance = random.Random(seed)
    content, places = log_of(chance)
    for _ in range(40):
        damaged = bytearray(content)
        place = chance.choice(places)
        for _ in range(chance.choice((1, 1, 4))):
            at = min(place + chance.randrange(140), FILE_BYTES - 4)
            what = chance.random()
            if what < 0.4:
                damaged[at] ^= 1 << chance.randrange(8)
            elif what < 0.7:
                damaged[at : at + 4] = chance.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
            else:
                damaged[at : at + 30] = bytes(len(damaged[at : at + 30]))
        check_same(bytes(damaged), place)


def test_every_byte_of_a_record() -> None:
    made = RecordTemplate(
        "TopicA", 0, flag=0, sys_flag=0, reconsume_times=0, born_host_bytes=8, store_host=STORE_HOST
    )
    record = made.pack(
        made.fixed_bytes + 9,
        b"body",
        b"a\x01b\x02\0",
        queue_offset=0,
        physical_offset=FILE_START,
        born_timestamp_ms=1,
        born_host=BORN_HOST,
        store_timestamp_ms=2,
    )
    assert check_same(record + bytes(100)) == 1
    for position in range(len(record)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            check_same(record[:position] + bytes((value,)) + record[position + 1 :] + bytes(100))
            check_same(record[:position] + bytes((value,)) + record[position + 1 :])


def test_the_end_of_a_file() -> None:
    for length in range(8, 120):
        check_same(bytes(length))
        check_same(pack_blank(length) + bytes(length - 8))
