"""Index entries from the log."""

from __future__ import annotations

import errno

import pytest

from rmq_broker.store.index.catch_up import MAX_PAUSE_S, IndexCatchUp
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.clock import START_MS
from tests.unit.broker.store.index.parts import RECORD_BYTES, FakeLog


class Entered:
    """Accepts entries; refuses them while `full`."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, bytes, bytes, int, int]] = []
        self.room = 1 << 30
        self.error: OSError | None = None

    def __call__(self, topic: str, unique_key: bytes, keys: bytes, offset: int, time_ms: int) -> bool:
        if self.error is not None:
            raise self.error
        if len(self.rows) >= self.room:
            return False
        self.rows.append((topic, unique_key, keys, offset, time_ms))
        return True

    @property
    def offsets(self) -> list[int]:
        return [row[3] for row in self.rows]


class Timer:
    """Each call takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_messages_with_keys_are_entered_in_the_order_of_the_log() -> None:
    log, entered = FakeLog(), Entered()
    log.append("A", "U1")
    log.append("B")
    log.append("C", "", "k1 k2")
    log.append("D", "U2", "k3")
    catch_up = IndexCatchUp(log, entered)
    assert catch_up.behind_bytes == 400
    assert catch_up.run_slice(60)
    assert entered.rows == [
        ("A", b"U1", b"", 0, START_MS),
        ("C", b"", b"k1 k2", 200, START_MS + 200),
        ("D", b"U2", b"k3", 300, START_MS + 300),
    ]
    assert (catch_up.position, catch_up.behind_bytes) == (400, 0)
    assert catch_up.run_slice(60) and len(entered.rows) == 3


def test_messages_rolled_back_are_left_out() -> None:
    log, entered = FakeLog(), Entered()
    for sys_flag in (
        MessageSysFlag.TRANSACTION_PREPARED,
        MessageSysFlag.TRANSACTION_ROLLBACK,
        MessageSysFlag.TRANSACTION_COMMIT,
        MessageSysFlag.TRANSACTION_ROLLBACK | MessageSysFlag.COMPRESSED,
    ):
        log.append("T", "U", sys_flag=sys_flag)
    assert IndexCatchUp(log, entered).run_slice(60)
    assert entered.offsets == [0, 200]


def test_a_slice_ends_in_time_and_the_next_goes_on() -> None:
    log, entered = FakeLog(), Entered()
    for _ in range(100):
        log.append("T", "U")
    catch_up = IndexCatchUp(log, entered, Timer())
    slices = 1
    while not catch_up.run_slice(2):
        assert len(entered.rows) == 32 * slices  # the clock is read every 16 records
        slices += 1
    assert slices == 4
    assert entered.offsets == list(range(0, 10_000, 100))


def test_it_stops_if_no_file_can_take_entries() -> None:
    log, entered = FakeLog(), Entered()
    for _ in range(10):
        log.append("T", "U")
    catch_up = IndexCatchUp(log, entered)
    entered.room = 4
    assert not catch_up.run_slice(60)
    assert catch_up.position == 400
    entered.error = OSError(errno.ENOSPC, "full")
    with pytest.raises(OSError, match="full"):
        catch_up.run_slice(60)
    assert catch_up.position == 400
    entered.error, entered.room = None, 100
    assert catch_up.run_slice(60)
    assert entered.offsets == list(range(0, 1000, 100))


def test_it_begins_at_the_beginning_of_the_log() -> None:
    log, entered = FakeLog(1000), Entered()
    log.append("T", "U")
    catch_up = IndexCatchUp(log, entered)
    assert catch_up.run_slice(60) and entered.offsets == [1000]
    log.append("T", "U")
    log.append("T", "U")
    log.min_offset = 1200  # the log was cleaned meanwhile
    assert catch_up.run_slice(60) and entered.offsets == [1000, 1200]


def test_the_last_message_of_the_files_is_not_entered_twice() -> None:
    log, entered = FakeLog(), Entered()
    for _ in range(4):
        log.append("T", "U")
    catch_up = IndexCatchUp(log, entered)
    catch_up.start_at(100, entered=100)
    assert catch_up.run_slice(60) and entered.offsets == [200, 300]


def test_damage_at_the_end_of_the_log() -> None:
    log, entered = FakeLog(), Entered()
    log.append("T", "U")
    log.max_offset = 5000
    catch_up = IndexCatchUp(log, entered)
    assert catch_up.run_slice(60)
    assert catch_up.position == 5000


def test_pauses_get_shorter_if_the_log_grows_as_fast() -> None:
    log = FakeLog()
    for _ in range(50_000):
        log.append("T", "U")
    catch_up = IndexCatchUp(log, Entered(), Timer())
    for _ in range(250):
        catch_up.run_slice(1)
    assert catch_up.pause_s == MAX_PAUSE_S
    for _ in range(300):
        catch_up.run_slice(1)
        log.max_offset += 100 * RECORD_BYTES
    assert catch_up.pause_s < MAX_PAUSE_S / 2
    catch_up.start_at(0)
    assert catch_up.pause_s == MAX_PAUSE_S


def test_the_log_is_read_into_memory_in_advance() -> None:
    log = FakeLog()
    log.max_offset = 10 << 20
    catch_up = IndexCatchUp(log, Entered())
    assert catch_up.next_to_warm() == (0, 4 << 20)
    assert catch_up.next_to_warm() == (0, 4 << 20)  # reading it failed
    catch_up.warmed_to = 4 << 20
    assert catch_up.next_to_warm() is None
    catch_up.position = (3 << 20) + 1
    assert catch_up.next_to_warm() == (4 << 20, 4 << 20)
    catch_up.warmed_to = 8 << 20
    catch_up.position = 9 << 20
    assert catch_up.next_to_warm() == (9 << 20, 1 << 20)
    catch_up.warmed_to = 10 << 20
    log.max_offset += 1000  # just appended: it is in memory
    catch_up.position = 10 << 20
    assert catch_up.next_to_warm() is None


def test_pauses_and_slices_depend_on_how_busy_the_loop_is() -> None:
    catch_up = IndexCatchUp(FakeLog(), Entered())
    assert catch_up.slice_s == 0.001
    for _ in range(100):
        catch_up.paused(busy_s=0.000_05)
    assert (catch_up.pause_s, catch_up.slice_s) == (0, 0.005)
    catch_up.paused(busy_s=0.002)
    assert catch_up.slice_s == 0.001
    for _ in range(10):
        catch_up.paused(busy_s=0.002)
    assert catch_up.pause_s == MAX_PAUSE_S


def test_a_few_requests_do_not_keep_pauses_long() -> None:
    catch_up = IndexCatchUp(FakeLog(), Entered())
    for _ in range(10):
        catch_up.paused(busy_s=0.0003)
    assert 0.0003 < catch_up.pause_s < 0.0025
    for _ in range(4):
        catch_up.paused(busy_s=0.000_05)
    assert catch_up.pause_s < 0.0002
