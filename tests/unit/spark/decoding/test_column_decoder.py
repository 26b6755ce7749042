"""The vectorized decoder equals the reference decoder on Apache's stores and on random records."""

from __future__ import annotations

import hashlib
import pickle
import weakref
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from pyspark_rocketmq.columns import PropertiesMode, columns_of
from pyspark_rocketmq.decoding import ColumnDecoder, normalization
from pyspark_rocketmq.errors import BatchTooLarge, RecordDamaged, SchemaError
from pyspark_rocketmq.limits import MAX_CHUNK_BYTES
from rmq_remoting import message_batch
from rmq_remoting.compression import CompressionType
from rmq_remoting.message_codec import MAGIC_BLANK
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support import golden_store
from tests.support.examples import examples
from tests.support.golden import json_lines
from tests.support.rows import each_row
from tests.unit.spark.decoding.reference_decoder import Row, reference_rows, rows_of
from tests.unit.spark.decoding.stored_records import (
    INNER_BATCH,
    batch_body,
    compressed,
    plain_message,
    record,
    stored_records,
)
from tests.unit.spark.spark_arrow import to_arrow_schema

ALL = list(columns_of("map"))
FIRST, LAST = -(1 << 63), (1 << 63) - 1
GOLDEN_RECORDS = json_lines("wire/messages.jsonl", "stored message")


def fast_rows(
    chunks: list[bytes],
    columns: list[str] = ALL,
    *,
    begin: int = FIRST,
    end: int = LAST,
    queue: tuple[str, str, int] = ("t", "b", 0),
    mode: PropertiesMode = "map",
    check_crc: bool = False,
    decompress: bool = True,
) -> list[Row]:
    decoder = ColumnDecoder(columns, properties_mode=mode, check_crc=check_crc, decompress=decompress)
    decoded = decoder.decode(*queue, chunks, begin=begin, end=end)
    decoded.batch.validate(full=True)
    assert decoded.batch.schema == decoder.schema
    assert decoded.messages == decoded.batch.num_rows
    return rows_of(decoded.batch)


def only(rows: list[Row], columns: list[str]) -> list[Row]:
    return [{name: row[name] for name in columns} for row in rows]


class TestGoldenRecords:
    @each_row("row", GOLDEN_RECORDS, ids=lambda row: row["name"])
    def test_columns(self, row: dict[str, Any]) -> None:
        decoded = row["decoded"]
        (found,) = fast_rows([bytes.fromhex(row["hex"])], check_crc=True)
        assert found["msgId"] == decoded["client_msg_id"]
        assert found["offsetMsgId"] == decoded["client_offset_msg_id"]
        assert found["body"].hex() == (decoded["body_hex_decompressed"] or "")
        assert found["properties"] == (decoded["properties"] or {})
        assert found["queueOffset"] == decoded["queueOffset"]
        assert found["bornTimestamp"] == decoded["bornTimestamp"] * 1000
        assert found["storeTimestamp"] == decoded["storeTimestamp"] * 1000
        assert (found["flag"], found["reconsumeTimes"]) == (decoded["flag"], decoded["reconsumeTimes"])

    @pytest.mark.parametrize("decompress", [True, False])
    @pytest.mark.parametrize("mode", ["map", "raw", "none"])
    def test_all_in_one_response(self, mode: PropertiesMode, decompress: bool) -> None:
        response = b"".join(bytes.fromhex(row["hex"]) for row in GOLDEN_RECORDS)
        columns = list(columns_of(mode))
        found = fast_rows([response], columns, mode=mode, decompress=decompress)
        slow = reference_rows(
            [response], begin=FIRST, end=LAST, raw_properties=mode == "raw", decompress=decompress
        )
        assert found == only(slow, columns)

    def test_pull_responses(self) -> None:
        for row in json_lines("wire/frames.jsonl"):
            if row["name"] == "pull response found":
                body = bytes.fromhex(row["decoded"]["body_hex"])
                assert fast_rows([body]) == reference_rows([body], begin=FIRST, end=LAST) != []


