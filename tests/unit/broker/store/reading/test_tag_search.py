"""Searching packed entries for tags, compared with unpacking each entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from rmq_broker.store.reading.tag_search import find_tagged, has_hashes_alone

# Some codes whose bytes also occur in offsets and sizes, and across two entries.
codes = st.sampled_from([0, 1, -1, 256, 1 << 24, 98765432, -98765432, (1 << 31) - 1, -(1 << 31)])
entries = st.tuples(
    st.sampled_from([0, 1, 256, 98765432, 1 << 40]), st.sampled_from([1, 256, 1 << 24]), codes
)


def packed(*given_entries: tuple[int, int, int]) -> bytes:
    return b"".join(QUEUE_ENTRY.pack(*entry) for entry in given_entries)


wanted_codes = st.frozensets(codes, min_size=1, max_size=4) | st.frozensets(codes, min_size=1).map(
    lambda some: some | frozenset(range(2, 20))
)


@given(st.lists(entries, max_size=40), wanted_codes, st.integers(1, 50))
def test_a_search_equals_a_look_at_each_entry(
    given_entries: list[tuple[int, int, int]], wanted: frozenset[int], most: int
) -> None:
    raw = packed(*given_entries)
    assert has_hashes_alone(raw)
    expected = [index for index, entry in enumerate(given_entries) if entry[2] in wanted]
    assert find_tagged(raw, wanted, most) == expected[:most]


@pytest.mark.parametrize("address", [-(1 << 63), -(1 << 63) + 4096, -(1 << 62)])
def test_an_extension_address_is_not_a_hash(address: int) -> None:
    assert not has_hashes_alone(packed((0, 100, 7), (100, 100, address), (200, 100, -7)))
