"""timerPrecisionMs changed between two runs: each waiting message is delivered once, and none early."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clock import START_MS
from tests.unit.broker.delivery.parts import DeliveryBroker
from tests.unit.broker.timers.parts import flushed, opened, with_properties

_HOUR_MS = 3600 * 1000
# What a wheel of 100 ms spans: times so far apart have one slot.
_FINE_SPAN_MS = 7 * 24 * 3600 * 2 * 100


async def _reopened(delivery: DeliveryBroker, folder: Path, **keys: object) -> DeliveryBroker:
    await flushed(delivery)
    delivery.store.close()
    return opened(folder, delivery.clock, **keys)


def _put(delivery: DeliveryBroker, number: int, after_ms: int) -> int:
    fields = {"TIMER_DELIVER_MS": str(START_MS + after_ms), "UNIQ_KEY": str(number)}
    out_ms = delivery.writer.put(with_properties(fields, body=b"%d" % number)).timer_out_ms
    assert out_ms is not None
    return out_ms


def _recall(delivery: DeliveryBroker, number: int, out_ms: int) -> None:
    fields = {"TIMER_DEL_UNIQKEY": f"T+{number}", "TIMER_DELIVER_MS": str(out_ms + 1)}
    delivery.writer.put(with_properties(fields))


async def _deliver_all(delivery: DeliveryBroker, until_ms: int, step_seconds: float) -> list[int]:
    """Return the numbers of the delivered messages, after checking that none was early."""
    while delivery.clock.now_ms < until_ms:
        await delivery.pass_seconds(step_seconds)
    came = delivery.stored("T")
    for message in came:
        assert message.store_timestamp >= int(message.properties["TIMER_DELIVER_MS"])
    assert delivery.timers.pending.count == 0
    assert set(delivery.timers.counts.waiting.values()) == {0}
    assert delivery.timers.counts.lost == 0
    return sorted(int(message.body) for message in came)


async def test_a_finer_precision_with_a_smaller_range(tmp_path: Path) -> None:
    """Both a message and its recall may be due beyond the range of the new wheel."""
    delivery = opened(tmp_path, timerPrecisionMs=1000)
    farthest_ms = 47 * _HOUR_MS + 950
    times = [farthest_ms, farthest_ms - _FINE_SPAN_MS, 30 * _HOUR_MS + 950, 20 * _HOUR_MS + 950, 60_950]
    places = [_put(delivery, number, after_ms) for number, after_ms in enumerate([*times, 40 * _HOUR_MS])]
    _recall(delivery, 5, places[5])
    await delivery.pass_seconds(0.1)
    again = await _reopened(delivery, tmp_path, timerPrecisionMs=100)
    assert again.timers.pending.count == 5
    for after_ms in sorted(times):
        # Just before the message is due.
        await again.pass_seconds((START_MS + after_ms - again.clock.now_ms - 150) / 1000)
        for _ in range(2):
            await again.pass_seconds(0.1)
    assert await _deliver_all(again, START_MS + farthest_ms + 2000, 0.1) == [0, 1, 2, 3, 4]
    assert again.timers.counts.recalled == 1
    again.store.close()


@pytest.mark.parametrize("precision_ms", [100, 500, 5000])
async def test_overdue_messages_are_delivered_at_once(tmp_path: Path, precision_ms: int) -> None:
    delivery = opened(tmp_path, timerPrecisionMs=1000)
    for number in range(20):
        _put(delivery, number, 1000 + number * 6 * _HOUR_MS // 2)
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    delivery.store.close()
    delivery.clock.pass_seconds(40 * 24 * 3600)
    again = opened(tmp_path, delivery.clock, timerPrecisionMs=precision_ms)
    assert await _deliver_all(again, again.clock.now_ms + 2 * precision_ms, precision_ms / 1000) == [
        *range(20)
    ]
    again.store.close()


@pytest.mark.parametrize("precisions_ms", [(500, 1000), (500, 250, 500), (5000, 1000, 100)])
async def test_several_changes_of_the_precision(tmp_path: Path, precisions_ms: tuple[int, ...]) -> None:
    delivery = opened(tmp_path, timerPrecisionMs=1000)
    for number in range(40):
        out_ms = _put(delivery, number, 30_000 + 777 * number)
        if number % 8 == 0:
            _recall(delivery, number, out_ms)
    await delivery.pass_seconds(0.1)
    for precision_ms in precisions_ms:
        delivery = await _reopened(delivery, tmp_path, timerPrecisionMs=precision_ms)
        assert delivery.timers.pending.count == 35
    expected = [number for number in range(40) if number % 8]
    assert await _deliver_all(delivery, START_MS + 75_000, 0.5) == expected
    assert delivery.timers.counts.recalled == 5
    delivery.store.close()


@pytest.mark.parametrize("precision_ms", [100, 1000])
@pytest.mark.parametrize("wheel_is_lost", [False, True])
async def test_a_rolled_message_is_not_entered_twice(
    tmp_path: Path, wheel_is_lost: bool, precision_ms: int
) -> None:
    """Its first entry is still in the timer log, with a time in the future."""
    delivery = opened(tmp_path, timerPrecisionMs=1000)
    _put(delivery, 0, 47 * _HOUR_MS)
    await delivery.pass_seconds(0.1)
    delivery = await _reopened(delivery, tmp_path, timerPrecisionMs=100)
    while not delivery.timers.counts.rolled:
        await delivery.pass_seconds(600)
    await delivery.pass_seconds(0.2)
    await flushed(delivery)
    delivery.store.close()
    if wheel_is_lost:
        (tmp_path / "timerwheel").unlink()
    delivery = opened(tmp_path, delivery.clock, timerPrecisionMs=precision_ms)
    assert delivery.timers.pending.count == 1
    assert await _deliver_all(delivery, START_MS + 48 * _HOUR_MS, 600) == [0]
    delivery.store.close()


async def test_a_wheel_lost_after_a_change(tmp_path: Path) -> None:
    delivery = opened(tmp_path, timerPrecisionMs=1000)
    for number in range(40):
        out_ms = _put(delivery, number, 30_000 + 777 * number)
        if number % 8 == 0:
            _recall(delivery, number, out_ms)
    await delivery.pass_seconds(0.1)
    delivery = await _reopened(delivery, tmp_path, timerPrecisionMs=500)
    await flushed(delivery)
    delivery.store.close()
    (tmp_path / "timerwheel").unlink()
    again = opened(tmp_path, delivery.clock, timerPrecisionMs=500)
    expected = [number for number in range(40) if number % 8]
    assert await _deliver_all(again, START_MS + 75_000, 0.5) == expected
    again.store.close()


async def test_a_kill_before_the_new_checkpoint_enters_no_message_twice(tmp_path: Path) -> None:
    """Then the timer log ends with entries of old messages, behind those of newer ones."""
    delivery = opened(tmp_path, timerPrecisionMs=1000)
    for number in range(10):
        _put(delivery, number, 30_000 + 777 * number)
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    _put(delivery, 10, 30_000)
    await delivery.pass_seconds(0.1)
    pending = delivery.timers.pending
    pending.timer_log.write(*pending.timer_log.unwritten())
    delivery.store.close()
    fine = opened(tmp_path, delivery.clock, timerPrecisionMs=500)
    pending = fine.timers.pending
    pending.timer_log.write(*pending.timer_log.unwritten())
    fine.store.close()
    again = opened(tmp_path, delivery.clock, timerPrecisionMs=500)
    assert (again.timers.pending.count, again.timers.entering.behind) == (11, 0)
    assert await _deliver_all(again, START_MS + 50_000, 0.5) == [*range(11)]
    again.store.close()