@pytest.fixture(scope="module", params=["clean", "killed"])
def golden_queues(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a store's records by topic and queue, as (row of the manifest, record), by offset."""
    store = golden_store.unpack(request.param, tmp_path_factory.mktemp("store"))
    log = b"".join(path.read_bytes() for path in sorted(Path(store, "commitlog").iterdir()))
    queues: dict[tuple[str, int], list[tuple[dict[str, Any], bytes]]] = defaultdict(list)
    for row in golden_store.manifest(request.param):
        data = log[row["phyOffset"] : row["phyOffset"] + row["size"]]
        queues[row["topic"], row["queueId"]].append((row, data))
    assert len(queues) > 5
    return {key: sorted(rows, key=lambda item: item[0]["queueOffset"]) for key, rows in queues.items()}


class TestGoldenStore:
    def test_equals_the_reference_decoder(self, golden_queues: Any) -> None:
        for (topic, queue_id), rows in golden_queues.items():
            records = [data for _, data in rows]
            chunks = [b"".join(records[at : at + 32]) for at in range(0, len(records), 32)]
            queue = (topic, "broker-a", queue_id)
            found = fast_rows(chunks, queue=queue, check_crc=True)
            assert found == reference_rows(chunks, begin=FIRST, end=LAST, queue=queue, check_crc=True)

    def test_equals_apaches_decoder(self, golden_queues: Any) -> None:
        for (topic, _), rows in golden_queues.items():
            single = [item for item in rows if item[0]["sysFlag"] & INNER_BATCH != INNER_BATCH]
            found = fast_rows([b"".join(data for _, data in single)])
            for row, (expected, _) in zip(found, single, strict=True):
                where = f"{topic} {expected['phyOffset']}"
                assert row["offsetMsgId"] == expected["offsetMsgId"], where
                assert row["msgId"] == (expected["uniqKey"] or expected["offsetMsgId"]), where
                assert (row["keys"], row["tags"]) == (expected["keys"], expected["tags"]), where
                assert row["properties"] == expected["properties"], where
                assert hashlib.sha256(row["body"]).hexdigest() == expected["uncompressedBodySha256"], where
                assert row["bornHost"] == expected["bornHost"].rpartition(":")[0], where
                assert row["queueOffset"] == expected["queueOffset"], where


class TestRandomRecords:
    @settings(max_examples=examples(300))
    @given(
        st.lists(st.lists(stored_records, max_size=5).map(b"".join), max_size=3),
        st.integers(-1, 21),
        st.integers(0, 22),
        st.sampled_from(["map", "raw", "none"]),
        st.booleans(),
        st.booleans(),
        st.data(),
    )
    def test_equals_the_reference_decoder(
        self,
        chunks: list[bytes],
        begin: int,
        end: int,
        mode: PropertiesMode,
        decompress: bool,
        check_crc: bool,
        data: st.DataObject,
    ) -> None:
        columns = data.draw(st.permutations(list(columns_of(mode))))
        columns = columns[: data.draw(st.integers(1, len(columns)))]
        options: dict[str, Any] = {"decompress": decompress, "check_crc": check_crc}
        slow = reference_rows(chunks, begin=begin, end=end, raw_properties=mode == "raw", **options)
        found = fast_rows(chunks, columns, begin=begin, end=end, mode=mode, **options)
        assert found == only(slow, columns)

    @settings(max_examples=examples(50))
    @given(st.lists(stored_records, min_size=1, max_size=6).map(b"".join))
    def test_single_columns(self, chunk: bytes) -> None:
        slow = reference_rows([chunk], begin=FIRST, end=LAST)
        for name in ALL:
            assert fast_rows([chunk], [name]) == only(slow, [name])

    @settings(max_examples=examples(300))
    @given(
        st.lists(stored_records, min_size=1, max_size=4).map(b"".join),
        st.data(),
    )
    def test_damage_is_detected_or_harmless(self, chunk: bytes, data: st.DataObject) -> None:
        damaged = bytearray(chunk)
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(chunk) - 1))] = data.draw(st.integers(0, 255))
        damaged = damaged[: data.draw(st.sampled_from([len(chunk), len(chunk), 95, 60, 3]))]
        chunks = [bytes(damaged)]
        try:
            slow = reference_rows(chunks, begin=FIRST, end=LAST, check_crc=True)
        except MessageDecodeError:
            with pytest.raises(RecordDamaged):
                fast_rows(chunks, check_crc=True)
        else:
            assert fast_rows(chunks, check_crc=True) == slow


