"""Recovery of the waiting messages after a crash, from files that are not in step with each other."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_broker.timers.checkpoint import TimerCheckpoint
from rmq_broker.timers.log_unit import UNIT_BYTES
from tests.support.clock import START_MS
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.rows import each_row
from tests.unit.broker.delivery.parts import DeliveryBroker, inner
from tests.unit.broker.timers.parts import TIMER, flushed, killed, opened, with_properties

_TIMER_FILES = ("timerwheel", "timerlog", "config/timercheck")


def _put(delivery: DeliveryBroker, numbers: range, after_ms: int = 5500) -> None:
    for number in numbers:
        deliver_ms = START_MS + after_ms + 1000 * (number % 3)
        delivery.writer.put(inner("T", b"%d" % number, TIMER_DELIVER_MS=str(deliver_ms)))


async def _all_delivered(delivery: DeliveryBroker, count: int) -> None:
    """Check that each message is delivered once, in its second."""
    for second in range(40):
        await delivery.pass_seconds(0.5)
        for message in delivery.stored("T"):
            deliver_ms = int(message.properties["TIMER_DELIVER_MS"])
            assert message.store_timestamp >= deliver_ms, second
    assert sorted(int(body) for body in delivery.bodies("T")) == list(range(count))
    assert delivery.timers.counts.lost == 0
    assert delivery.timers.pending.count == 0


def _copy(folder: Path, to: Path) -> None:
    """Copy the timer's files."""
    for name in _TIMER_FILES:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).is_dir():
            shutil.copytree(folder / name, to / name, dirs_exist_ok=True)
        elif (folder / name).exists():
            shutil.copyfile(folder / name, to / name)


def _drop(folder: Path, *names: str) -> None:
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


# --- killed ---


async def test_no_file_was_written_yet(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(200))
    await delivery.pass_seconds(1)
    async with killed(delivery, tmp_path) as again:
        assert again.timers.entering.behind == 200
        await _all_delivered(again, 200)


async def test_some_entries_were_written(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(200))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    _put(delivery, range(200, 300))
    await delivery.pass_seconds(0.1)
    async with killed(delivery, tmp_path) as again:
        assert (again.timers.entering.behind, again.timers.pending.count) == (100, 200)
        await _all_delivered(again, 300)


@each_row("there_bytes", range(0, UNIT_BYTES, 4))
async def test_an_entry_cut_off_by_a_power_cut(tmp_path: Path, there_bytes: int) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(3))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    _put(delivery, range(3, 4))
    await delivery.pass_seconds(0.1)
    timer_log = delivery.timers.pending.timer_log
    begin, data = timer_log.unwritten()
    timer_log.write(begin, data[:there_bytes])
    async with killed(delivery, tmp_path) as again:
        await _all_delivered(again, 4)


async def test_waiting_messages_are_recounted_by_topic(tmp_path: Path) -> None:
    """`timermetrics` is of another moment."""
    delivery = opened(tmp_path)
    _put(delivery, range(6), after_ms=500)
    for topic, number in (("U", 1), ("U", 2), ("rmq_sys_REVIVE_LOG_DefaultCluster", 3)):
        fields = {"TIMER_OUT_MS": str(START_MS + 60_000), "REAL_TOPIC": topic, "REAL_QID": "0"}
        delivery.writer.put(with_properties(fields, TIMER, b"%d" % number))
    await delivery.pass_seconds(2)
    await flushed(delivery)
    await delivery.timers.counts_file.close()
    count = '{"count":77,"timeStamp":1}'
    path = tmp_path / "config" / "timermetrics"
    path.write_text(f'{{"timingCount":{{"T":{count},"V":{count}}}}}')
    async with killed(delivery, tmp_path) as again:
        assert again.timers.pending.count == 5
        assert again.timers.counts.waiting == {"T": 2, "U": 2, "V": 0}


async def test_after_a_graceful_stop_no_message_is_redelivered(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(100))
    await delivery.pass_seconds(6.5)
    came = len(delivery.stored("T"))
    assert 0 < came < 100
    await delivery.store.stop()
    await delivery.timers.close(all_is_flushed=True)
    async with killed(delivery, tmp_path) as again:
        assert again.timers.pending.count == 100 - came
        assert again.timers.counts.waiting == {"T": 100 - came}
        await _all_delivered(again, 100)


async def test_messages_delivered_since_the_checkpoint_are_redelivered(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(99))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    await delivery.pass_seconds(6)  # the first third
    async with killed(delivery, tmp_path) as again:
        for _ in range(10):
            await again.pass_seconds(1)
        assert len(again.stored("T")) == 99 + 33
        assert len(set(again.bodies("T"))) == 99


