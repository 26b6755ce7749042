"""A graceful stop during the delivery of a slot: its delivered messages are not redelivered."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.delivery.message_writer import Written
from rmq_broker.store.api import StoreUnavailable
from tests.support.clock import START_MS
from tests.support.unreadable_pages import UnreadablePages
from tests.unit.broker.delivery.parts import DeliveryBroker
from tests.unit.broker.timers.parts import TIMER, flushed, killed, opened, with_properties

_COUNT = 1000
_ALL = list(range(_COUNT))


def _put(delivery: DeliveryBroker, number: int, after_ms: int = 500) -> Written:
    fields = {"TIMER_DELIVER_MS": str(START_MS + after_ms), "UNIQ_KEY": str(number)}
    return delivery.writer.put(with_properties(fields, body=b"%d" % number))


def _recall(delivery: DeliveryBroker, number: int) -> None:
    fields = {"TIMER_DEL_UNIQKEY": f"T+{number}", "TIMER_DELIVER_MS": str(START_MS + 1)}
    delivery.writer.put(with_properties(fields))


async def _interrupted(folder: Path, *recalled: int) -> DeliveryBroker:
    """Cancel the delivery of a thousand messages after more than five hundred of them."""
    delivery = opened(folder)
    for number in range(_COUNT):
        _put(delivery, number)
    for number in recalled:
        _recall(delivery, number)
    await delivery.pass_seconds(0.2)
    await flushed(delivery)
    delivery.clock.pass_seconds(0.8)
    await _cancelled(delivery, 512)
    return delivery


async def _cancelled(delivery: DeliveryBroker, came: int) -> None:
    delivering = asyncio.ensure_future(delivery.timed.deliver_due())
    while delivery.store.max_offset("T", 0) < came:  # noqa: ASYNC110
        await asyncio.sleep(0)
    delivering.cancel()
    with suppress(asyncio.CancelledError):
        await delivering


async def _stop(delivery: DeliveryBroker) -> None:
    await delivery.store.stop()
    await delivery.timers.close(all_is_flushed=True)


async def _deliver_all(delivery: DeliveryBroker, seconds: int = 5) -> list[int]:
    for _ in range(seconds):
        await delivery.pass_seconds(1)
    counts = delivery.timers.counts
    assert (delivery.timers.pending.count, counts.waiting, counts.lost) == (0, {"T": 0}, 0)
    return [int(body) for body in delivery.bodies("T")]


async def test_the_remaining_messages_are_delivered_after_the_start(tmp_path: Path) -> None:
    delivery = await _interrupted(tmp_path)
    came = len(delivery.stored("T"))
    assert 512 <= came < _COUNT
    await _stop(delivery)
    async with killed(delivery, tmp_path) as again:
        assert again.timers.pending.count == _COUNT - came
        assert again.timers.counts.waiting == {"T": _COUNT - came}
        assert await _deliver_all(again) == _ALL


async def test_recalled_messages_stay_recalled(tmp_path: Path) -> None:
    delivery = await _interrupted(tmp_path, 3, 600, 999)
    await _stop(delivery)
    async with killed(delivery, tmp_path) as again:
        assert sum(again.timers.counts.waiting.values()) == again.timers.pending.count
        _put(again, _COUNT, 60_000)  # the counters are kept while messages wait
        for _ in range(5):
            await again.pass_seconds(1)
        assert again.timers.counts.waiting == {"T": 1}
        assert await _deliver_all(again, 60) == [
            number for number in range(_COUNT + 1) if number not in (3, 600, 999)
        ]


async def test_a_completely_delivered_slot_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = opened(tmp_path)
    for number in range(10):
        _put(delivery, number)
    _recall(delivery, 7)
    await delivery.pass_seconds(0.2)

    async def never() -> None:
        await asyncio.sleep(3600)

    delivery.clock.pass_seconds(0.8)
    monkeypatch.setattr(delivery.store, "answers_when_durable", True)
    monkeypatch.setattr(delivery.store, "durable", never)
    await _cancelled(delivery, 9)
    monkeypatch.undo()
    await _stop(delivery)
    async with killed(delivery, tmp_path) as again:
        assert again.timers.pending.count == 0
        assert await _deliver_all(again) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


async def test_a_stop_while_a_slot_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop waits for the reading thread, since only one thread may read the timer log."""
    delivery = await _interrupted(tmp_path)
    reading = delivery.timed._reading
    assert reading is not None
    await _stop(delivery)
    assert reading.done()
    async with killed(delivery, tmp_path) as again:
        assert await _deliver_all(again) == _ALL


