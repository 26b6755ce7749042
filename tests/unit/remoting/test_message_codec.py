"""Stored records, against those of Apache's encoder, and against damage."""

from __future__ import annotations

import copy
import pickle
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_remoting import compression as compression_module
from rmq_remoting import message_batch
from rmq_remoting.compression import CompressionType, DecompressionBudget, compress
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_codec import (
    MAGIC_BLANK,
    body_crc,
    decode_messages,
    decode_stored_message,
    decode_until_damage,
    encode_stored_batch,
    encode_stored_message,
)
from rmq_remoting.message_errors import (
    BodyChecksumError,
    DecompressedTooLargeError,
    DecompressionBudgetError,
    DecompressionError,
    MessageDecodeError,
    MessageEncodeError,
    UnknownCompressionError,
)
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.record_checksum import record_checksum_matches
from rmq_remoting.socket_addresses import decode_address, encode_address
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.compressions import COMPRESSIONS, readable
from tests.support.examples import examples
from tests.support.golden import json_file, json_lines
from tests.support.rows import each_row
from tests.unit.remoting.message_samples import message_of_row, messages, properties, same_address

STORED = json_lines("wire/messages.jsonl", "stored message")
APPENDED_BATCH = json_lines("wire/messages.jsonl", "batch as the broker appends it")[0]
CLIENT_BATCH = json_lines("wire/messages.jsonl", "client batch")[0]


def by_name(row: dict[str, Any]) -> str:
    return str(row["name"])


def sample(**changes: Any) -> MessageExt:
    message = MessageExt(
        "TopicTest", b"hello", 0, {"TAGS": "a"}, born_host=("10.0.0.3", 1), store_host=("10.0.0.1", 2)
    )
    return replace(message, **changes)


class TestGoldenRecords:
    @each_row("row", STORED, ids=by_name)
    def test_decoded_as_stored(self, row: dict[str, Any]) -> None:
        decoded = row["decoded"]
        message = decode_stored_message(bytes.fromhex(row["hex"]), decompress_body=False, check_crc=True)
        expected = message_of_row(decoded, bytes.fromhex(decoded["body_hex_as_stored"] or ""), {})
        for field in fields(MessageExt):
            if field.name not in ("properties", "born_host", "store_host", "version"):
                assert getattr(message, field.name) == getattr(expected, field.name), field.name
        assert message.properties == (decoded["properties"] or {})
        assert same_address(message.born_host, decoded["bornHost"], decoded["bornPort"])
        assert same_address(message.store_host, decoded["storeHost"], decoded["storePort"])

    @each_row("row", readable(STORED), ids=by_name)
    def test_decoded_for_a_client(self, row: dict[str, Any]) -> None:
        decoded = row["decoded"]
        message = decode_stored_message(bytes.fromhex(row["hex"]))
        assert message.body == bytes.fromhex(decoded["body_hex_decompressed"] or "")
        assert message.sys_flag == decoded["sysFlag_after_java_decompression"]
        assert message.msg_id == decoded["client_msg_id"]
        assert message.offset_msg_id == decoded["client_offset_msg_id"] == decoded["msgId"]
        assert parse_offset_message_id(message.offset_msg_id).physical_offset == decoded["phyOffset"]

    @each_row("row", STORED, ids=by_name)
    def test_encoded(self, row: dict[str, Any]) -> None:
        record, decoded = bytes.fromhex(row["hex"]), row["decoded"]
        # The row's properties are sorted; their order in the record is that of Java's map.
        in_order = decode_stored_message(record, decompress_body=False).properties
        message = message_of_row(decoded, bytes.fromhex(decoded["body_hex_as_stored"] or ""), in_order)
        assert encode_stored_message(message) == record

    @pytest.mark.parametrize("row", [row for row in STORED if "CRC" in row["name"]], ids=by_name)
    def test_checksum_property(self, row: dict[str, Any]) -> None:
        record = bytes.fromhex(row["hex"])
        message = decode_stored_message(record)
        assert record_checksum_matches(record)
        del message.properties["__CRC32#"]
        assert encode_stored_message(message, append_checksum=True) == record
        assert not record_checksum_matches(encode_stored_message(message))

    def test_all_records_as_one_pull_response(self) -> None:
        rows = readable(STORED)
        decoded = decode_messages(b"".join(bytes.fromhex(row["hex"]) for row in rows), check_crc=True)
        assert [message.msg_id for message in decoded] == [row["decoded"]["client_msg_id"] for row in rows]

    @pytest.mark.parametrize("row", json_file("hashes.json")["crc32"], ids=lambda row: row["hex"][:16])
    def test_body_crc(self, row: dict[str, Any]) -> None:
        assert body_crc(bytes.fromhex(row["hex"])) == row["UtilAll_crc32"]


