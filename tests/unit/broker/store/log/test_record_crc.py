"""The body CRC of stored records, checked by a second implementation."""

from __future__ import annotations

from struct import unpack_from

import crcmod.predefined
import pytest

from rmq_broker.store.log.record import RecordTemplate, pack_host

crc32 = crcmod.predefined.mkPredefinedCrcFun("crc-32")


@pytest.mark.parametrize("body", [b"x", b"hello", bytes(range(256)) * 20, "值😀".encode() * 999])
def test_the_body_crc_is_that_of_another_implementation(body: bytes) -> None:
    template = RecordTemplate(
        "Topic",
        0,
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        born_host_bytes=8,
        store_host=pack_host("127.0.0.1", 10911),
    )
    record = template.pack(
        template.fixed_bytes + len(body),
        body,
        b"",
        queue_offset=0,
        physical_offset=0,
        born_timestamp_ms=1,
        born_host=pack_host("127.0.0.1", 1),
        store_timestamp_ms=1,
    )
    assert unpack_from(">i", record, 8)[0] == crc32(body) & 0x7FFFFFFF