async def test_a_slot_stays_as_it_is_when_the_store_refuses_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = opened(tmp_path)
    for number in range(200):
        _put(delivery, number)
    put, came = delivery.store.put, 0

    def full_at_a_hundred(*arguments: Any, **named: Any) -> tuple[int, int, int]:
        nonlocal came
        if came == 100:
            raise StoreUnavailable("full")
        came += 1
        return put(*arguments, **named)

    monkeypatch.setattr(delivery.store, "put", full_at_a_hundred)
    await delivery.pass_seconds(1)
    end = delivery.timers.pending.timer_log.end
    await _stop(delivery)
    assert delivery.timers.pending.timer_log.end == end
    async with killed(delivery, tmp_path) as again:
        assert again.timers.pending.count == 200
        for _ in range(3):
            await again.pass_seconds(1)
        assert sorted({int(body) for body in again.bodies("T")}) == list(range(200))


async def test_a_slot_stays_as_it_is_when_its_entries_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = await _interrupted(tmp_path)
    pages = UnreadablePages()
    for path in (tmp_path / "timerlog").iterdir():
        pages.add(path)
    with pages.installed():
        await _stop(delivery)
    assert pages.met
    assert "some timed messages will be redelivered" in caplog.text
    async with killed(delivery, tmp_path) as again:
        for _ in range(3):
            await again.pass_seconds(1)
        assert {int(body) for body in again.bodies("T")} == set(_ALL)


@pytest.mark.parametrize("wheel_is_lost", [False, True])
@pytest.mark.parametrize("now_ms", [1000, 500])
async def test_a_kill_after_the_next_start(tmp_path: Path, now_ms: int, wheel_is_lost: bool) -> None:
    delivery = await _interrupted(tmp_path, 3, 700)
    await _stop(delivery)
    async with killed(delivery, tmp_path, timerPrecisionMs=now_ms) as second:
        await flushed(second)
        second.store.close()
        if wheel_is_lost:
            (tmp_path / "timerwheel").unlink()
        async with killed(second, tmp_path, timerPrecisionMs=now_ms) as third:
            assert await _deliver_all(third) == [number for number in _ALL if number not in (3, 700)]


@pytest.mark.parametrize("wheel_is_lost", [False, True])
@pytest.mark.parametrize("file", ["timerwheel", "timercheck"])
async def test_a_kill_while_the_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, wheel_is_lost: bool
) -> None:
    """Some messages are redelivered then. None is lost, and no recalled message is delivered."""
    delivery = await _interrupted(tmp_path, 3, 700)
    # These entries are of newer messages than those of the moved messages, which are behind them.
    for number in range(_COUNT, _COUNT + 3):
        _put(delivery, number, 3500)
    await delivery.timers.entering.enter_new(START_MS + 1000)
    open_file = os.open

    def killed_here(path: str | Path, *arguments: Any, **named: Any) -> int:
        if Path(path).name == file:
            raise OSError("killed")
        return open_file(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", killed_here)
        with pytest.raises(OSError, match="killed"):
            await _stop(delivery)
    if wheel_is_lost:
        (tmp_path / "timerwheel").unlink()
    async with killed(delivery, tmp_path) as again:
        assert again.timers.entering.behind == 0
        came = await _deliver_all(again)
        assert set(came) == {*_ALL, 1000, 1001, 1002} - {3, 700}
        assert [number for number in came if number >= _COUNT] == [1000, 1001, 1002]


async def test_a_file_is_deleted_with_the_newest_of_its_messages(tmp_path: Path) -> None:
    """The file's last entry may be of an older message."""
    delivery = opened(tmp_path)
    for number in range(50):
        _put(delivery, number, 3_600_000)
    await delivery.pass_seconds(0.1)
    pending = delivery.timers.pending
    first = pending.timer_log.unit(0)
    assert first is not None
    while pending.timer_log.end < 2 * 4096:
        pending.timer_log.place()
        pending.timer_log.append(*first)
    await flushed(delivery)
    newest = delivery.stored(TIMER)[-1].physical_offset
    assert pending.remove_old_files(lambda: newest) == 0
    assert pending.remove_old_files(lambda: newest + 1) == 2
    delivery.store.close()