class TestRange:
    def test_end_is_exclusive(self) -> None:
        decoder = ColumnDecoder(["queueOffset"])
        chunk = b"".join(record(plain_message(offset)) for offset in range(10, 20))
        decoded = decoder.decode("t", "b", 0, [chunk], begin=12, end=15)
        assert decoded.batch.column(0).to_pylist() == [12, 13, 14]
        assert (decoded.messages, decoded.next_offset) == (3, 15)

    @pytest.mark.parametrize(
        ("begin", "end", "expected"), [(5, 30, 20), (25, 30, 25), (0, 5, 5), (5, 20, 20)]
    )
    def test_next_offset_is_within_the_range(self, begin: int, end: int, expected: int) -> None:
        decoder = ColumnDecoder(["queueOffset"])
        chunk = b"".join(record(plain_message(offset)) for offset in range(10, 20))
        assert decoder.decode("t", "b", 0, [chunk], begin=begin, end=end).next_offset == expected

    def test_without_chunks(self) -> None:
        decoded = ColumnDecoder(ALL).decode("t", "b", 0, [], begin=4, end=9)
        assert (decoded.messages, decoded.next_offset, decoded.batch.num_rows) == (0, 4, 0)

    def test_inner_batch_is_cut_at_the_range(self) -> None:
        body = batch_body([(n, b"%d" % n, b"TAGS\x01x\x02") for n in range(6)])
        batch = replace(plain_message(10, body), sys_flag=INNER_BATCH)
        chunk = record(batch) + record(plain_message(16))
        decoded = ColumnDecoder(["queueOffset", "body", "tags"]).decode(
            "t", "b", 0, [chunk], begin=12, end=15
        )
        assert decoded.batch.column("queueOffset").to_pylist() == [12, 13, 14]
        assert decoded.batch.column("body").to_pylist() == [b"2", b"3", b"4"]
        assert decoded.batch.column("tags").to_pylist() == ["x"] * 3
        assert decoded.next_offset == 15

    def test_inner_batch_is_unpacked_even_without_decompression(self) -> None:
        body = batch_body([(1, b"one", b""), (2, b"two", b"")])
        batch = compressed(replace(plain_message(0, body), sys_flag=INNER_BATCH), CompressionType.ZSTD)
        rows = fast_rows([record(batch)], ["queueOffset", "body"], decompress=False)
        assert rows == [{"queueOffset": 0, "body": b"one"}, {"queueOffset": 1, "body": b"two"}]


class TestUnselectedColumns:
    def test_unselected_body_is_not_decompressed(self) -> None:
        broken = replace(plain_message(3, b"no zlib"), sys_flag=MessageSysFlag.COMPRESSED)
        assert fast_rows([record(broken)], ["queueOffset"]) == [{"queueOffset": 3}]
        with pytest.raises(RecordDamaged, match="zlib"):
            fast_rows([record(broken)], ["body"])

    def test_unknown_column_is_rejected(self) -> None:
        with pytest.raises(SchemaError, match="'bodies' does not exist"):
            ColumnDecoder(["bodies"])

    def test_no_properties_column_in_mode_none(self) -> None:
        with pytest.raises(SchemaError, match="propertiesMode=none"):
            ColumnDecoder(["properties"], properties_mode="none")

    def test_schema_with_different_columns_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="columns"):
            ColumnDecoder(["body"], schema=pa.schema([("topic", pa.string())]))


