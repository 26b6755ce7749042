"""Delayed messages in virtual time: delivered in order, never early, and none is lost."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from rmq_broker.store.api import ColdRead, Durability, GetResult, Placed, StoreUnavailable
from rmq_remoting.java_hash import tags_code
from tests.support.clock import START_MS, Clock
from tests.support.cold_log import make_cold, make_warm
from tests.unit.broker.delivery.parts import SCHEDULE, DeliveryBroker, inner


@pytest.fixture
async def delivery(tmp_path: Path) -> AsyncIterator[DeliveryBroker]:
    made = DeliveryBroker(tmp_path)
    yield made
    made.store.close()


def _entries(delivery: DeliveryBroker, queue_id: int) -> list[int]:
    """Return the due times in the entries of a level's queue."""
    found = delivery.store.queue_entries(SCHEDULE, queue_id, 0, 1000)
    assert found is not None
    return [due_ms for _, _, due_ms in found]


# --- storing ---


async def test_a_delayed_message_waits_in_the_queue_of_its_level(delivery: DeliveryBroker) -> None:
    delivery.writer.put(inner("T", b"x", queue_id=3, TAGS="paid", UNIQ_KEY="K"), 3)

    (waiting,) = delivery.stored(SCHEDULE, 2)
    assert waiting.properties == {
        **{"TAGS": "paid", "UNIQ_KEY": "K"},
        **{"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "3"},
    }
    assert (waiting.body, waiting.flag, waiting.born_timestamp) == (b"x", 7, START_MS)
    assert _entries(delivery, 2) == [START_MS + 10_000]
    assert delivery.stored("T", 3) == []
    assert delivery.statistics.topics[SCHEDULE].put_messages == 1


async def test_a_level_above_the_highest_is_the_highest(delivery: DeliveryBroker) -> None:
    delivery.writer.put(inner(), 99)
    (waiting,) = delivery.stored(SCHEDULE, 17)
    assert waiting.properties["DELAY"] == "18"
    assert _entries(delivery, 17) == [START_MS + 7_200_000]


async def test_a_delay_level_takes_precedence_over_a_delivery_time(delivery: DeliveryBroker) -> None:
    delivery.writer.put(inner(TIMER_DELIVER_MS="1", TIMER_DELAY_MS="1", TIMER_DELAY_SEC="1", a="b"), 1)
    assert set(delivery.stored(SCHEDULE)[0].properties) == {"a", "DELAY", "REAL_TOPIC", "REAL_QID"}


# --- delivering ---


async def test_a_message_is_delivered_when_it_is_due_and_not_before(delivery: DeliveryBroker) -> None:
    delivery.writer.put(inner("T", b"x", queue_id=2, reconsume_times=4, TAGS="paid"), 1)

    await delivery.pass_seconds(0.999)
    assert delivery.stored("T", 2) == []
    await delivery.pass_seconds(0.001)

    (message,) = delivery.stored("T", 2)
    assert (message.body, message.flag, message.reconsume_times) == (b"x", 7, 4)
    assert (message.born_timestamp, message.store_timestamp) == (START_MS, START_MS + 1000)
    assert (message.born_host, message.store_host) == (("10.1.2.3", 4567), ("10.0.0.1", 10911))
    # The same properties as with Apache's broker.
    assert message.properties == {"TAGS": "paid", "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert delivery.delayed.delivered == 1
    counted = delivery.statistics.topics["T"]
    assert (counted.put_messages, counted.delayed_messages) == (1, 1)
    assert counted.put_bytes == counted.delayed_bytes == message.store_size
    assert delivery.statistics.groups["SCHEDULE_CONSUMER", SCHEDULE].got_messages == 1
    await delivery.pass_seconds(10)
    assert len(delivery.stored("T", 2)) == 1


async def test_delivered_messages_are_found_by_their_tags(delivery: DeliveryBroker) -> None:
    delivery.writer.put(inner(TAGS="paid"), 1)
    delivery.writer.put(inner(TAGS="paid"))
    await delivery.pass_seconds(1)
    entries = delivery.store.queue_entries("T", 0, 0, 9)
    assert entries is not None
    assert [code for _, _, code in entries] == [tags_code("paid")] * 2


@pytest.mark.parametrize("seed", range(3))
async def test_each_message_is_delivered_once_in_order_and_never_early(
    delivery: DeliveryBroker, seed: int
) -> None:
    """Messages of several levels, sent at random times, while the clock advances by random steps."""
    chance = random.Random(seed)
    due_ms: dict[bytes, int] = {}
    sent: dict[int, list[bytes]] = {level: [] for level in (1, 2, 3)}
    for number in range(300):
        level = chance.choice(list(sent))
        body = b"%d-%d" % (level, number)
        delivery.writer.put(inner(f"T{level}", body), level)
        sent[level].append(body)
        due_ms[body] = delivery.clock.now_ms + delivery.writer.levels.delay_ms(level)
        await delivery.pass_seconds(chance.choice([0, 0, 0.001, 0.05, 0.7]))
    await delivery.pass_seconds(10)

    for level, bodies in sent.items():
        stored = delivery.stored(f"T{level}")
        assert [message.body for message in stored] == bodies
        assert all(message.store_timestamp >= due_ms[message.body] for message in stored)


async def test_many_due_messages_do_not_hold_up_other_levels(delivery: DeliveryBroker) -> None:
    for number in range(200):
        delivery.writer.put(inner("T1", b"%d" % number), 1)
    delivery.writer.put(inner("T2", b"other"), 2)
    delivery.clock.pass_seconds(5)
    others_ran: list[int] = []

    async def other() -> None:
        while len(delivery.stored("T1")) < 200:
            others_ran.append(len(delivery.stored("T1")))
            await asyncio.sleep(0)

    await asyncio.gather(delivery.delayed.deliver_due(), other())

    # A slice at a time, and the other level had its turn after the first slice.
    assert max(after - before for before, after in pairwise(others_ran)) <= 32
    first = delivery.stored("T2")[0].physical_offset
    assert sum(message.physical_offset < first for message in delivery.stored("T1")) <= 32
    assert len(delivery.bodies("T1")) == 200


async def test_the_pause_ends_when_a_message_becomes_due(delivery: DeliveryBroker) -> None:
    await delivery.delayed.deliver_due()
    assert delivery.delayed.pause_seconds() == 0.5
    delivery.writer.put(inner(), 1)
    await delivery.pass_seconds(0.95)
    assert delivery.delayed.pause_seconds() == 0.05
    assert delivery.delayed.overdue_ms() == 0
    delivery.clock.pass_seconds(0.8)
    assert delivery.delayed.overdue_ms() == 750
    await delivery.delayed.deliver_due()
    assert delivery.delayed.overdue_ms() == 0
    assert delivery.delayed.lateness_ms.total == 750


@pytest.mark.parametrize(("levels", "seconds"), [("5s 1s", 0.5), ("1s 0s", 0.1)])
async def test_the_pause_without_messages_fits_the_shortest_delay(
    tmp_path: Path, levels: str, seconds: float
) -> None:
    delivery = DeliveryBroker(tmp_path, messageDelayLevel=levels)
    await delivery.delayed.deliver_due()
    assert delivery.delayed.pause_seconds() == seconds
    delivery.store.close()


async def test_waiting_messages_are_counted_by_level(delivery: DeliveryBroker) -> None:
    for level in (1, 2, 2):
        delivery.writer.put(inner(), level)
    await delivery.pass_seconds(1)
    assert delivery.delayed.waiting() == {1: 0, 2: 2}
    assert delivery.delayed.positions() == {1: (1, 1), 2: (0, 2)}


@pytest.mark.parametrize("checked_before", [True, False])
async def test_a_clock_set_back_delays_no_message_for_hours(
    delivery: DeliveryBroker, checked_before: bool
) -> None:
    for number in range(5):
        delivery.writer.put(inner("T", b"%d" % number), 2)
        delivery.clock.pass_seconds(0.1)
    if checked_before:
        await delivery.delayed.deliver_due()
    delivery.clock.pass_seconds(-3600)
    set_back_at = delivery.clock.now_ms
    await delivery.pass_seconds(0)
    delivery.writer.put(inner("T", b"after"), 2)

    for _ in range(60):
        await delivery.pass_seconds(0.1)

    stored = delivery.stored("T")
    assert [message.body for message in stored] == [b"0", b"1", b"2", b"3", b"4", b"after"]
    waited = [message.store_timestamp - set_back_at for message in stored]
    if checked_before:
        assert waited == [4500, 4600, 4700, 4800, 4900, 5000], "the step is known and makes no difference"
    else:
        assert waited == [5000, 5100, 5200, 5300, 5400, 5400], (
            "the step is not known: the first waits for its full delay"
        )


class _ClockTest:
    """Sends messages with a delay of five seconds and sets the clock; measures the time that passes."""

    def __init__(self, delivery: DeliveryBroker) -> None:
        self._delivery = delivery
        self._passed_ms = 0
        self._sent_ms: list[int] = []
        self._delivered_ms: list[int] = []

    @property
    def waited_ms(self) -> list[int]:
        """How long each delivered message has waited, in the order of delivery."""
        return [delivered - sent for sent, delivered in zip(self._sent_ms, self._delivered_ms, strict=False)]

    def send(self) -> None:
        self._delivery.writer.put(inner("T", b"%d" % len(self._sent_ms)), 2)
        self._sent_ms.append(self._passed_ms)

    async def tenths_pass(self, count: int, *, sending: bool = False) -> None:
        for _ in range(count):
            if sending:
                self.send()
            self._passed_ms += 100
            await self._delivery.pass_seconds(0.1)
            new = len(self._delivery.bodies("T")) - len(self._delivered_ms)
            self._delivered_ms += [self._passed_ms] * new

    def set_clock(self, seconds: float) -> None:
        self._delivery.clock.pass_seconds(seconds)

    async def all_delivered(self) -> None:
        while len(self._delivered_ms) < len(self._sent_ms):
            await self.tenths_pass(1)
        assert self._delivery.bodies("T") == [b"%d" % number for number in range(len(self._sent_ms))]


@pytest.mark.parametrize("back_seconds", [0.1, 3, 4.9, 5, 5.1, 9.9, 3600])
async def test_a_step_back_of_the_clock_does_not_add_to_the_delay(
    delivery: DeliveryBroker, back_seconds: float
) -> None:
    times = _ClockTest(delivery)
    await times.tenths_pass(70, sending=True)
    times.send()  # the clock is not checked between this send and the step
    times.set_clock(-back_seconds)
    times.send()
    await times.tenths_pass(20, sending=True)
    await times.all_delivered()
    assert min(times.waited_ms) == 5000
    assert max(times.waited_ms) <= 5200  # the length of the step is known to a tenth of a second


@pytest.mark.parametrize("back_seconds", [0.1, 3, 4.9, 5, 5.1, 9.9, 3600])
async def test_a_step_during_a_stop_adds_at_most_the_delay(
    delivery: DeliveryBroker, back_seconds: float
) -> None:
    times = _ClockTest(delivery)
    for _ in range(3):
        times.send()
    times.set_clock(-back_seconds)
    await delivery.delayed.deliver_due()
    await times.all_delivered()
    assert times.waited_ms == [5000] * 3


async def test_several_steps_back(delivery: DeliveryBroker) -> None:
    times = _ClockTest(delivery)
    for back_seconds in (2, 4.9, 0.3, 60):
        await times.tenths_pass(10, sending=True)
        times.set_clock(-back_seconds)
    await times.tenths_pass(10, sending=True)
    await times.all_delivered()
    assert min(times.waited_ms) == 5000
    assert max(times.waited_ms) <= 5400


async def test_a_step_back_is_kept_until_all_earlier_messages_are_delivered(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due messages are held up in between by a full disk."""
    times = _ClockTest(delivery)
    await times.tenths_pass(1, sending=True)
    times.set_clock(-3)
    times.send()
    put = delivery.store.put

    def full(*_: object, **__: object) -> tuple[int, int]:
        raise StoreUnavailable("no room for the message on the disk")

    monkeypatch.setattr(delivery.store, "put", full)
    await times.tenths_pass(55)
    monkeypatch.setattr(delivery.store, "put", put)
    await times.all_delivered()
    assert times.waited_ms == [5700, 5600]


async def test_a_step_back_during_a_delivery_counts_once(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = _ClockTest(delivery)
    await times.tenths_pass(1, sending=True)
    await times.tenths_pass(10)
    due_entries = delivery.delayed._due_entries

    async def set_meanwhile(*args: object) -> object:
        times.set_clock(-3600)
        monkeypatch.undo()
        return await due_entries(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(delivery.delayed, "_due_entries", set_meanwhile)
    delivery.delayed._levels[1].head_offset = -1
    await times.all_delivered()
    assert times.waited_ms == [5000]


async def test_a_clock_set_back_and_forward_restarted(delivery: DeliveryBroker) -> None:
    times = _ClockTest(delivery)
    await times.tenths_pass(20, sending=True)
    times.set_clock(-3600)
    await times.tenths_pass(10)
    times.set_clock(3600)
    await times.all_delivered()
    assert set(times.waited_ms) == {5000}


# --- failures ---


async def test_delivery_continues_after_a_full_disk(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        delivery.writer.put(inner("T", b"%d" % number), 1)
    put = delivery.store.put
    budget = [40]

    def full(*args: object, **keywords: object) -> Placed:
        if budget[0] == 0:
            raise StoreUnavailable("no room for the message on the disk")
        budget[0] -= 1
        return put(*args, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(delivery.store, "put", full)
    await delivery.pass_seconds(1)
    await delivery.pass_seconds(1)
    assert len(delivery.bodies("T")) == 40

    budget[0] = 1000
    await delivery.pass_seconds(1)

    assert delivery.bodies("T") == [b"%d" % number for number in range(100)]
    assert delivery.delay_offsets.get(1) == 100


async def test_a_failed_read_is_retried_after_ten_seconds(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery.writer.put(inner(), 1)
    delivery.writer.put(inner("T2"), 2)
    get_now = delivery.store.get_now
    queue_ids: list[int] = []

    def failing(topic: str, queue_id: int, *args: object) -> GetResult | ColdRead:
        queue_ids.append(queue_id)
        if queue_id == 0:
            raise OSError(errno.EIO, "Input/output error")
        return get_now(topic, queue_id, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(delivery.store, "get_now", failing)
    await delivery.pass_seconds(5)
    assert delivery.bodies("T2") == [b"body"]
    await delivery.pass_seconds(5)
    assert queue_ids == [0, 1]
    monkeypatch.undo()
    await delivery.pass_seconds(4.9)
    assert delivery.bodies("T") == []
    # A clock that is set back does not prolong the pause.
    await delivery.pass_seconds(-3600)
    await delivery.pass_seconds(1)
    assert delivery.bodies("T") == [b"body"]


async def test_a_damaged_record_is_skipped(delivery: DeliveryBroker) -> None:
    places = [delivery.writer.put(inner("T", b"body-%d" % number), 1) for number in range(3)]
    log_file = delivery.store.commit_log.files[0]
    position = places[1].physical_offset + log_file.map[places[1].physical_offset :].find(b"body-1")
    log_file.map[position] ^= 1

    await delivery.pass_seconds(1)

    assert delivery.bodies("T") == [b"body-0", b"body-2"]
    assert delivery.delayed.lost == 1


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_QID": "0"},
        {"REAL_TOPIC": "T"},
        {"REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"REAL_TOPIC": "T", "REAL_QID": "x"},
        {"REAL_TOPIC": "T", "REAL_QID": "999999999999"},
        {"REAL_TOPIC": "../T", "REAL_QID": "0"},
        {"REAL_TOPIC": SCHEDULE, "REAL_QID": "0"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
async def test_a_message_without_a_valid_original_queue_is_skipped(
    delivery: DeliveryBroker, properties: dict[str, str]
) -> None:
    odd = inner(SCHEDULE, b"odd")
    odd.set_properties({"DELAY": "1", **properties})
    delivery.writer.put(odd)
    delivery.writer.put(inner("T", b"even"), 1)

    await delivery.pass_seconds(1)

    assert delivery.bodies("T") == [b"even"]
    assert (delivery.delayed.lost, delivery.delay_offsets.get(1)) == (1, 2)


async def test_a_gap_in_the_queue_of_a_level_is_skipped(delivery: DeliveryBroker) -> None:
    """Recovery leaves a gap where messages are missing in the commit log."""
    delivery.writer.put(inner("T", b"before"), 1)
    delivery.store.queues.get_or_create(SCHEDULE, 0).fill_gap(3000)
    delivery.writer.put(inner("T", b"after"), 1)
    await delivery.pass_seconds(1)
    assert delivery.bodies("T") == [b"before", b"after"]
    assert delivery.delayed.waiting() == {1: 0}


async def test_a_message_for_a_deleted_topic_is_delivered(delivery: DeliveryBroker) -> None:
    delivery.writer.put(inner("Gone"), 1)
    delivery.topics.delete(["Gone"])
    await delivery.pass_seconds(1)
    assert delivery.bodies("Gone") == [b"body"]


async def test_messages_that_are_not_in_memory_are_read_in_a_thread(tmp_path: Path) -> None:
    delivery = DeliveryBroker(tmp_path)
    for number in range(10):
        delivery.writer.put(inner("T", b"%d" % number), 1)
    delivery.writer.put(inner("T2", b"x"), 2)

    make_cold(delivery.store)
    await delivery.pass_seconds(5)
    make_warm(delivery.store)

    assert delivery.bodies("T") == [b"%d" % number for number in range(10)]
    assert delivery.bodies("T2") == [b"x"]
    assert delivery.store.reader.statistics.cold_reads > 0
    delivery.store.close()


async def test_with_sync_flush_each_slice_waits_for_the_flush_before(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages do not pile up in memory."""
    for number in range(100):
        delivery.writer.put(inner("T", b"%d" % number), 1)
    waits: list[asyncio.Future[object]] = []

    def flushed() -> asyncio.Future[object]:
        waits.append(asyncio.get_running_loop().create_future())
        return waits[-1]

    monkeypatch.setattr(delivery.store, "answers_when_durable", True)
    monkeypatch.setattr(delivery.store, "durable", flushed)
    delivery.clock.pass_seconds(1)
    task = asyncio.ensure_future(delivery.delayed.deliver_due())
    stored = []
    while not task.done():
        await asyncio.sleep(0)
        if waits and not waits[-1].done():
            stored.append(len(delivery.bodies("T")))
            waits[-1].set_result(Durability.DURABLE)
    await task

    assert stored == [32, 64, 96, 100]


# --- after a restart ---


def _restarted(delivery: DeliveryBroker, folder: Path, **keys: object) -> DeliveryBroker:
    """Restart after a crash of the process, with the same delayOffset.json."""
    offsets = delivery.delay_offsets.encode()
    delivery.store.close()
    again = DeliveryBroker(folder, delivery.clock, **keys)
    again.delay_offsets.decode(offsets)
    again.delayed.correct_offsets()
    return again


async def test_waiting_messages_survive_a_crash(tmp_path: Path) -> None:
    first = DeliveryBroker(tmp_path)
    for number in range(10):
        first.writer.put(inner("T", b"%d" % number), 1)
        first.clock.pass_seconds(0.1)
    await first.pass_seconds(0.45)
    assert len(first.bodies("T")) == 5
    first.delay_offsets.all_is_flushed()

    again = _restarted(first, tmp_path)
    assert again.delay_offsets.get(1) == 5
    await again.pass_seconds(10)

    assert again.bodies("T") == [b"%d" % number for number in range(10)]
    again.store.close()


async def test_a_crash_redelivers_only_messages_after_the_written_offset(tmp_path: Path) -> None:
    first = DeliveryBroker(tmp_path)
    for number in range(10):
        first.writer.put(inner("T", b"%d" % number), 1)
        first.clock.pass_seconds(0.1)
    await first.pass_seconds(0.25)
    assert len(first.bodies("T")) == 3
    first.delay_offsets.all_is_flushed()
    await first.pass_seconds(0.2)
    assert len(first.bodies("T")) == 5

    again = _restarted(first, tmp_path)
    await again.pass_seconds(10)

    bodies = again.bodies("T")
    assert bodies[:5] == [b"0", b"1", b"2", b"3", b"4"]
    assert bodies[5:] == [b"%d" % number for number in range(3, 10)]
    again.store.close()


@pytest.mark.parametrize("known", [1000, -5])
async def test_an_offset_outside_the_queue_is_corrected(tmp_path: Path, known: int) -> None:
    """A crash of the machine may cut off the end of the queue."""
    first = DeliveryBroker(tmp_path)
    first.writer.put(inner("T", b"before"), 1)
    first.delay_offsets.advance(1, known)
    first.delay_offsets.all_is_flushed()

    again = _restarted(first, tmp_path)
    again.writer.put(inner("T", b"after"), 1)
    await again.pass_seconds(10)

    assert again.bodies("T") == ([b"after"] if known > 0 else [b"before", b"after"])
    again.store.close()


async def test_messages_of_removed_levels_are_still_delivered(tmp_path: Path) -> None:
    first = DeliveryBroker(tmp_path)
    first.writer.put(inner("T", b"low"), 2)
    first.writer.put(inner("T", b"high"), 4)
    await first.store.stop()

    again = _restarted(first, tmp_path, messageDelayLevel="7s 8s")
    await again.pass_seconds(29.999)
    assert again.bodies("T") == [b"low"]
    await again.pass_seconds(0.001)

    assert again.bodies("T") == [b"low", b"high"]
    again.store.close()


async def test_rebuilt_queues_know_when_each_message_is_due(tmp_path: Path) -> None:
    """The due time follows from the record and the current levels."""
    first = DeliveryBroker(tmp_path, messageDelayLevel="7s 8s")
    first.writer.put(inner("T", b"x", TAGS="t"), 2)
    first.store.close()
    (tmp_path / "rmq_boot_id").write_text("another boot")
    for path in (tmp_path / "consumequeue").rglob("0*"):
        path.unlink()
    again = DeliveryBroker(tmp_path, Clock(), messageDelayLevel="7s 8s")
    assert _entries(again, 1) == [START_MS + 8000]
    await again.pass_seconds(8)
    assert again.bodies("T") == [b"x"]
    again.store.close()
