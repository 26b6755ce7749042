"""The index files of a store: rolling over, look-ups over several, cleaning."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmq_broker.store.index import index_file
from rmq_broker.store.index.index_files import IndexFiles
from rmq_broker.store.index.keys import index_hash
from tests.support.clock import START_MS
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.unit.broker.store.index.parts import EVER, check_sound, places

HASH = index_hash("T", "key")


class Clock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> float:
        return (self.now_ms + 0.5) / 1000


def new_files(root: Path, clock: Clock | None = None) -> IndexFiles:
    return IndexFiles(root / "index", 7, 20, Clock() if clock is None else clock)


def put(files: IndexFiles, offset: int, hashes: list[int] | None = None, time_ms: int | None = None) -> None:
    if files.needs_file:
        files.prepare()
    assert files.put(
        [HASH] if hashes is None else hashes, offset, START_MS + offset if time_ms is None else time_ms
    )


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "index").iterdir())


def look_up(files: IndexFiles, begin_ms: int = 0, end_ms: int = EVER, limit: int = 1000) -> list[int]:
    return files.look_up("T", "key", limit, begin_ms, end_ms).offsets


def test_files_follow_each_other(tmp_path: Path) -> None:
    clock = Clock()
    files = new_files(tmp_path, clock)
    for number in range(50):
        clock.now_ms += 10
        put(files, number * 100)
    assert [file.count for file in files.files] == [20, 20, 13]
    assert look_up(files) == [number * 100 for number in range(49, -1, -1)]
    assert files.entry_count == 50 and files.size_bytes == 3 * 468
    assert files.end_offset == 4900
    answer = files.look_up("T", "key", 5, 0, EVER)
    assert (answer.last_offset, answer.last_timestamp_ms) == (4900, START_MS + 4900)
    assert [file.begin_offset for file in files.files] == [0, 1900, 3800]
    files.flush_all()
    files.close()
    assert len(names(tmp_path)) == 3
    for name in names(tmp_path):
        check_sound(tmp_path / "index" / name, 7, 20)
    again = new_files(tmp_path)
    again.load()
    assert look_up(again) == [number * 100 for number in range(49, -1, -1)]


@pytest.mark.parametrize("after", [3, 25])
def test_messages_stored_while_the_clock_was_ahead_are_found(tmp_path: Path, after: int) -> None:
    """By the time in their unique key; the messages after them are in the same file, or in the next one."""
    files = new_files(tmp_path)
    ahead_ms = START_MS + 5 * 3_600_000
    put(files, 0, time_ms=START_MS)
    put(files, 100, [index_hash("T", "other")], time_ms=ahead_ms)
    for number in range(after):
        put(files, 200 + number, time_ms=START_MS + 1000 + number)

    def found(from_ms: int) -> list[int]:
        return files.look_up("T", "other", 10, from_ms, EVER).offsets

    assert found(ahead_ms - 1000) == [100]
    assert found(ahead_ms + 1000) == []
    files.flush_all()
    files.close()
    files = new_files(tmp_path)
    files.load()
    assert found(ahead_ms - 1000) == [100]


def test_names_are_local_times_in_ascending_order(tmp_path: Path) -> None:
    """Apache's broker opens files in the order of their names; clocks stop and are set back."""
    clock = Clock()
    files = new_files(tmp_path, clock)
    for number in range(19 * 4):
        if number == 40:
            clock.now_ms -= 60_000
        put(files, number)
    made = [file.path.name for file in files.files]
    assert made == sorted(set(made)) == [name for name in names(tmp_path) if name.isdigit()]
    assert len(made) == 4 and {len(name) for name in made} == {17}
    assert int(made[3]) == int(made[0]) + 3


def test_an_empty_file_begins_where_the_one_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = new_files(tmp_path)
    for number in range(19):
        put(files, number)
    put(files, 19, [1, 2])
    assert files.files[1].begin_timestamp_ms == START_MS + 19
    files.cut(19)
    assert [file.count for file in files.files] == [20]
    files.prepare()

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        files.put([HASH], 19, START_MS + 19)
    taken = files.files[-1]
    assert taken.is_empty
    assert (taken.begin_offset, taken.end_offset) == (18, 18)
    assert (taken.begin_timestamp_ms, taken.end_timestamp_ms) == (START_MS + 18, START_MS + 18)
    assert files.end_offset == 18