class TestDamage:
    def test_error_has_the_position(self) -> None:
        sound = record(plain_message(41))
        with pytest.raises(RecordDamaged) as raised:
            fast_rows([sound, record(plain_message(42))[:-1]], queue=("orders", "broker-a", 3))
        error = raised.value
        assert (error.topic, error.broker_name, error.queue_id, error.offset) == ("orders", "broker-a", 3, 42)
        assert "topic orders, broker broker-a, queue 3, offset 42" in str(error)
        assert f"at byte {len(sound)}" in str(error)

    def test_error_survives_pickling(self) -> None:
        error = pickle.loads(pickle.dumps(RecordDamaged("t", "b", 1, None, "why")))
        assert str(error) == str(RecordDamaged("t", "b", 1, None, "why"))
        assert "offset unknown" in str(error)

    def test_record_split_over_two_responses(self) -> None:
        both = record(plain_message(1)) + record(plain_message(2))
        with pytest.raises(RecordDamaged, match="cut off"):
            fast_rows([both[:190], both[190:]])

    @pytest.mark.parametrize("size", [0, 90, -5])
    def test_impossible_record_sizes(self, size: int) -> None:
        chunk = size.to_bytes(4, "big", signed=True) + record(plain_message(1))[4:]
        with pytest.raises(RecordDamaged, match=f"the record size is {size} bytes"):
            fast_rows([chunk])

    def test_filler_record_is_rejected_at_any_offset(self) -> None:
        filler = bytearray(record(plain_message(1)))
        filler[4:8] = MAGIC_BLANK.to_bytes(4, "big")
        with pytest.raises(RecordDamaged, match="filler"):
            fast_rows([bytes(filler)], begin=100, end=200)

    def test_crc_of_a_plain_body(self) -> None:
        chunk = record(plain_message(1)) + record(plain_message(2)).replace(b"hello", b"hallo")
        assert len(fast_rows([chunk])) == 2
        with pytest.raises(RecordDamaged, match=r"offset 2: .* the body has the CRC"):
            fast_rows([chunk], check_crc=True)
        with pytest.raises(RecordDamaged, match="CRC"):
            fast_rows([chunk], ["queueOffset"], check_crc=True)

    def test_crc_outside_the_range_is_not_checked(self) -> None:
        chunk = record(plain_message(1)) + record(plain_message(2)).replace(b"hello", b"hallo")
        assert len(fast_rows([chunk], end=2, check_crc=True)) == 1

    def test_damaged_inner_batch(self) -> None:
        body = batch_body([(1, b"one", b"")])[:-1]
        batch = replace(plain_message(7, body), sys_flag=INNER_BATCH)
        with pytest.raises(RecordDamaged, match="offset 7"):
            fast_rows([record(plain_message(6)), record(batch)])