class TestAppendedBatch:
    def header(self) -> MessageExt:
        # The order is that of Java's map.
        shared = {"CLUSTER": "DefaultCluster", "WAIT": "true"}
        return message_of_row(APPENDED_BATCH["decoded"][0], b"", shared)

    def test_encoded(self) -> None:
        records = encode_stored_batch(bytes.fromhex(CLIENT_BATCH["hex"]), self.header())
        assert len(records) == APPENDED_BATCH["batch_size"]
        assert b"".join(records).hex() == APPENDED_BATCH["hex"]

    def test_decoded(self) -> None:
        decoded = decode_messages(bytes.fromhex(APPENDED_BATCH["hex"]), check_crc=True)
        for message, row in zip(decoded, APPENDED_BATCH["decoded"], strict=True):
            assert (message.topic, message.flag, message.properties) == (
                row["topic"],
                row["flag"],
                row["properties"],
            )
            assert (message.body_crc, message.store_size) == (row["bodyCRC"], row["storeSize"])
            assert message.offset_msg_id == row["msgId"]

    def test_properties_without_a_last_separator_get_one(self) -> None:
        batch = bytearray(encode_batch([Message("t", b"x", tags="a")]))
        batch[3] -= 1  # one byte less in all ...
        batch[-8] -= 1  # ... and in the properties
        (record,) = encode_stored_batch(bytes(batch[:-1]), self.header(), append_checksum=True)
        message = decode_stored_message(record)
        assert message.tags == "a"
        assert message.properties["CLUSTER"] == "DefaultCluster"
        assert record_checksum_matches(record)


class TestInnerBatch:
    flags = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    batch = (Message("t", b"one", flag=1, tags="a"), Message("t", b"two", flag=2, keys="k"))

    def test_is_taken_apart(self) -> None:
        outer = sample(body=encode_batch(self.batch), sys_flag=self.flags, queue_offset=70, queue_id=3)
        response = encode_stored_message(sample()) + encode_stored_message(outer)
        plain, one, two = decode_messages(response, check_crc=True)
        assert plain.body == b"hello"
        assert (one.body, one.flag, one.properties, one.queue_offset) == (b"one", 1, {"TAGS": "a"}, 70)
        assert (two.body, two.flag, two.properties, two.queue_offset) == (b"two", 2, {"KEYS": "k"}, 71)
        assert one.queue_id == two.queue_id == 3
        assert one.store_host == outer.store_host
        assert not MessageSysFlag.is_inner_batch(one.sys_flag)

    def test_compressed(self) -> None:
        body = compress(encode_batch(self.batch))
        flag = self.flags | CompressionType.ZLIB.sys_flag
        record = encode_stored_message(sample(body=body, sys_flag=flag))
        assert [message.body for message in decode_messages(record)] == [b"one", b"two"]
        (whole,) = decode_messages(record, decompress_bodies=False)
        assert whole.body == body

    @pytest.mark.parametrize("flag", [MessageSysFlag.INNER_BATCH, MessageSysFlag.NEED_UNWRAP])
    def test_needs_both_bits(self, flag: int) -> None:
        record = encode_stored_message(sample(body=encode_batch(self.batch), sys_flag=flag))
        assert len(decode_messages(record)) == 1

    def test_damaged(self) -> None:
        good = encode_stored_message(sample())
        record = encode_stored_message(sample(body=encode_batch(self.batch)[:-1], sys_flag=self.flags))
        with pytest.raises(MessageDecodeError) as caught:
            decode_messages(good + record)
        assert caught.value.position == len(good)
        messages, damage = decode_until_damage(good + record)
        assert len(messages) == 1
        assert str(damage) == str(caught.value)


