"""The wheel: slots by their time, and the pages of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.api import StoreDamaged
from rmq_broker.timers.scans import slots_in_use
from rmq_broker.timers.wheel import WHEEL_BYTES, Slot, TimerWheel
from tests.support.clock import START_MS

_SPAN_MS = 14 * 24 * 3600 * 1000


@pytest.fixture
def wheel(tmp_path: Path) -> TimerWheel:
    return TimerWheel(tmp_path / "timerwheel", 1000)


def _written(wheel: TimerWheel, path: Path) -> TimerWheel:
    wheel.write(wheel.take_changes())
    again = TimerWheel(path / "timerwheel", wheel.precision_ms)
    again.load()
    return again


def test_a_slot_belongs_to_one_time(wheel: TimerWheel) -> None:
    assert wheel.slot(START_MS) is None
    wheel.put(Slot(START_MS, 52, 104, 2))
    assert wheel.slot(START_MS) == Slot(START_MS, 52, 104, 2)
    assert wheel.slot(START_MS + 1000) is None
    # The same slot of the file, two weeks later and earlier.
    assert wheel.slot(START_MS + _SPAN_MS) is None
    assert wheel.slot(START_MS - _SPAN_MS) is None
    wheel.clear(START_MS)
    assert wheel.slot(START_MS) is None


def test_entries_of_a_slot_are_chained(wheel: TimerWheel) -> None:
    assert [wheel.link(START_MS, position, weight) for position, weight in ((0, 1), (52, 1), (208, -1))] == [
        *(-1, 0, 52)
    ]
    assert wheel.slot(START_MS) == Slot(START_MS, 0, 208, 1)
    # The same slot of the file, two weeks later.
    assert wheel.link(START_MS + _SPAN_MS, 260, 1) == -1
    assert wheel.slot(START_MS) is None


@pytest.mark.parametrize("ahead_s", [0, 1, 127, 128, 129, 5000, 200_000, 14 * 24 * 3600 - 1])
def test_the_next_slot_in_use(wheel: TimerWheel, ahead_s: int) -> None:
    time_ms = START_MS + ahead_s * 1000
    wheel.put(Slot(time_ms, 0, 0, 1))
    assert wheel.next_in_use(START_MS, time_ms) is None
    assert wheel.next_in_use(START_MS, time_ms + 1000) == time_ms
    assert wheel.next_in_use(time_ms + 1000, time_ms + _SPAN_MS) is None


def test_slots_in_use_from_a_time_on(wheel: TimerWheel) -> None:
    slots = [Slot(START_MS + offset * 1000, 0, offset, 1) for offset in (-2, -1, 0, 1, 3600)]
    for slot in slots:
        wheel.put(slot)
    assert sorted(slots_in_use(wheel, START_MS)) == slots[2:]
    assert sorted(slots_in_use(wheel, 0)) == []  # of another cycle


def test_changed_pages_are_written(wheel: TimerWheel, tmp_path: Path) -> None:
    for second in (0, 1, 127, 1000):
        wheel.put(Slot(START_MS + second * 1000, 0, second, 1))
    assert wheel.has_changed
    pages = wheel.take_changes()
    assert len(pages) in (2, 3)  # the first three may stand on two pages
    assert not wheel.has_changed
    wheel.write(pages)

    path = tmp_path / "timerwheel"
    assert path.stat().st_size == WHEEL_BYTES
    again = TimerWheel(path, 1000)
    again.load()
    assert {slot.last for slot in slots_in_use(again, START_MS)} == {0, 1, 127, 1000}
    assert not again.has_changed


def test_cleared_slots_are_cleared_in_the_file(wheel: TimerWheel, tmp_path: Path) -> None:
    wheel.put(Slot(START_MS, 0, 0, 1))
    wheel.put(Slot(START_MS + 1000, 0, 0, 1))
    wheel.write(wheel.take_changes())
    wheel.clear(START_MS)
    assert [slot.time_ms for slot in slots_in_use(_written(wheel, tmp_path), START_MS)] == [START_MS + 1000]
    wheel.clear_all()
    assert list(slots_in_use(_written(wheel, tmp_path), START_MS)) == []


def test_another_precision_has_other_slots(tmp_path: Path) -> None:
    wheel = TimerWheel(tmp_path / "timerwheel", 100)
    wheel.put(Slot(START_MS + 300, 0, 7, 1))
    assert wheel.slot(START_MS + 300) == Slot(START_MS + 300, 0, 7, 1)
    assert wheel.next_in_use(START_MS, START_MS + 1000) == START_MS + 300
    assert wheel.span_ms == _SPAN_MS // 10


def test_a_file_of_another_size_is_refused(wheel: TimerWheel, tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(b"x" * 4096)
    with pytest.raises(StoreDamaged, match="4096 bytes instead of 38707200"):
        wheel.load()
