"""Timed messages in virtual time: delivered in their second, never early, and none is lost."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.delivery.message_writer import Written
from rmq_broker.store.api import CRC_PROPERTY_BYTES, MAX_PROPERTIES_BYTES, MessageRejected, StoreUnavailable
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import properties_to_string
from tests.support.clock import START_MS
from tests.support.rows import each_row
from tests.support.unreadable_pages import UnreadablePages
from tests.unit.broker.delivery.parts import DeliveryBroker
from tests.unit.broker.timers.parts import TIMER, flushed, killed, opened, with_properties

_DAY_MS = 24 * 3600 * 1000


@pytest.fixture
async def delivery(tmp_path: Path) -> AsyncIterator[DeliveryBroker]:
    made = opened(tmp_path)
    yield made
    made.store.close()


def _at(
    after_ms: int, topic: str = "T", body: bytes = b"x", queue_id: int = 0, **properties: str
) -> InnerMessage:
    deliver_ms = str(START_MS + after_ms)
    return with_properties({"TIMER_DELIVER_MS": deliver_ms, **properties}, topic, body, queue_id)


def _recall(placed: Written, topic: str, key: str) -> InnerMessage:
    assert placed.timer_out_ms is not None
    fields = {"TIMER_DEL_UNIQKEY": f"{topic}+{key}", "TIMER_DELIVER_MS": str(placed.timer_out_ms + 1)}
    return with_properties(fields, topic, b"0")


# --- when they come ---


async def test_a_message_is_delivered_in_its_second(delivery: DeliveryBroker) -> None:
    placed = delivery.writer.put(_at(2500, queue_id=3, TAGS="paid", UNIQ_KEY="K", a="b"))
    assert placed.timer_out_ms == START_MS + 2000
    (waiting,) = delivery.stored(TIMER)
    assert waiting.properties == {
        **{"TIMER_DELIVER_MS": str(START_MS + 2500), "TAGS": "paid", "UNIQ_KEY": "K", "a": "b"},
        **{"TIMER_OUT_MS": str(START_MS + 2000), "REAL_TOPIC": "T", "REAL_QID": "3"},
    }
    await delivery.pass_seconds(2.9)
    assert delivery.stored("T", 3) == []
    assert delivery.timers.counts.waiting == {"T": 1}

    await delivery.pass_seconds(0.1)

    (came,) = delivery.stored("T", 3)
    assert came.properties == {
        **{"TIMER_DELIVER_MS": str(START_MS + 2500), "TAGS": "paid", "UNIQ_KEY": "K", "a": "b"},
        **{"TIMER_OUT_MS": str(START_MS + 2000)},
        **{"TIMER_ENQUEUE_MS": str(START_MS + 2000), "TIMER_DEQUEUE_MS": str(START_MS + 3000)},
    }
    assert (came.body, came.flag, came.born_timestamp) == (b"x", 7, START_MS)
    (entry,) = delivery.store.queue_entries("T", 3, 0, 9) or []
    assert entry[2] == tags_code("paid")
    counts = delivery.timers.counts
    assert (counts.waiting, counts.delivered, counts.lost) == ({"T": 0}, {"T": 1}, 0)
    assert counts.lateness_ms.total == 500


@pytest.mark.parametrize(
    ("properties", "delivered_after_ms"),
    [
        ({"TIMER_DELIVER_MS": str(START_MS + 3000)}, 3000),
        ({"TIMER_DELIVER_MS": str(START_MS + 3001)}, 4000),
        ({"TIMER_DELAY_MS": "1"}, 1000),
        ({"TIMER_DELAY_SEC": "5"}, 5000),
        # The precedence of several properties.
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "2000", "TIMER_DELIVER_MS": "1"}, 5000),
        ({"TIMER_DELAY_MS": "2000", "TIMER_DELIVER_MS": "1"}, 2000),
        # A time in the past is now; so is a message that has waited already.
        ({"TIMER_DELIVER_MS": str(START_MS)}, 0),
        ({"TIMER_DELAY_MS": "-1"}, 0),
        ({"TIMER_DELIVER_MS": str(START_MS + 3000), "TIMER_OUT_MS": "1"}, 0),
        # A delay level takes precedence.
        ({"TIMER_ENQUEUE_MS": "1"}, 0),
    ],
)
async def test_the_delivery_time(
    delivery: DeliveryBroker, properties: dict[str, str], delivered_after_ms: int
) -> None:
    delivery.writer.put(with_properties(properties))
    if delivered_after_ms:
        await delivery.pass_seconds((delivered_after_ms - 1) / 1000)
        assert delivery.stored("T") == []
        await delivery.pass_seconds(0.001)
    assert len(delivery.stored("T")) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_each_message_is_delivered_once_and_never_early(delivery: DeliveryBroker, seed: int) -> None:
    chance = random.Random(seed)
    due_ms: dict[bytes, int] = {}
    for number in range(400):
        body = b"%d" % number
        after_ms = chance.choice([1, 300, 1000, 1500, 7000, chance.randrange(60_000)])
        due_ms[body] = delivery.clock.now_ms + after_ms
        delivery.writer.put(_at(due_ms[body] - START_MS, f"T{number % 3}", body))
        await delivery.pass_seconds(chance.choice([0, 0, 0.001, 0.1, 0.7]))
    while delivery.timers.pending.count:
        await delivery.pass_seconds(0.1)

    stored = [message for number in range(3) for message in delivery.stored(f"T{number}")]
    assert sorted(message.body for message in stored) == sorted(due_ms)
    for message in stored:
        late_ms = message.store_timestamp - due_ms[message.body]
        assert 0 <= late_ms <= 1700, (message.body, late_ms)  # the entries made before each delivery


async def test_messages_of_a_second_are_delivered_in_the_order_of_sending(delivery: DeliveryBroker) -> None:
    bodies = [b"%d" % number for number in range(200)]
    for body in bodies:
        delivery.writer.put(_at(5500, "T", body))
    await delivery.pass_seconds(6)
    assert delivery.bodies("T") == bodies


async def test_many_due_messages_let_other_work_run(delivery: DeliveryBroker) -> None:
    for number in range(200):
        delivery.writer.put(_at(500, "T", b"%d" % number))
    delivery.clock.pass_seconds(1)
    seen: list[int] = []

    async def other() -> None:
        while not seen or seen[-1] < 200:
            seen.append(delivery.store.max_offset("T", 0))
            await asyncio.sleep(0)

    await asyncio.gather(delivery.timed.deliver_due(), other())
    # Two slices: the loop may find the records of the second one read already.
    assert max(after - before for before, after in pairwise(seen)) <= 2 * 64


async def test_a_message_sent_while_its_second_is_delivered(delivery: DeliveryBroker) -> None:
    for number in range(100):
        delivery.writer.put(_at(500, "T", b"%d" % number))
    delivery.clock.pass_seconds(1)

    async def other() -> None:
        seen: list[int] = []
        while not any(seen):
            seen.append(delivery.store.max_offset("T", 0))
            await asyncio.sleep(0)
        # It was announced before, and is entered only now.
        delivery.clock.now_ms -= 600
        delivery.writer.put(_at(500, "T", b"late"))
        delivery.clock.now_ms += 600

    await asyncio.gather(delivery.timed.deliver_due(), other())
    assert delivery.bodies("T")[-1:] != [b"late"]
    await delivery.pass_seconds(1)
    assert delivery.bodies("T")[-1] == b"late"


async def test_the_pause_ends_with_the_second(delivery: DeliveryBroker) -> None:
    delivery.timed.pause_seconds()
    assert delivery.timed.pause_seconds() == 1.0
    delivery.clock.pass_seconds(0.95)
    assert delivery.timed.pause_seconds() == 0.05


async def test_the_pause_is_short_while_messages_come(delivery: DeliveryBroker) -> None:
    delivery.timed.pause_seconds()
    delivery.writer.put(_at(5000, "T"))
    assert delivery.timed.pause_seconds() == 0.1
    await delivery.timed.deliver_due()
    assert delivery.timed.pause_seconds() == 0.1
    assert delivery.timed.pause_seconds() == 1.0


# --- distant delivery times ---


async def test_distant_messages_are_rolled(tmp_path: Path) -> None:
    """Apache's rule, with a window of ten slots: less than a third beyond it, a message waits half of it."""
    delivery = opened(tmp_path, timerRollWindowSlot=10)
    far, farther = _at(12_000, "T", b"far"), _at(25_000, "T", b"farther")
    delivery.writer.put(far)
    delivery.writer.put(farther)
    for second in range(30):
        await delivery.pass_seconds(1)
        expected = [b"far"] * (second >= 11) + [b"farther"] * (second >= 24)
        assert delivery.bodies("T") == expected, second
    rolls = {message.body: message.properties["TIMER_ROLL_TIMES"] for message in delivery.stored("T")}
    assert rolls == {b"far": "1", b"farther": "2"}
    assert delivery.timers.counts.waiting == {"T": 0}
    assert delivery.timers.counts.rolled == 3
    delivery.store.close()