class TestCompressedBodies:
    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_round_trip(self, compression: CompressionType) -> None:
        body = b"abc" * 500
        stored = compress(body, compression)
        record = encode_stored_message(sample(body=stored, sys_flag=compression.sys_flag))
        message = decode_stored_message(record, check_crc=True)
        assert message.body == body
        assert message.sys_flag & MessageSysFlag.COMPRESSED == 0
        assert decode_stored_message(encode_stored_message(message)).body == body

    def test_limit(self) -> None:
        stored = compress(bytes(1001))
        record = encode_stored_message(sample(body=stored, sys_flag=CompressionType.ZLIB.sys_flag))
        with pytest.raises(DecompressedTooLargeError, match="1000 bytes"):
            decode_messages(record, max_body_bytes=1000)

    def test_damage_and_unknown_type(self) -> None:
        record = encode_stored_message(sample(body=b"no zlib", sys_flag=CompressionType.ZLIB.sys_flag))
        with pytest.raises(DecompressionError, match="damaged"):
            decode_messages(record)
        assert decode_messages(record, decompress_bodies=False)[0].body == b"no zlib"
        record = encode_stored_message(sample(sys_flag=MessageSysFlag.COMPRESSED | 7 << 8))
        with pytest.raises(UnknownCompressionError, match="compression 7"):
            decode_messages(record)


class TestLimitOfAResponse:
    limit = 1000

    @pytest.fixture(autouse=True)
    def small_responses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compression_module, "MAX_RESPONSE_BYTES", self.limit)

    def test_decoding_ends_at_the_first_body_beyond_it(self) -> None:
        records = [self.compressed(bytes([number]) * 600) for number in range(3)]
        plain = encode_stored_message(sample(body=b"p" * 2000))
        response = plain + b"".join(records) + plain
        messages, error = decode_until_damage(response)
        assert [len(message.body) for message in messages] == [2000, 600, 600]
        assert isinstance(error, DecompressionBudgetError)
        assert error.position == len(plain + records[0] + records[1])
        messages, error = decode_until_damage(response, error.position)
        assert [len(message.body) for message in messages] == [600, 2000]
        assert error is None

    def test_exceeding_it_is_an_error_where_all_messages_are_needed(self) -> None:
        with pytest.raises(DecompressionBudgetError, match="1000 bytes or more"):
            decode_messages(self.compressed(bytes(self.limit)) + self.compressed(b"x"))

    def test_bodies_that_stay_compressed_do_not_count(self) -> None:
        response = self.compressed(bytes(self.limit)) * 3
        assert len(decode_messages(response, decompress_bodies=False)) == 3

    def test_messages_of_batches_count(self) -> None:
        batch = encode_batch([Message("t", b"")] * 4)
        response = self.compressed(batch, TestInnerBatch.flags) + self.compressed(b"x")
        messages, error = decode_until_damage(response)
        assert len(messages) == 4
        assert isinstance(error, DecompressionBudgetError)

    def test_a_compressed_batch_of_too_many_messages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(message_batch, "MAX_BATCH_MESSAGES", 3)
        sound = encode_stored_message(sample())
        batch = self.compressed(encode_batch([Message("t", b"")] * 4), TestInnerBatch.flags)
        messages, error = decode_until_damage(sound + batch)
        assert len(messages) == 1
        assert isinstance(error, DecompressedTooLargeError)
        assert error.position == len(sound)

    def test_a_budget_covers_several_calls(self) -> None:
        budget, response = DecompressionBudget(), self.compressed(bytes(600))
        for _ in range(2):
            assert decode_until_damage(response, budget=budget)[1] is None
        assert isinstance(decode_until_damage(response, budget=budget)[1], DecompressionBudgetError)

    @staticmethod
    def compressed(body: bytes, flags: int = 0) -> bytes:
        return encode_stored_message(
            sample(body=compress(body), sys_flag=CompressionType.ZLIB.sys_flag | flags)
        )