@pytest.mark.parametrize("is_written", ["timerlog", "wheel"])
async def test_a_kill_between_the_files_after_a_step_back_of_the_clock(
    tmp_path: Path, is_written: str
) -> None:
    """The checkpoint is of a time that the clock has not reached again."""
    delivery = opened(tmp_path)
    delivery.clock.set_by(5 * 3600)
    delivery.writer.put(inner("T", b"", TIMER_DELIVER_MS=str(delivery.clock.now_ms + 500)))
    await delivery.pass_seconds(0.1)
    await delivery.pass_seconds(60)
    await flushed(delivery)
    assert delivery.bodies("T") == [b""]
    delivery.clock.set_by(-5 * 3600 - 60)
    _put(delivery, range(20))
    await delivery.pass_seconds(0.1)
    pending = delivery.timers.pending
    begin, data = pending.timer_log.unwritten()
    pending.timer_log.write(begin, data)
    if is_written == "wheel":
        pending.wheel.write(pending.wheel.take_changes())
    async with killed(delivery, tmp_path) as again:
        for _ in range(20):
            await again.pass_seconds(0.5)
        assert sorted(int(body) for body in again.bodies("T")[1:]) == list(range(20))


# --- one file ahead of another, as a power cut may leave them ---


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[Path]:
    folder = tmp_path / "old"
    folder.mkdir()
    yield folder


async def _two_states(folder: Path, old: Path) -> DeliveryBroker:
    """Make a directory with 150 messages, and copy its files with 100 messages to `old`."""
    delivery = opened(folder)
    _put(delivery, range(100))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    _copy(folder, old)
    _put(delivery, range(100, 150))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    return delivery


@pytest.mark.parametrize(
    "behind",
    [
        ("config/timercheck",),
        ("timerwheel", "config/timercheck"),
        ("timerwheel", "timerlog", "config/timercheck"),
        ("timerlog",),  # not by our order of flushing
        ("timerlog", "config/timercheck"),
    ],
    ids=lambda names: "+".join(name.rpartition("/")[2] for name in names),
)
async def test_files_that_are_behind(tmp_path: Path, old: Path, behind: tuple[str, ...]) -> None:
    folder = tmp_path / "store"
    delivery = await _two_states(folder, old)
    _drop(folder, *behind)
    for name in behind:
        if (old / name).is_dir():
            shutil.copytree(old / name, folder / name)
        else:
            shutil.copyfile(old / name, folder / name)
    async with killed(delivery, folder) as again:
        await _all_delivered(again, 150)


@each_row(
    "missing",
    [
        ("config/timercheck",),
        ("timerlog",),
        ("timerwheel",),
        ("timerlog", "timerwheel"),
        ("timerwheel", "config/timercheck"),
        _TIMER_FILES,
    ],
    ids=lambda names: "+".join(name.rpartition("/")[2] for name in names),
)
@each_row("down_seconds", [0, 3 * 24 * 3600])
async def test_files_that_are_missing(
    tmp_path: Path, old: Path, missing: tuple[str, ...], down_seconds: int
) -> None:
    folder = tmp_path / "store"
    delivery = await _two_states(folder, old)
    _drop(folder, *missing)
    delivery.clock.pass_seconds(down_seconds)
    async with killed(delivery, folder) as again:
        await _all_delivered(again, 150)


async def test_damage_in_the_timer_log(tmp_path: Path, old: Path) -> None:
    folder = tmp_path / "store"
    delivery = await _two_states(folder, old)
    shutil.copyfile(old / "config/timercheck", folder / "config/timercheck")
    # Entries 79 and 80 of the second file, behind the checkpoint.
    path = sorted((folder / "timerlog").iterdir())[1]
    content = bytearray(path.read_bytes())
    content[52 * 50 : 52 * 52] = b"\xff" * 104
    path.write_bytes(content)
    async with killed(delivery, folder) as again:
        assert again.timers.entering.behind > 0
        await _all_delivered(again, 150)


async def test_a_commit_log_that_lost_its_end(tmp_path: Path) -> None:
    """Entries of lost messages do not count for messages stored at their offsets later."""
    delivery = opened(tmp_path)
    _put(delivery, range(30))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    cut_at = delivery.stored(TIMER)[20].physical_offset
    delivery.store.close()
    path = tmp_path / "commitlog" / ("0" * 20)
    content = bytearray(path.read_bytes())
    content[cut_at:] = bytes(len(content) - cut_at)
    path.write_bytes(content)

    again = opened(tmp_path, delivery.clock)
    assert again.store.max_offset(TIMER, 0) == 20
    assert again.timers.pending.count == 20
    # Due at another time, at the same physical offset.
    _put(again, range(20, 30), after_ms=60_000)
    for _ in range(30):
        await again.pass_seconds(1)
    assert len(again.stored("T")) == 20
    for _ in range(60):
        await again.pass_seconds(1)
    assert sorted(int(body) for body in again.bodies("T")) == list(range(30))
    again.store.close()