async def test_distant_messages_can_be_recalled(tmp_path: Path) -> None:
    delivery = opened(tmp_path, timerRollWindowSlot=10)
    placed = delivery.writer.put(_at(25_000, "T", b"x", UNIQ_KEY="K"))
    await delivery.pass_seconds(3)
    delivery.writer.put(_recall(placed, "T", "K"))
    for _ in range(30):
        await delivery.pass_seconds(1)
    assert delivery.stored("T") == []
    assert delivery.timers.counts.recalled == 1
    delivery.store.close()


# --- properties up to the limit ---


def _full(delivery: DeliveryBroker, after_ms: int, left_bytes: int) -> InnerMessage:
    """Return a message whose properties have `left_bytes` left below the limit while it waits."""
    home = {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": "T", "REAL_QID": "0"}
    fields = {"TIMER_DELIVER_MS": str(START_MS + after_ms), "a": "x"}
    used = len(properties_to_string(fields | home))
    fields["a"] = "x" * (MAX_PROPERTIES_BYTES - left_bytes - used + 1)
    return with_properties(fields)


@each_row("left_bytes", [0, 1, 21, 22, 40, 61, 62, 81, 200])
@each_row("append_crc", [False, True])
async def test_messages_with_properties_at_the_limit_are_delivered(
    tmp_path: Path, left_bytes: int, append_crc: bool
) -> None:
    delivery = opened(tmp_path, enabledAppendPropCRC=append_crc)
    left_bytes += CRC_PROPERTY_BYTES if append_crc else 0
    delivery.writer.put(_full(delivery, 500, left_bytes))
    (waiting,) = delivery.stored(TIMER)
    await delivery.pass_seconds(1)
    (came,) = delivery.stored("T")
    assert came.properties.items() >= {"a": waiting.properties["a"]}.items()
    assert ("TIMER_DEQUEUE_MS" in came.properties) == ("TIMER_ENQUEUE_MS" in came.properties)
    assert "TIMER_DEQUEUE_MS" in came.properties or left_bytes < 100
    assert delivery.timers.counts.lost == 0
    delivery.store.close()


@pytest.mark.parametrize("left_bytes", [0, 62, 81, 82, 200])
async def test_messages_with_properties_at_the_limit_are_rolled(tmp_path: Path, left_bytes: int) -> None:
    delivery = opened(tmp_path, timerRollWindowSlot=10)
    delivery.writer.put(_full(delivery, 25_000, left_bytes))
    for _ in range(30):
        await delivery.pass_seconds(1)
    (came,) = delivery.stored("T")
    assert came.store_timestamp == START_MS + 25_000
    assert came.properties.get("TIMER_ROLL_TIMES") == ("2" if left_bytes == 200 else None)
    assert (delivery.timers.counts.lost, delivery.timers.counts.rolled) == (0, 2)
    delivery.store.close()


# --- taken back ---


async def test_a_recalled_message_is_not_delivered(delivery: DeliveryBroker) -> None:
    placed = delivery.writer.put(_at(5500, "T", b"1", UNIQ_KEY="K1"))
    delivery.writer.put(_at(5600, "T", b"2", UNIQ_KEY="K2"))
    delivery.writer.put(_at(5600, "U", b"3", UNIQ_KEY="K1"))
    await delivery.pass_seconds(1)
    assert delivery.timers.counts.waiting == {"T": 2, "U": 1}
    delivery.writer.put(_recall(placed, "T", "K1"))
    await delivery.pass_seconds(1)
    assert delivery.timers.counts.waiting == {"T": 1, "U": 1}
    assert delivery.timers.pending.count == 2

    await delivery.pass_seconds(5)

    assert (delivery.bodies("T"), delivery.bodies("U")) == ([b"2"], [b"3"])
    counts = delivery.timers.counts
    assert (counts.recalled, counts.waiting) == (1, {"T": 0, "U": 0})


async def test_recalling_an_unknown_message(delivery: DeliveryBroker) -> None:
    placed = delivery.writer.put(_at(5500, "T", b"1", UNIQ_KEY="K1"))
    delivery.writer.put(_recall(placed, "T", "K2"))
    await delivery.pass_seconds(6)
    assert delivery.bodies("T") == [b"1"]
    assert delivery.timers.counts.waiting == {"T": 0}


# --- failures ---


async def test_delivery_continues_after_a_full_disk(
    delivery: DeliveryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for number in range(3):
        delivery.writer.put(_at(500, "T", b"%d" % number))
    delivery.store.health.refuse("disk", "full")
    await delivery.pass_seconds(1)
    await delivery.pass_seconds(1)
    assert delivery.timers.read_behind_ms() == 1000
    assert delivery.stored("T") == []
    delivery.store.health.allow("disk")
    await delivery.pass_seconds(0.1)
    assert delivery.bodies("T") == [b"0", b"1", b"2"]
    logged = [record.message for record in caplog.records if "timed messages" in record.message]
    assert logged == [
        "delivery of due timed messages stalled, will retry cause=full",
        "delivery of due timed messages resumed",
    ]


async def test_a_failed_read_is_retried(
    delivery: DeliveryBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivery.writer.put(_at(500))
    await delivery.pass_seconds(0.1)
    await flushed(delivery)
    pages = UnreadablePages()
    pages.add(next((tmp_path / "timerlog").iterdir()))
    with pages.installed():
        for _ in range(5):
            await delivery.pass_seconds(1)
    assert len([record for record in caplog.records if "will retry" in record.message]) == 1
    assert delivery.stored("T") == []
    await delivery.pass_seconds(10)
    assert len(delivery.stored("T")) == 1


@pytest.mark.parametrize("digits", [1, 5000])
async def test_properties_of_producers_that_look_like_the_brokers(
    delivery: DeliveryBroker, digits: int
) -> None:
    fields = dict.fromkeys(("TIMER_DELIVER_MS", "TIMER_ROLL_TIMES", "REAL_QID"), "9" * digits)
    delivery.writer.put(with_properties({"TIMER_DELAY_MS": "500", **fields}))
    await delivery.pass_seconds(1)
    assert len(delivery.stored("T")) == 1
    assert 0 <= delivery.timers.counts.lateness_ms.total < 1000


async def test_messages_without_a_valid_original_queue_are_skipped(delivery: DeliveryBroker) -> None:
    for properties in (
        {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": TIMER, "REAL_QID": "0"},
        {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": "T", "REAL_QID": "x"},
        {"TIMER_OUT_MS": "soon", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": str(START_MS)},
    ):
        delivery.writer.put(with_properties(properties, TIMER))
    delivery.writer.put(_at(500))
    await delivery.pass_seconds(1)
    assert delivery.timers.counts.lost == 5
    assert len(delivery.stored("T")) == 1
    assert delivery.timers.entering.behind == 0


async def test_entries_of_pops_journal_are_not_delivered(delivery: DeliveryBroker) -> None:
    """They are in the wheel only for Apache's broker."""
    revive = "rmq_sys_REVIVE_LOG_DefaultCluster"
    fields = {"TIMER_OUT_MS": str(START_MS + 1000), "REAL_TOPIC": revive, "REAL_QID": "0"}
    delivery.writer.put(with_properties(fields, TIMER))
    delivery.writer.put(_at(1500))
    await delivery.pass_seconds(0.5)
    assert delivery.timers.pending.waiting_at(START_MS + 1000) == 2
    await delivery.pass_seconds(2)
    assert len(delivery.stored("T")) == 1
    assert delivery.stored(revive) == []
    assert delivery.timers.counts.waiting == {"T": 0}


# --- settings ---


async def test_settings_that_stop_the_timer(tmp_path: Path) -> None:
    delivery = opened(tmp_path, timerStopEnqueue=True)
    delivery.writer.put(_at(500))
    await delivery.pass_seconds(5)
    assert (delivery.timers.entering.behind, delivery.timers.entering.behind_ms()) == (1, 5000)
    delivery.settings.timer_stop_enqueue = False
    delivery.settings.timer_stop_dequeue = True
    await delivery.pass_seconds(5)
    assert delivery.timers.pending.count == 1
    delivery.settings.timer_stop_dequeue = False
    await delivery.pass_seconds(1)
    assert len(delivery.stored("T")) == 1
    delivery.store.close()


async def test_a_finer_precision(tmp_path: Path) -> None:
    delivery = opened(tmp_path, timerPrecisionMs=100)
    placed = delivery.writer.put(_at(250))
    assert placed.timer_out_ms == START_MS + 200
    await delivery.pass_seconds(0.299)
    assert delivery.stored("T") == []
    await delivery.pass_seconds(0.001)
    assert len(delivery.stored("T")) == 1
    delivery.store.close()


async def test_a_failure_while_a_message_is_entered(delivery: DeliveryBroker) -> None:
    """No slot refers to an entry that was not made: no message of its second is lost."""
    delivery.writer.put(_at(2500, "T", b"before"))
    await delivery.timed.deliver_due()
    delivery.writer.put(_at(2600, "T", b"it"))
    announced = delivery.timers.entering.announced
    (entry,) = announced.entries
    announced.clear()
    announced.announce(entry._replace(size=1 << 40))
    with pytest.raises(struct.error):
        await delivery.timed.deliver_due()
    announced.clear()
    delivery.writer.put(_at(2700, "T", b"after"))
    await delivery.pass_seconds(3)
    assert delivery.bodies("T") == [b"before", b"it", b"after"]


# --- the clock ---


async def test_a_clock_set_back(delivery: DeliveryBroker) -> None:
    delivery.writer.put(_at(500, "T", b"before"))
    await delivery.pass_seconds(3600)
    delivery.clock.now_ms -= 3_600_000
    delivery.writer.put(_at(2500, "T", b"after"))
    await delivery.pass_seconds(2)
    assert delivery.bodies("T") == [b"before"]
    await delivery.pass_seconds(1)
    assert delivery.bodies("T") == [b"before", b"after"]


async def test_a_clock_set_back_during_a_second(delivery: DeliveryBroker) -> None:
    delivery.writer.put(_at(500, "T", b"before"))
    delivery.store.health.refuse("disk", "full")
    await delivery.pass_seconds(60)
    delivery.clock.now_ms -= 59_500
    delivery.store.health.allow("disk")
    delivery.writer.put(_at(900, "T", b"after"))
    await delivery.timed.deliver_due()
    await delivery.pass_seconds(2)
    assert delivery.bodies("T") == [b"before", b"after"]


async def test_a_clock_set_forward(delivery: DeliveryBroker) -> None:
    delivery.writer.put(_at(500))
    await delivery.pass_seconds(40 * 24 * 3600)
    await delivery.pass_seconds(1)
    assert len(delivery.stored("T")) == 1
    delivery.writer.put(_at(40 * _DAY_MS + 2500))
    await delivery.pass_seconds(2)
    assert len(delivery.stored("T")) == 2


# --- in whose memory it is ---


async def test_messages_that_were_not_announced_are_read(delivery: DeliveryBroker) -> None:
    for number in range(100):
        delivery.writer.put(_at(500, "T", b"%d" % number))
        if number % 7 < 4:
            delivery.timers.entering.announced.clear()
    await delivery.pass_seconds(1)
    assert delivery.bodies("T") == [b"%d" % number for number in range(100)]


async def test_a_message_removed_from_the_log(tmp_path: Path) -> None:
    delivery = opened(tmp_path, mappedFileSizeCommitLog=4096)
    for number in range(30):
        delivery.writer.put(_at(500, "T", b"%d" % number))
    delivery.writer.put(_at(60_500, "T"))
    await delivery.pass_seconds(0.1)
    files = delivery.store.commit_log.files
    gone = [m for m in delivery.stored(TIMER) if m.physical_offset < files[1].start]
    delivery.store.commit_log.remove_oldest()
    await delivery.pass_seconds(1)
    assert delivery.timers.counts.lost == len(gone) > 0
    assert len(delivery.stored("T")) == 30 - len(gone)
    assert delivery.timers.counts.waiting == {"T": 1}
    delivery.store.close()


async def test_with_sync_flush_a_slot_ends_after_its_messages_are_flushed(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery.store, "answers_when_durable", True)
    waits = 0

    async def flushed() -> None:
        nonlocal waits
        waits += 1
        assert delivery.timers.pending.waiting_at(START_MS) == 70

    monkeypatch.setattr(delivery.store, "durable", flushed)
    for _ in range(70):
        delivery.writer.put(_at(500))
    await delivery.pass_seconds(1)
    assert waits == 2


# --- refused on the way out ---


async def test_delivery_continues_at_the_message_that_the_store_refused(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        delivery.writer.put(_at(500, "T", b"%d" % number))
    put, taken = delivery.store.put, 0

    def takes_three(*arguments: Any, **named: Any) -> tuple[int, int, int]:
        nonlocal taken
        if taken == 3:
            taken += 1
            raise StoreUnavailable("not now")
        taken += 1
        return put(*arguments, **named)

    monkeypatch.setattr(delivery.store, "put", takes_three)
    await delivery.pass_seconds(1)
    assert delivery.bodies("T") == [b"0", b"1", b"2"]
    await delivery.pass_seconds(0.1)
    assert delivery.bodies("T") == [b"%d" % number for number in range(5)]


async def test_a_message_that_the_store_rejects_is_skipped(
    delivery: DeliveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejects(*arguments: object, **named: object) -> None:
        raise MessageRejected("too long")

    delivery.writer.put(_at(500))
    delivery.writer.put(_at(60_500))
    with monkeypatch.context() as patch:
        patch.setattr(delivery.store, "put", rejects)
        await delivery.pass_seconds(1)
    counts = delivery.timers.counts
    assert (counts.lost, counts.waiting, counts.delivered) == (1, {"T": 1}, {})
    await delivery.pass_seconds(60)
    assert len(delivery.stored("T")) == 1


async def test_a_kill_during_a_slot_redelivers_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = opened(tmp_path)
    for number in range(5):
        delivery.writer.put(_at(500, "T", b"%d" % number))
    await delivery.pass_seconds(0.5)
    await flushed(delivery)
    await delivery.pass_seconds(0.5)
    async with killed(delivery, tmp_path) as again:
        await again.pass_seconds(0)
        assert sorted(set(again.bodies("T"))) == [b"%d" % number for number in range(5)]
        assert len(again.bodies("T")) == 10