class TestEncoding:
    def test_long_topic_makes_version_2(self) -> None:
        record = encode_stored_message(sample(topic="t" * 128))
        message = decode_stored_message(record)
        assert (message.version, message.topic) == (2, "t" * 128)

    def test_version_2_is_kept_for_a_short_topic(self) -> None:
        assert decode_stored_message(encode_stored_message(sample(version=2))).version == 2

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"queue_id": 1 << 31}, "queue_id 2147483648"),
            ({"queue_offset": 1 << 63}, "queue_offset 9223372036854775808"),
            ({"flag": -(1 << 31) - 1}, "flag -2147483649"),
            ({"topic": "t" * 32768}, "topic of 32768 bytes"),
            ({"properties": {"p": "x" * 32767}}, "32770 bytes"),
            ({"born_host": ("broker.example", 1)}, "resolve host names"),
            ({"store_host": ("10.0.0.1", 65536)}, "port 65536"),
        ],
    )
    def test_what_does_not_fit_is_named(self, changes: dict[str, Any], reason: str) -> None:
        with pytest.raises(MessageEncodeError, match=reason):
            encode_stored_message(sample(**changes))

    def test_checksum_counts_among_the_properties(self) -> None:
        message = sample(properties={"p": "x" * 32760})
        encode_stored_message(message)
        with pytest.raises(MessageEncodeError, match="32783 bytes"):
            encode_stored_message(message, append_checksum=True)

    def test_host_bits_follow_the_hosts(self) -> None:
        record = encode_stored_message(sample(born_host=("2001:db8::1", 7), store_host=("::1%lo", 8)))
        message = decode_stored_message(record)
        assert message.sys_flag == MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
        assert (message.born_host, message.store_host) == (("2001:db8::1", 7), ("::1", 8))


class TestDamage:
    record = encode_stored_message(sample())

    def edited(self, position: int, field: bytes) -> bytes:
        return self.record[:position] + field + self.record[position + len(field) :]

    @each_row(
        ("position", "field", "reason"),
        [
            (0, struct.pack(">i", 0), "does not fit a record of 0"),
            (0, struct.pack(">i", -5), "does not fit a record of -5"),
            (0, struct.pack(">i", 0x7FFFFFFF), "2147483647 bytes, .* are there"),
            (4, struct.pack(">I", 0xDEADBEEF), "magic 0xdeadbeef"),
            (4, struct.pack(">I", MAGIC_BLANK), "filler"),
            (52, struct.pack(">i", 65536), "port 65536"),
            (84, struct.pack(">i", -1), "body of -1 bytes"),
            (84, struct.pack(">i", 1 << 30), "body of 1073741824 bytes"),
            (93, b"\x80", "topic of 128 bytes"),
            (93, b"\x7f", "topic of 127 bytes"),
            (103, b"\xff\xff", "properties of 65535 bytes"),
            (103, b"\x00\x06", "its fields take 111"),
        ],
    )
    def test_is_named(self, position: int, field: bytes, reason: str) -> None:
        with pytest.raises(MessageDecodeError, match=reason) as caught:
            decode_messages(self.record + self.edited(position, field))
        assert caught.value.position == len(self.record)
        messages, damage = decode_until_damage(self.record + self.edited(position, field))
        assert [message.body for message in messages] == [b"hello"]
        assert str(damage) == str(caught.value)
        assert f"record at byte {len(self.record)}" in str(caught.value)

    def test_crc_is_checked_on_demand(self) -> None:
        damaged = self.edited(88, b"J")
        assert decode_messages(damaged)[0].body == b"Jello"
        with pytest.raises(BodyChecksumError, match="the record says 907060870"):
            decode_messages(damaged, check_crc=True)

    def test_cut_anywhere(self) -> None:
        record = encode_stored_message(sample(born_host=("::1", 1), store_host=("::2", 2), version=2))
        for length in range(1, len(record)):
            with pytest.raises(MessageDecodeError):
                decode_messages(record[:length])

    @pytest.mark.parametrize("position", [-1, -200, 1000])
    def test_position_outside(self, position: int) -> None:
        with pytest.raises(MessageDecodeError, match="too few"):
            decode_stored_message(self.record, position)

    def test_text_that_is_no_utf8_is_read_with_replacements(self) -> None:
        message = decode_messages(self.edited(94, b"\xff"))[0]
        assert message.topic == "\ufffdopicTest"