@pytest.mark.parametrize(("before_ms", "now_ms"), [(1000, 500), (500, 1000), (100, 1000), (1000, 300)])
async def test_another_precision(tmp_path: Path, before_ms: int, now_ms: int) -> None:
    delivery = opened(tmp_path, timerPrecisionMs=before_ms)
    for number in range(90):
        deliver_ms = START_MS + 5000 + 77 * number
        delivery.writer.put(inner("T", b"%d" % number, TIMER_DELIVER_MS=str(deliver_ms)))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    async with killed(delivery, tmp_path, timerPrecisionMs=now_ms) as again:
        assert again.timers.pending.count == 90
        await flushed(again)
        async with killed(again, tmp_path, timerPrecisionMs=now_ms) as last:
            assert last.timers.pending.count == 90
            await _all_delivered(last, 90)


async def test_a_broker_that_was_down_for_weeks(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(50))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    delivery.clock.pass_seconds(20 * 24 * 3600)
    async with killed(delivery, tmp_path) as again:
        again.writer.put(inner("T", b"50", TIMER_DELIVER_MS=str(again.clock.now_ms + 2 * 24 * 3600 * 1000)))
        await again.pass_seconds(1)
        assert len(again.stored("T")) == 50
        await again.pass_seconds(2 * 24 * 3600)
        assert len(again.stored("T")) == 51


# --- the order of flushing ---


async def test_the_files_are_written_only_after_the_log_is_flushed(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(5))
    await delivery.pass_seconds(0.1)
    await delivery.timers.flush()
    assert not (tmp_path / "config" / "timercheck").exists()
    assert not (tmp_path / "timerlog").exists()
    _put(delivery, range(5, 10))
    await delivery.pass_seconds(0.1)
    delivery.store.commit_log.flush()
    await delivery.timers.flush()
    # The state of the first flush.
    assert TimerCheckpoint.load(tmp_path / "config" / "timercheck").queue_offset == 5
    await delivery.timers.flush()
    assert TimerCheckpoint.load(tmp_path / "config" / "timercheck").queue_offset == 10
    delivery.store.close()


@pytest.mark.parametrize("what", ["timerlog", "timerwheel"])
async def test_a_failed_write_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(100))
    await delivery.pass_seconds(0.1)
    delivery.store.commit_log.flush()

    def fails(call: FlushCall) -> bool:
        if what in call.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return False

    with intercepted_flushes(fails):
        for _ in range(3):
            await delivery.timers.flush()
    assert len([record for record in caplog.records if "timer files not written" in record.message]) == 1
    await flushed(delivery)
    async with killed(delivery, tmp_path) as again:
        assert again.timers.pending.count == 100
        await _all_delivered(again, 100)


async def test_unchanged_state_is_not_written(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    _put(delivery, range(5))
    await delivery.pass_seconds(8)
    await flushed(delivery)
    path = tmp_path / "config" / "timercheck"
    written = path.stat().st_mtime_ns
    await delivery.pass_seconds(100)
    await delivery.timers.flush()
    assert path.stat().st_mtime_ns == written
    delivery.store.close()


async def test_pops_check_points_hold_back_apaches_read_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = opened(tmp_path)
    monkeypatch.setattr(delivery.timers, "_held_from_ms", lambda: START_MS + 2000)
    _put(delivery, range(5), after_ms=500)
    await delivery.pass_seconds(5)
    await flushed(delivery)
    checkpoint = TimerCheckpoint.load(tmp_path / "config" / "timercheck")
    assert (checkpoint.apaches_read_ms, checkpoint.read_ms) == (START_MS + 2000, START_MS + 5000)
    delivery.store.close()


# --- old files ---


async def test_files_are_deleted_with_their_messages(tmp_path: Path) -> None:
    delivery = opened(tmp_path, mappedFileSizeCommitLog=8192)
    _put(delivery, range(200))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    await delivery.timers.remove_old_files()
    names: Callable[[], int] = lambda: len(list((tmp_path / "timerlog").iterdir()))  # noqa: E731
    assert names() == 3
    while len(delivery.store.commit_log.files) > 1:
        delivery.store.commit_log.remove_oldest()
    await delivery.timers.remove_old_files()
    assert names() == 1
    delivery.store.close()
