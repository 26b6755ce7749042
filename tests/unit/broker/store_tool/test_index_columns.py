"""Index entries in columns are those that are made one by one."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store_tool.index_columns import IndexColumns, IndexItems
from rmq_broker.store_tool.layout import INDEX_ENTRY

SLOTS = 5
BEGIN_MS = 1_700_000_000_000

hashes = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**62)
times = st.integers(BEGIN_MS - 5000, BEGIN_MS + 5000) | st.sampled_from([1, BEGIN_MS + 2**42])
entries = st.lists(st.tuples(hashes, offsets, times), min_size=1, max_size=20)


def items_of(wanted: list[tuple[int, int, int]]) -> IndexItems:
    packed = b"".join(INDEX_ENTRY.pack(hashed, offset, 0, 0) for hashed, offset, _ in wanted)
    stored = [time_ms for _, _, time_ms in wanted]
    return IndexItems(packed, array("q", stored), stored == sorted(stored))


def linked_one_by_one(
    wanted: list[tuple[int, int, int]], slots: list[int], first: int, begin_ms: int
) -> bytes:
    content = b""
    for number, (hashed, offset, time_ms) in enumerate(wanted, first):
        seconds = (time_ms - begin_ms) // 1000 if 0 < begin_ms < time_ms else 0
        content += INDEX_ENTRY.pack(hashed, offset, min(seconds, 2**31 - 1), slots[hashed % SLOTS])
        slots[hashed % SLOTS] = number
    return content


@given(entries, st.booleans(), st.sampled_from([0, BEGIN_MS]))
def test_entries_are_linked(wanted: list[tuple[int, int, int]], in_order: bool, begin_ms: int) -> None:
    if in_order:
        wanted.sort(key=lambda item: item[2])
    slots, expected_slots = array("i", bytes(4 * SLOTS)), [0] * SLOTS
    items = items_of(wanted)
    half = len(wanted) // 2
    content, used = b"", 0
    for begin, end in ((0, half), (half, len(wanted))):
        if begin < end:
            words, newly = items.linked(begin, end, slots, 1 + begin, begin_ms)
            content, used = content + words.tobytes(), used + newly

    assert content == linked_one_by_one(wanted, expected_slots, 1, begin_ms)
    assert list(slots) == expected_slots
    assert used == sum(slot > 0 for slot in expected_slots)
    assert [items.item(index) for index in range(len(items))] == wanted

    columns = IndexColumns(content)
    followed = array("i", bytes(4 * SLOTS))
    assert columns.follow_chains(followed, 1) == used
    assert followed == slots


@given(entries, st.data())
def test_a_difference_is_found(wanted: list[tuple[int, int, int]], data: st.DataObject) -> None:
    items = items_of(wanted)
    seconds = [(time_ms - BEGIN_MS) // 1000 for _, _, time_ms in wanted]
    if not all(-(2**31) <= second < 2**31 for second in seconds):
        assert not items.is_equal(0, len(wanted), bytes(len(items.packed)), BEGIN_MS)
        return
    found = bytearray()
    for (hashed, offset, _), second in zip(wanted, seconds, strict=True):
        found += INDEX_ENTRY.pack(hashed, offset, second, data.draw(st.integers(0, 2**31 - 1)))
    assert items.is_equal(0, len(wanted), bytes(found), BEGIN_MS)

    position = data.draw(st.integers(0, len(found) - 1).filter(lambda at: at % 20 < 16))
    found[position] ^= 1 << data.draw(st.integers(0, 7))

    assert not items.is_equal(0, len(wanted), bytes(found), BEGIN_MS)


def test_slots_are_unchanged_after_a_wrong_chain() -> None:
    content = b"".join(INDEX_ENTRY.pack(hashed, 0, 0, before) for hashed, before in ((1, 0), (6, 1), (2, 1)))
    slots = array("i", [3, 0, 0, 0, 0])

    assert IndexColumns(content).follow_chains(slots, 1) is None
    assert list(slots) == [3, 0, 0, 0, 0]


def test_negative_fields_are_noticed() -> None:
    assert not IndexColumns(INDEX_ENTRY.pack(1, 2, 3, 4)).has_negative
    for fields in ((-1, 2, 3, 4), (1, -2, 3, 4), (1, 2, -3, 4)):
        assert IndexColumns(INDEX_ENTRY.pack(*fields)).has_negative
