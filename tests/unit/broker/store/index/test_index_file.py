"""One index file."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.index.index_file import IndexFile
from tests.support.clock import START_MS
from tests.support.rows import each_row
from tests.unit.broker.store.index.parts import EVER, check_sound, new_file, places

Model = dict[int, list[int]]


def found(
    file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = EVER, limit: int = 1000
) -> list[int]:
    offsets: list[int] = []
    file.look_up(key_hash, begin_ms, end_ms, limit, offsets)
    return offsets


def filled(
    path: Path, seed: int, entries: int, *, capacity: int = 200
) -> tuple[IndexFile, list[tuple[int, int]]]:
    """A file with random entries, some of them several of one message, some in blocks."""
    chance = random.Random(seed)
    file = IndexFile.create(path, 7, capacity)
    file.begin(100, START_MS)
    put: list[tuple[int, int]] = []
    offset = 100
    while len(put) < entries:
        key_hash = chance.choice([0, 1, 7, 8, 2**31 - 1, chance.randrange(2**31)])
        if chance.random() < 0.2:
            block = [offset + 10 * number for number in range(bool(put), chance.randrange(2, 9))]
            block = block[: entries - len(put)]
            assert file.put_block(key_hash, places(block), START_MS + offset) == len(block)
            put += [(key_hash, one) for one in block]
            offset = block[-1]
        elif chance.random() < 0.2:
            offsets = [offset + 10 * number for number in range(bool(put), chance.randrange(2, 9))]
            offsets = offsets[: entries - len(put)]
            hashes = [chance.choice([key_hash, chance.randrange(2**31)]) for _ in offsets]
            times_ms: list[int] | int = [START_MS + one for one in offsets]
            if chance.random() < 0.5:
                times_ms = START_MS + offsets[0]
            file.put_many(hashes, offsets, times_ms)
            put += zip(hashes, offsets, strict=True)
            offset = offsets[-1]
        else:
            if put:
                offset += chance.choice([0, 10])
            assert file.put(key_hash, offset, START_MS + offset)
            put.append((key_hash, offset))
    return file, put


def check(file: IndexFile, put: list[tuple[int, int]]) -> None:
    for key_hash in {one for one, _ in put} | {5}:
        assert found(file, key_hash) == [offset for one, offset in reversed(put) if one == key_hash]


@pytest.mark.parametrize("seed", range(8))
def test_entries_are_found(tmp_path: Path, seed: int) -> None:
    file, put = filled(tmp_path / "a", seed, 150)
    check(file, put)
    file.flush()
    check_sound(tmp_path / "a", 7, 200)
    again = IndexFile(tmp_path / "a", 7, 200)
    check(again, put)
    assert (again.count, again.slots_used) == (151, file.slots_used)
    assert (again.begin_offset, again.end_offset) == (put[0][1], put[-1][1])
    assert (again.begin_timestamp_ms, again.end_timestamp_ms) == (START_MS, file.end_timestamp_ms)
    again.make_writable()
    assert again.put(5, 10_000, START_MS + 10_000)
    check(again, [*put, (5, 10_000)])


def test_a_file_holds_one_entry_less_than_its_capacity(tmp_path: Path) -> None:
    file = new_file(tmp_path / "a", capacity=20)
    assert [file.put(1, number, START_MS) for number in range(20)] == [True] * 19 + [False]
    assert file.is_full and file.count == 20
    assert found(file, 1) == list(range(18, -1, -1))
    assert file.put_block(1, places([50, 60]), START_MS) == 0
    file.flush()
    check_sound(tmp_path / "a", 7, 20)


def test_a_block_that_does_not_fit_is_put_in_part(tmp_path: Path) -> None:
    file = new_file(tmp_path / "a", capacity=700)
    assert file.put_block(1, places(range(1000)), START_MS) == 699
    assert found(file, 1) == list(range(698, -1, -1))
    file.flush()
    check_sound(tmp_path / "a", 7, 700)


def test_a_time_range_includes_both_ends(tmp_path: Path) -> None:
    file = new_file(tmp_path / "a")
    for second in range(5):
        file.put(1, second, START_MS + second * 1000 + 700)
    # Entries know the seconds since the first.
    times = [START_MS, *(START_MS + second * 1000 for second in range(1, 5))]
    assert found(file, 1, times[1], times[3]) == [3, 2, 1]
    assert found(file, 1, times[1] + 1, times[3] - 1) == [2]
    assert found(file, 1, times[2]) == [4, 3, 2]
    assert found(file, 1, 0, times[2]) == [2, 1, 0]
    assert found(file, 1, limit=2) == [4, 3]


def test_times_out_of_order_and_out_of_bounds(tmp_path: Path) -> None:
    file = new_file(tmp_path / "a")
    file.put(1, 1, START_MS - 5000)
    file.put(1, 2, START_MS + (1 << 45))
    assert [file.entry(number)[2] for number in (1, 2)] == [0, 2**31 - 1]


@pytest.mark.parametrize(
    ("begin", "end", "matches"),
    [(0, 99, False), (0, 100, True), (150, 160, True), (200, 300, True), (201, 300, False), (0, 300, True)],
)
def test_overlapping_times(tmp_path: Path, begin: int, end: int, matches: bool) -> None:
    file = IndexFile.create(tmp_path / "a", 7, 20)
    file.begin(0, 100)
    file.put(1, 0, 200)
    assert file.overlaps(begin, end) is matches


@each_row("counted", [True, False])
@each_row("seed", range(6))
def test_a_kill_after_any_entry(tmp_path: Path, seed: int, counted: bool) -> None:
    """Whichever header was written last: after `cut` the file is as if it had ended there."""
    for entries in range(1, 150, 7):
        for path in tmp_path.iterdir():
            path.unlink()
        file, put = filled(tmp_path / "a", seed, entries)
        if counted:
            file.write_header()
        shutil.copy(tmp_path / "a", tmp_path / "b")  # as it is in memory now
        killed = IndexFile(tmp_path / "b", 7, 200)
        assert killed.count <= file.count and (killed.count == file.count or not counted)
        end = killed.entry(killed.count - 1)[1] if killed.count > 1 else 0
        killed.make_writable()
        killed.cut(end)
        left = [(key_hash, offset) for key_hash, offset in put if offset < end]
        check(killed, left)
        check_sound(tmp_path / "b", 7, 200)
        for key_hash, offset in put[len(left) :]:
            if killed.is_empty and not killed.reserved:
                killed.begin(offset, START_MS)
            assert killed.put(key_hash, offset, START_MS + offset)
        check(killed, put)


@pytest.mark.parametrize("step", ["entry", "slot", "block"])
def test_a_kill_between_two_writes(tmp_path: Path, step: str) -> None:
    file = new_file(tmp_path / "a")
    for number in range(5):
        file.put(7, number, START_MS)
    file.flush()
    data = bytearray((tmp_path / "a").read_bytes())
    entries = 3 if step == "block" else 1
    for number in range(6, 6 + entries):
        struct.pack_into(">iqii", data, 40 + 7 * 4 + number * 20, 14, 5, 0, number - 1)
    if step != "entry":
        struct.pack_into(">i", data, 40, 5 + entries)
    (tmp_path / "a").write_bytes(data)
    killed = IndexFile(tmp_path / "a", 7, 20)
    killed.make_writable()
    killed.cut(1000)
    check_sound(tmp_path / "a", 7, 20)
    assert found(killed, 7) == [4, 3, 2, 1, 0]
    assert found(killed, 14) == []


@pytest.mark.parametrize("cut_at", [0, 100, 101, 500, 3000])
def test_cut_at_any_offset(tmp_path: Path, cut_at: int) -> None:
    file, put = filled(tmp_path / "a", 1, 150)
    file.cut(cut_at)
    left = [(key_hash, offset) for key_hash, offset in put if offset < cut_at]
    check(file, left)
    assert file.count == len(left) + 1
    check_sound(tmp_path / "a", 7, 200)


@pytest.mark.parametrize(
    ("position", "value", "said"),
    [
        (36, struct.pack(">i", 21), "an impossible header"),
        (32, struct.pack(">i", 8), "an impossible header"),
        (32, struct.pack(">i", -1), "an impossible header"),
        (0, struct.pack(">q", -1), "an impossible header"),
        (16, struct.pack(">q", 1 << 40), "an impossible header"),
        (16, struct.pack(">q", 1), "does not fit its entries"),
        (24, struct.pack(">q", 3), "does not fit its entries"),
        (36, struct.pack(">i", 9), "does not fit its entries"),
    ],
)
def test_a_damaged_header(tmp_path: Path, position: int, value: bytes, said: str) -> None:
    file = new_file(tmp_path / "a")
    for number in range(5):
        file.put(number, number, START_MS)
    file.flush()
    data = bytearray((tmp_path / "a").read_bytes())
    data[position : position + len(value)] = value
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(StoreDamaged, match=said):
        IndexFile(tmp_path / "a", 7, 20)


@pytest.mark.parametrize("size", [0, 39, 40 + 28 + 400 - 1, 40 + 28 + 400 + 1])
def test_a_file_of_another_size_is_damaged(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    with pytest.raises(StoreDamaged, match=f"has {size} bytes instead of 468"):
        IndexFile(tmp_path / "a", 7, 20)


def test_a_header_without_a_count_means_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(468))
    file = IndexFile(tmp_path / "a", 7, 20)
    assert file.is_empty and not file.is_full and found(file, 1) == []


@pytest.mark.parametrize("seed", range(10))
def test_damaged_entries_end_a_look_up(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    file, _ = filled(tmp_path / "a", seed, 150)
    file.flush()
    data = bytearray((tmp_path / "a").read_bytes())
    for _ in range(2000):
        data[chance.randrange(40, len(data))] = chance.randrange(256)
    (tmp_path / "a").write_bytes(data)
    for key_hash in range(50):
        assert len(found(file, key_hash)) < 200


def test_a_full_disk_leaves_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        IndexFile.create(tmp_path / "a", 7, 20)
    assert list(tmp_path.iterdir()) == []


def test_mapped_bytes_have_disk_space(tmp_path: Path) -> None:
    """The slots and the next entries have disk blocks, also in a file of holes."""
    path = tmp_path / "a"
    with path.open("wb") as stream:
        stream.truncate(40 + 4 * 50_000 + 20 * 200_000)
    file = IndexFile(path, 50_000, 200_000)
    file.make_writable()
    assert path.stat().st_blocks * 512 >= 40 + 4 * 50_000
    file.begin(0, START_MS)
    assert file.reserved == 65536 + 1
    assert path.stat().st_blocks * 512 >= 40 + 4 * 50_000 + 65536 * 20
    assert file.put_block(1, places(range(100_000)), START_MS) == 65536
    file.extend()
    assert file.reserved == 2 * 65536 + 1


def test_descriptors_are_closed_with_the_file(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        new_file(tmp_path / str(number)).delete()
        with pytest.raises(StoreDamaged):
            IndexFile(_empty(tmp_path / "damaged"), 7, 20)
    file = new_file(tmp_path / "a")
    file.seal()
    file.seal()
    assert found(file, 1) == []
    del file
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path