class TestRandomMessages:
    @given(st.lists(messages, max_size=4), st.booleans())
    @settings(max_examples=examples(150))
    def test_round_trip(self, sent: list[MessageExt], append_checksum: bool) -> None:
        records = [encode_stored_message(message, append_checksum=append_checksum) for message in sent]
        decoded = decode_messages(b"".join(records), check_crc=True)
        for message, record, original in zip(decoded, records, sent, strict=True):
            assert message.store_size == len(record)
            assert record_checksum_matches(record) == append_checksum
            assert message.properties.pop("__CRC32#", None) is not None or not append_checksum
            assert encode_stored_message(message, append_checksum=append_checksum) == record
            assert without_derived_fields(message) == without_derived_fields(original)

    @given(st.binary(max_size=400))
    @settings(max_examples=examples(300))
    def test_random_bytes(self, raw: bytes) -> None:
        decodes_or_raises_the_typed_error(raw)

    @given(st.data())
    @settings(max_examples=examples(300))
    def test_damaged_golden_records(self, data: st.DataObject) -> None:
        raw = bytearray(
            b"".join(bytes.fromhex(data.draw(st.sampled_from(STORED), label="row")["hex"]) for _ in range(2))
        )
        for _ in range(data.draw(st.integers(0, 4), label="flips")):
            bit = data.draw(st.integers(0, len(raw) * 8 - 1), label="bit")
            raw[bit // 8] ^= 1 << bit % 8
        cut = data.draw(st.integers(0, len(raw)), label="cut")
        decodes_or_raises_the_typed_error(bytes(raw[:cut]))

    @given(st.lists(st.tuples(st.binary(max_size=20), properties), min_size=1, max_size=4), st.data())
    @settings(max_examples=examples(100))
    def test_damaged_inner_batches(
        self, items: list[tuple[bytes, dict[str, str]]], data: st.DataObject
    ) -> None:
        batch = []
        for body, own in items:
            message = Message("t", body)
            message.properties = own
            batch.append(message)
        outer = sample(body=encode_batch(batch), sys_flag=TestInnerBatch.flags)
        raw = bytearray(encode_stored_message(outer))
        bit = data.draw(st.integers(88 * 8, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        decodes_or_raises_the_typed_error(bytes(raw))


def decodes_or_raises_the_typed_error(raw: bytes) -> None:
    for check_crc in (False, True):
        try:
            decode_messages(raw, check_crc=check_crc, max_body_bytes=1 << 20)
        except MessageDecodeError as error:
            assert error.position is not None
            assert 0 <= error.position <= len(raw)


def without_derived_fields(message: MessageExt) -> MessageExt:
    """Return a message without computed fields (sizes, CRC, host bits); IPv6 addresses are normalized."""
    return replace(
        message,
        sys_flag=message.sys_flag & ~(MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6),
        store_size=0,
        body_crc=0,
        version=message.version if len(message.topic.encode()) <= 127 else 2,
        born_host=decode_address(encode_address(*message.born_host)),
        store_host=decode_address(encode_address(*message.store_host)),
    )


class TestEncodedProperties:
    """A decoded message keeps its properties as bytes until the first access."""

    def decoded(self) -> MessageExt:
        return decode_stored_message(encode_stored_message(sample(properties={"TAGS": "a", "shop": "7"})))

    def test_all_accesses_return_the_same_properties(self) -> None:
        message = self.decoded()
        message.properties["more"] = "x"
        assert message.properties == {"TAGS": "a", "shop": "7", "more": "x"}

    def test_properties_can_be_replaced_and_set_before_the_first_access(self) -> None:
        message = self.decoded()
        message.properties = {"shop": "8"}
        assert message.properties == {"shop": "8"}
        message = self.decoded()
        message.tags = "b"
        assert message.properties == {"TAGS": "b", "shop": "7"}

    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, replace, lambda message: pickle.loads(pickle.dumps(message))],
        ids=["copy", "deepcopy", "replace", "pickle"],
    )
    def test_copies_are_whole(self, copied: Callable[[MessageExt], MessageExt]) -> None:
        of_copy = copied(self.decoded())
        assert of_copy == self.decoded()
        assert of_copy.tags == "a"
        assert encode_stored_message(of_copy) == encode_stored_message(self.decoded())

    def test_messages_of_one_response_share_nothing(self) -> None:
        record = encode_stored_message(sample())
        first, second = decode_messages(record + record)
        first.properties["TAGS"] = "b"
        assert second.tags == "a"

    def test_other_attributes_are_missing_as_usual(self) -> None:
        with pytest.raises(AttributeError, match="'MessageExt' object has no attribute 'tag'"):
            _ = self.decoded().tag  # type: ignore[attr-defined]
        assert not hasattr(self.decoded(), "tag")
