"""The timer log: entries in files, in memory and on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.api import StoreDamaged
from rmq_broker.timers.log_unit import UNIT_BYTES, Unit
from rmq_broker.timers.scans import scan_log
from rmq_broker.timers.timer_log import TimerLog
from tests.support.clock import START_MS

# Of ten entries and a blank.
_FILE_BYTES = 10 * UNIT_BYTES + 20


@pytest.fixture
def timer_log(tmp_path: Path) -> TimerLog:
    return TimerLog(tmp_path / "timerlog", _FILE_BYTES)


def _unit(number: int, previous: int = -1) -> Unit:
    return Unit(previous, 1, START_MS, START_MS + number * 1000, number * 300, 300, -7, number % 3 == 0)


def _append(timer_log: TimerLog, number: int) -> int:
    position = timer_log.place()
    timer_log.append(*_unit(number))
    return position


def _filled(timer_log: TimerLog, count: int) -> list[int]:
    return [_append(timer_log, number) for number in range(count)]


def _write(timer_log: TimerLog) -> None:
    begin, data = timer_log.unwritten()
    timer_log.write(begin, data)
    timer_log.was_written(begin + len(data))


def _reopened(tmp_path: Path) -> TimerLog:
    again = TimerLog(tmp_path / "timerlog", _FILE_BYTES)
    again.load()
    return again


@pytest.mark.parametrize("writes_after", [0, 5, 10, 15])
def test_entries_are_read_back(timer_log: TimerLog, writes_after: int) -> None:
    positions = _filled(timer_log, writes_after)
    _write(timer_log)
    positions += [_append(timer_log, number) for number in range(writes_after, 25)]
    assert positions[9:11] == [9 * UNIT_BYTES, _FILE_BYTES]
    for number in reversed(range(25)):
        assert timer_log.unit(positions[number]) == _unit(number)
    _write(timer_log)
    for number in (24, 3, 10, 9, 0):
        assert timer_log.unit(positions[number]) == _unit(number)
    timer_log.close()


def test_files_are_apaches_with_padding_at_their_end(timer_log: TimerLog, tmp_path: Path) -> None:
    _filled(timer_log, 11)
    _write(timer_log)
    names = sorted(path.name for path in (tmp_path / "timerlog").iterdir())
    assert names == ["0" * 20, f"{_FILE_BYTES:020d}"]
    content = (tmp_path / "timerlog" / names[0]).read_bytes()
    assert len(content) == _FILE_BYTES
    # Size, no previous entry, the magic of the padding.
    assert content[-20:-4].hex() == "00000014" + "00" * 8 + "cbd43194"


def test_the_last_entry_of_a_file_is_found_from_the_end_of_its_padding(timer_log: TimerLog) -> None:
    _filled(timer_log, 10)
    assert timer_log.place() == _FILE_BYTES
    assert timer_log.last_before(_FILE_BYTES) == _unit(9)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_a_scan_finds_all_entries_and_their_end(timer_log: TimerLog, tmp_path: Path, count: int) -> None:
    positions = _filled(timer_log, count)
    end = timer_log.end
    _write(timer_log)
    again = _reopened(tmp_path)
    assert list(scan_log(again, again.begin)) == [(positions[n], _unit(n)) for n in range(count)]
    if count > 4:
        assert [position for position, _ in scan_log(again, positions[4])] == positions[4:]
    again.cut(end)
    assert again.end == end
    assert again.last_before(end) == (_unit(count - 1) if count else None)
    assert _append(again, 99) == _append(timer_log, 99)


def test_the_file_is_zero_behind_a_cut(timer_log: TimerLog, tmp_path: Path) -> None:
    positions = _filled(timer_log, 25)
    _write(timer_log)
    again = _reopened(tmp_path)
    again.cut(positions[5])
    assert sorted(path.name for path in (tmp_path / "timerlog").iterdir()) == ["0" * 20]
    assert len(list(scan_log(_reopened(tmp_path), 0))) == 5
    assert _append(again, 5) == positions[5]


def test_a_scan_ends_at_an_invalid_entry(timer_log: TimerLog, tmp_path: Path) -> None:
    positions = _filled(timer_log, 8)
    _write(timer_log)
    path = tmp_path / "timerlog" / ("0" * 20)
    content = bytearray(path.read_bytes())
    content[positions[6] + 3] = 51  # its size
    path.write_bytes(content)
    assert [position for position, _ in scan_log(_reopened(tmp_path), 0)] == positions[:6]


def test_a_repeated_write_is_idempotent(timer_log: TimerLog, tmp_path: Path) -> None:
    positions = _filled(timer_log, 15)
    begin, data = timer_log.unwritten()
    timer_log.write(begin, data)
    _append(timer_log, 15)
    timer_log.write(begin, data)
    timer_log.was_written(begin + len(data))
    assert timer_log.unwritten()[0] == positions[14] + UNIT_BYTES
    _write(timer_log)
    assert len(list(scan_log(_reopened(tmp_path), 0))) == 16


def test_old_files_are_deleted_one_by_one(timer_log: TimerLog, tmp_path: Path) -> None:
    positions = _filled(timer_log, 25)
    assert timer_log.oldest_file_end() is None
    _write(timer_log)
    assert timer_log.oldest_file_end() == _FILE_BYTES
    assert timer_log.last_of_oldest_file() == _unit(9)
    timer_log.remove_oldest_file()
    assert timer_log.begin == _FILE_BYTES
    assert timer_log.unit(positions[3]) is None
    assert timer_log.unit(positions[12]) == _unit(12)
    again = _reopened(tmp_path)
    assert again.begin == _FILE_BYTES
    assert [position for position, _ in scan_log(again, again.begin)] == positions[10:]


def test_the_log_continues_in_files_of_another_size(timer_log: TimerLog, tmp_path: Path) -> None:
    positions = _filled(timer_log, 25)
    _write(timer_log)
    again = TimerLog(tmp_path / "timerlog", 4096)
    again.load()
    again.cut(timer_log.end)
    assert [position for position, _ in scan_log(again, 0)] == positions
    assert _append(again, 25) == _append(timer_log, 25)


def test_files_of_different_sizes_are_not_opened(timer_log: TimerLog, tmp_path: Path) -> None:
    _filled(timer_log, 25)
    _write(timer_log)
    with (tmp_path / "timerlog" / f"{_FILE_BYTES:020d}").open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(StoreDamaged, match="has 541 bytes, the file before it 540"):
        _reopened(tmp_path)


def test_the_log_begins_behind_a_missing_file(timer_log: TimerLog, tmp_path: Path) -> None:
    positions = _filled(timer_log, 25)
    _write(timer_log)
    (tmp_path / "timerlog" / f"{_FILE_BYTES:020d}").unlink()
    again = _reopened(tmp_path)
    assert again.begin == 2 * _FILE_BYTES
    assert [position for position, _ in scan_log(again, again.begin)] == positions[20:]