def test_keys_of_a_message_over_two_files(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    for number in range(18):
        put(files, number)
    put(files, 18, [HASH, HASH, HASH])
    assert [file.count for file in files.files] == [20, 3]
    assert look_up(files)[:4] == [18, 18, 18, 17]
    files.cut(18)
    assert [file.count for file in files.files] == [19]
    assert look_up(files) == list(range(17, -1, -1))


def test_all_keys_of_a_message_or_none(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    files.prepare()
    for number in range(17):
        assert files.put([HASH], number, START_MS + number)
    assert not files.put([HASH, HASH, HASH], 17, START_MS + 17)
    assert files.files[0].count == 18 and files.end_offset == 16
    assert look_up(files) == list(range(16, -1, -1))
    files.prepare()
    assert files.put([HASH, HASH, HASH], 17, START_MS + 17)
    assert look_up(files)[:4] == [17, 17, 17, 16]


def test_a_block_over_several_files(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    files.prepare()
    offsets = list(range(100, 150))
    added = 0
    while added < 50:
        added += files.put_block(HASH, places(offsets[added:]), START_MS)
        files.prepare()
    assert look_up(files) == offsets[::-1]
    assert [file.count for file in files.files] == [20, 20, 13]


def test_time_ranges_over_files(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    for second in range(60):
        put(files, second, time_ms=START_MS + second * 1000)
    for begin in range(-1, 61, 3):
        for end in range(begin, 61, 7):
            expected = [second for second in range(59, -1, -1) if begin <= second <= end]
            assert look_up(files, START_MS + begin * 1000, START_MS + end * 1000) == expected
    assert look_up(files, limit=25) == list(range(59, 34, -1))
    assert look_up(files, limit=0) == []


def test_files_of_deleted_messages_are_removed_except_the_last(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    for number in range(50):
        put(files, number * 100)
    kept = files.files[0]
    assert files.delete_before(1800) == 0
    assert files.delete_before(1801) == 1
    assert look_up(files)[-1] == 1900
    assert kept.entry(1)[1] == 0  # readable while the object exists
    assert files.delete_before(1 << 40) == 1
    assert [file.count for file in files.files] == [13]
    assert len([name for name in names(tmp_path) if name.isdigit()]) == 1
    files.delete_all()
    assert files.look_up("T", "key", 5, 0, EVER).offsets == []
    assert files.end_offset == -1


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    put(files, 1)
    files.flush_all()
    files.close()
    for name in ("notes.txt", "123", "2026112100354509x"):
        (tmp_path / "index" / name).write_text("x")
    files = new_files(tmp_path)
    files.load()
    assert len(files.files) == 1
    assert len(names(tmp_path)) == 4


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_damaged_file_is_removed_with_all_later_files(
    tmp_path: Path, broken: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = new_files(tmp_path)
    for number in range(50):
        put(files, number)
    files.flush_all()
    files.close()
    made = names(tmp_path)
    (tmp_path / "index" / made[broken]).write_bytes(b"\xff" * 468)
    files = new_files(tmp_path)
    files.load()
    assert names(tmp_path) == made[:broken]
    assert look_up(files) == list(range(19 * broken - 1, -1, -1))
    assert "has an impossible header" in caplog.text


def test_after_a_crash_of_the_machine_flushed_full_files_stay(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    for number in range(50):
        put(files, number * 100)
    assert files.flushed_timestamp_ms == 0 and files.needs_flush
    files.flush_full()
    assert files.flushed_timestamp_ms == START_MS + 37 * 100 and not files.needs_flush
    files.seal_full()
    assert [file.is_writable for file in files.files] == [False, False, True]
    files.close()
    made = names(tmp_path)
    files = new_files(tmp_path)
    files.load(flushed_ms=START_MS + 1800, drop_newer=True)
    assert names(tmp_path) == made[:1]
    assert files.flushed_timestamp_ms == START_MS + 1800


@pytest.mark.parametrize("set_back_ms", [0, 1, 100_000])
def test_files_that_end_no_later_than_a_flushed_one_are_not_flushed_for_that(
    tmp_path: Path, set_back_ms: int
) -> None:
    """The clock was set back, or a file was filled in a millisecond."""
    files = new_files(tmp_path)
    for number in range(50):
        if number == 19:
            files.flush_full()
        put(files, number * 100, time_ms=START_MS if number < 19 else START_MS - set_back_ms)
    flushed_ms = files.flushed_timestamp_ms
    assert flushed_ms == START_MS
    files.close()
    made = names(tmp_path)
    files = new_files(tmp_path)
    files.load(flushed_ms=flushed_ms, drop_newer=True)
    assert names(tmp_path) == made[:1]


def test_a_removal_that_fails_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_files(tmp_path)
    for number in range(90):
        put(files, number)
    files.close()
    made = names(tmp_path)
    plain_unlink, removed = Path.unlink, []

    def fail_after_two(path: Path, missing_ok: bool = False) -> None:
        if path.name.isdecimal():
            removed.append(path.name)
            if len(removed) > 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain_unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail_after_two)
    with pytest.raises(OSError, match="Input/output"):
        new_files(tmp_path).load(flushed_ms=0, drop_newer=True)
    assert names(tmp_path) == made[:-2]


def test_after_a_crash_of_the_process_full_files_are_flushed_again(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    for number in range(50):
        put(files, number * 100)
    files.close()
    files = new_files(tmp_path)
    files.load(flushed_ms=START_MS + 1800)
    assert len(files.files) == 3 and files.needs_flush
    assert files.flushed_timestamp_ms == START_MS + 1800
    files.flush_full()
    assert files.flushed_timestamp_ms == START_MS + 3700


def test_the_checkpoint_counts_full_files_only(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    put(files, 1)
    files.flush_all()
    assert files.flushed_timestamp_ms == 0


def test_a_failed_flush_is_not_tried_again(tmp_path: Path) -> None:
    flushed: set[int] = set()

    def fail_at_second(call: FlushCall) -> bool:
        flushed.add(call.inode)
        if len(flushed) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return False

    with intercepted_flushes(fail_at_second):
        files = new_files(tmp_path)
        for number in range(50):
            put(files, number)
        with pytest.raises(OSError, match="Input/output"):
            files.flush_full()
    files.drop_unflushed("it failed")
    assert [file.end_offset for file in files.files] == [18]


def test_a_spare_file_is_not_used_after_a_restart(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    put(files, 1)
    files.prepare()
    assert [name for name in names(tmp_path) if not name.isdigit()] == ["rmq_next"]
    again = new_files(tmp_path)  # after a kill
    again.load()
    assert len(names(tmp_path)) == 1
    files.prepare()
    files.close()
    assert len(names(tmp_path)) == 1


# --- putting that may not wait for the disk ---


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexFiles:
    """Files that get space for 8 entries at a time."""
    monkeypatch.setattr(index_file, "ENTRY_STEP", 8)
    return IndexFiles(tmp_path / "index", 7, 20, Clock(), may_wait=False)


def prepare(files: IndexFiles) -> None:
    """Do what the thread does."""
    while files.needs_file:
        files.prepare()


def test_putting_makes_no_call_on_the_disk(
    tmp_path: Path, impatient: IndexFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a call on the disk")

    for number in range(50):
        prepare(impatient)
        with monkeypatch.context() as patch:
            for call in ("posix_fallocate", "rename", "unlink", "open", "fsync"):
                patch.setattr(os, call, fail)
            assert impatient.put([HASH], number * 100, START_MS + number)
    prepare(impatient)
    assert look_up(impatient) == [number * 100 for number in range(49, -1, -1)]
    impatient.flush_all()
    impatient.close()
    assert len(names(tmp_path)) == 3
    for name in names(tmp_path):
        check_sound(tmp_path / "index" / name, 7, 20)


def test_a_message_without_space_is_not_put(impatient: IndexFiles) -> None:
    assert not impatient.put([HASH], 0, START_MS)
    prepare(impatient)
    for number in range(8):
        assert impatient.put([HASH], number, START_MS)
    assert impatient.needs_file
    assert not impatient.put([HASH], 8, START_MS)
    prepare(impatient)
    assert impatient.put([HASH], 8, START_MS)
    assert look_up(impatient) == list(range(8, -1, -1))


def test_more_space_is_asked_for_before_it_is_needed(impatient: IndexFiles) -> None:
    prepare(impatient)
    impatient.put([HASH], 0, START_MS)
    prepare(impatient)  # names the file, and creates the next one
    impatient.grew = False
    for number in range(1, 4):
        impatient.put([HASH], number, START_MS)
    assert not impatient.grew
    impatient.put([HASH], 4, START_MS)
    assert impatient.grew and impatient.needs_file


def test_a_file_without_a_name_is_dropped_by_a_restart(tmp_path: Path, impatient: IndexFiles) -> None:
    """Its entries are rebuilt from the log."""
    prepare(impatient)
    assert impatient.put([HASH], 0, START_MS)
    assert impatient.has_unnamed and names(tmp_path) == ["rmq_next"]
    again = new_files(tmp_path)
    again.load()
    assert again.files == [] and names(tmp_path) == []


def test_a_file_gets_its_name_before_it_is_flushed_at_a_stop(tmp_path: Path, impatient: IndexFiles) -> None:
    prepare(impatient)
    assert impatient.put([HASH], 0, START_MS)
    impatient.flush_all()
    impatient.close()
    (name,) = names(tmp_path)
    assert name.isdigit()
