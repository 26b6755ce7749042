"""A directory of Apache RocketMQ 5.3.3 with waiting timed messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.timers.log_unit import Unit
from rmq_broker.timers.scans import scan_log, slots_in_use
from rmq_broker.timers.timer_log import TimerLog
from rmq_broker.timers.wheel import Slot
from rmq_remoting.java_hash import string_hash_code
from tests.support.clock import Clock
from tests.support.golden import json_file
from tests.support.golden_store import SETTINGS, unpack
from tests.unit.broker.timers.parts import opened

_FACTS = json_file("store/clean.timer.json")
_READ_MS = _FACTS["checkpoint"]["lastReadTimeMs"]
_KEYS = {**SETTINGS, "brokerName": "broker-a"}


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    return unpack("clean", tmp_path)


def _units() -> list[tuple[int, Unit]]:
    return [
        (
            row["pos"],
            Unit(
                row["prevPos"],
                row["magic"],
                row["currWriteTime"],
                row["currWriteTime"] + row["delayedTime"],
                row["offsetPy"],
                row["sizePy"],
                row["hashCodeOfRealTopic"],
            ),
        )
        for row in _FACTS["log"]
    ]


async def test_apaches_timer_log_is_read(root: Path) -> None:
    timer_log = TimerLog(root / "timerlog", 52_000)
    timer_log.load()
    assert list(scan_log(timer_log, 0)) == _units()
    assert _units()[0][1].topic_hash == string_hash_code("TopicTimer")
    assert timer_log.unit(208) == dict(_units())[208]
    timer_log.close()


async def test_apaches_waiting_messages_are_loaded(root: Path) -> None:
    delivery = opened(root, Clock(_READ_MS), **_KEYS)
    pending = delivery.timers.pending
    slots = {slot.time_ms: slot for slot in slots_in_use(pending.wheel, _READ_MS)}
    assert slots == {
        row["timeMs"]: Slot(row["timeMs"], row["firstPos"], row["lastPos"], row["num"])
        for row in _FACTS["slots"]
        if row["timeMs"] >= _READ_MS
    }
    assert (pending.read_ms, pending.queue_offset) == (
        _READ_MS,
        _FACTS["checkpoint"]["lastTimerQueueOffset"],
    )
    assert pending.checkpoint.handed_over_ms == _READ_MS
    assert delivery.timers.counts.waiting["TopicTimer"] == 2
    assert delivery.timers.entering.behind == 0
    delivery.store.close()


@pytest.mark.parametrize("without", [(), ("timerwheel",), ("timerlog", "timerwheel")])
async def test_apaches_waiting_messages_are_delivered(root: Path, without: tuple[str, ...]) -> None:
    """Two of them are due in a day. A recalled message and a check point of POP are not delivered."""
    for name in without:
        path = root / name
        if path.is_dir():
            for file in path.iterdir():
                file.unlink()
        else:
            path.unlink()
    delivery = opened(root, Clock(_READ_MS), **_KEYS)
    before = delivery.store.max_phy_offset()
    topics = {m.properties["REAL_TOPIC"] for m in delivery.stored("rmq_sys_wheel_timer")}
    ends = {topic: [delivery.store.max_offset(topic, queue) for queue in range(8)] for topic in topics}
    for _ in range(26):
        await delivery.pass_seconds(3600)
    came = {
        topic: [
            message
            for queue in range(8)
            for message in delivery.stored(topic, queue)
            if message.queue_offset >= ends[topic][queue]
        ]
        for topic in topics
    }
    waited = [message for messages in came.values() for message in messages]
    assert {topic for topic, messages in came.items() if messages} == {"TopicTimer"}
    keys = {message.unique_key for message in waited}
    due = {
        int(message.properties["TIMER_OUT_MS"])
        for message in waited
        if int(message.properties["TIMER_OUT_MS"]) > _READ_MS
    }
    assert due == {1795307752000}
    assert delivery.timers.counts.recalled == 1
    if without != ("timerlog", "timerwheel"):
        assert len(keys) == len(waited) == 2
    assert all(message.physical_offset >= before for message in waited)
    delivery.store.close()
