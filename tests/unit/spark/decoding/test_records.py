"""Positions of records: found in many chunks at once, they equal those of the loop over one chunk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.decoding import records
from pyspark_rocketmq.decoding.records import find_records, record_starts
from rmq_remoting.message_errors import MessageDecodeError
from tests.support.rows import each_row
from tests.unit.spark.decoding.stored_records import plain_message, record

RECORDS = [record(plain_message(number, b"x" * number)) for number in range(5)]
# Few chunks, and enough of them to be searched side by side.
chunk_lists = st.lists(st.lists(st.sampled_from(RECORDS), max_size=40).map(b"".join), max_size=40)
many_chunks = st.lists(
    st.lists(st.sampled_from(RECORDS), max_size=40).map(b"".join), min_size=24, max_size=60
)


def positions_of(chunks: list[bytes]) -> list[int]:
    """Return the positions by the sizes of the records, one after the other."""
    found, position = [], 0
    data = b"".join(chunks)
    while position < len(data):
        found.append(position)
        position += int.from_bytes(data[position : position + 4], "big")
    return found


@given(st.one_of(chunk_lists, many_chunks))
def test_positions_do_not_depend_on_the_number_of_chunks(chunks: list[bytes]) -> None:
    assert find_records(chunks, decompress=True).starts.tolist() == positions_of(chunks)
    assert record_starts(b"".join(chunks), [sum(map(len, chunks))]) == positions_of(chunks)


@each_row("damaged", [b"\0\0\0\1" + b"x" * 200, b"\x7f\xff\xff\xff" + b"x" * 200, RECORDS[0][:-1], b"x"])
@each_row("place", [0, 11, 29])
def test_errors_name_the_first_impossible_record(damaged: bytes, place: int) -> None:
    chunks = [RECORDS[number % 5] * (1 + number % 7) for number in range(30)]
    before = sum(map(len, chunks[: place + 1]))
    chunks[place] += damaged
    if place < 29:
        chunks[-1] += b"\0\0"  # a later error
    with pytest.raises(MessageDecodeError) as caught:
        find_records(chunks, decompress=True)
    assert caught.value.position == before


def test_records_of_one_size_are_found_without_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop(*_: object) -> list[int]:
        raise AssertionError("the loop is not needed")

    monkeypatch.setattr(records, "record_starts", no_loop)
    equal = RECORDS[3] * 50
    assert find_records([equal, RECORDS[1]], decompress=True).starts.tolist() == positions_of(
        [equal, RECORDS[1]]
    )
    with pytest.raises(AssertionError, match="loop"):
        find_records([RECORDS[3] * 2 + RECORDS[1]], decompress=True)


def test_many_empty_chunks_have_no_record() -> None:
    assert len(find_records([b""] * 50, decompress=True)) == 0