class TestBounds:
    def test_too_many_bytes(self) -> None:
        with pytest.raises(ValueError, match=f"at most {MAX_CHUNK_BYTES}"):
            fast_rows([bytes(MAX_CHUNK_BYTES + 1)])

    @pytest.mark.parametrize("per_response", [1, 4, 9])
    def test_decompressed_in_parts(self, per_response: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(normalization, "MAX_DECODED_BYTES", 3000)
        records = [
            record(compressed(plain_message(offset, bytes([offset]) * 1000), CompressionType.ZLIB))
            for offset in range(9)
        ]
        chunks = [b"".join(records[at : at + per_response]) for at in range(0, 9, per_response)]
        decoder = ColumnDecoder(["queueOffset", "body"])
        with pytest.raises(BatchTooLarge, match="9 records take more than 3000 bytes"):
            decoder.decode("t", "b", 0, chunks, begin=0, end=9)
        parts = list(decoder.decode_in_parts("t", "b", 0, chunks, begin=1, end=8))
        assert len(parts) > 2
        rows = [row for part in parts for row in rows_of(part.batch)]
        assert [row["queueOffset"] for row in rows] == list(range(1, 8))
        assert parts[-1].next_offset == 8

    def test_failed_attempts_are_freed_before_the_parts_are_decoded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failures: list[weakref.ref[BatchTooLarge]] = []

        def failure(reason: str) -> BatchTooLarge:
            error = BatchTooLarge(reason)
            failures.append(weakref.ref(error))
            return error

        monkeypatch.setattr(normalization, "MAX_DECODED_BYTES", 3000)
        monkeypatch.setattr(normalization, "BatchTooLarge", failure)
        messages = [
            compressed(plain_message(offset, bytes([offset]) * 1000), CompressionType.ZLIB)
            for offset in range(9)
        ]
        chunk = b"".join(map(record, messages))
        for _ in ColumnDecoder(["body"]).decode_in_parts("t", "b", 0, [chunk], begin=0, end=9):
            assert failures
            assert all(failed() is None for failed in failures)

    def test_messages_of_a_batch_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(message_batch, "MAX_BATCH_MESSAGES", 2)
        body = batch_body([(0, b"", b"")] * 3)
        batch = compressed(replace(plain_message(7, body), sys_flag=INNER_BATCH), CompressionType.ZLIB)
        with pytest.raises(RecordDamaged, match=r"offset 7: .* more messages than the limit of 2"):
            fast_rows([record(plain_message(6)), record(batch)])

    def test_one_record_may_be_larger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(normalization, "MAX_DECODED_BYTES", 3000)
        large = compressed(plain_message(0, bytes(5000)), CompressionType.ZSTD)
        assert fast_rows([record(large)], ["body"]) == [{"body": bytes(5000)}]


class TestManyMessages:
    def test_normalized_records_among_plain_ones(self) -> None:
        records = [record(plain_message(n, b"%d" % n, TAGS=f"t{n % 3}", KEYS=f"k{n}")) for n in range(500)]
        records[100] = record(compressed(plain_message(100, b"100" * 50, TAGS="z"), CompressionType.ZLIB))
        records[200] = record(replace(plain_message(200), born_host=("::1", 1), store_host=("fe80::1", 2)))
        records[300] = record(replace(plain_message(300), version=2, topic="t" * 200))
        records[400] = record(plain_message(400), b"TAGS\x01a\x02TAGS\x01b\x02KEYS\x01")
        chunks = [b"".join(records[:150]), b"".join(records[150:])]
        assert fast_rows(chunks, check_crc=True) == reference_rows(chunks, begin=0, end=500)

    def test_more_names_than_bits(self) -> None:
        records = [record(plain_message(n), b"name%d\x01v\x02TAGS\x01t\x02" % n) for n in range(100)]
        records[50] = record(plain_message(50), b"name0\x01a\x02x\x01y\x02name0\x01b\x02")
        chunk = b"".join(records)
        assert fast_rows([chunk]) == reference_rows([chunk], begin=0, end=100)


class TestNullableFlags:
    def test_batches_have_the_users_nullable_flags(self) -> None:
        fields = [
            StructField("properties", MapType(StringType(), StringType(), False), False),
            StructField("queueOffset", LongType(), False),
        ]
        schema = to_arrow_schema(StructType(fields))
        decoder = ColumnDecoder(["properties", "queueOffset"], schema=schema)
        chunk = record(plain_message(3, TAGS="a"))
        batch = decoder.decode("t", "b", 0, [chunk], begin=0, end=9).batch
        assert batch.schema.equals(schema)
        assert batch.to_pylist() == [{"properties": [("TAGS", "a")], "queueOffset": 3}]


def test_only_rows_with_selected_tags() -> None:
    chunks = [
        record(plain_message(0, TAGS="Aa")),
        record(compressed(plain_message(1, TAGS="BB"), CompressionType.ZSTD)),
        record(plain_message(2)),
        record(compressed(plain_message(3, b"there", TAGS="Aa"), CompressionType.ZSTD)),
    ]
    decoder = ColumnDecoder(["queueOffset", "body"], tags={"Aa", "C"})
    decoded = decoder.decode("t", "b", 0, chunks, begin=0, end=9)
    assert decoded.batch.to_pylist() == [
        {"queueOffset": 0, "body": b"hello"},
        {"queueOffset": 3, "body": b"there"},
    ]
    assert (decoded.messages, decoded.next_offset) == (2, 4)
    assert decoder.decode("t", "b", 0, chunks[1:3], begin=0, end=9).messages == 0
