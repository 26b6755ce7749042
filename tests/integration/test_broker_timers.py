"""Messages with a time over the wire, through a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from rmq_broker.timers.checkpoint import TimerCheckpoint
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.timer import TimerMetricsSerializeWrapper
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import Serialization
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.recall_handle import RecallHandle
from tests.support.broker_requests import create_topic, pull, pulled, request, send, send_batch, sent
from tests.support.brokers import running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

_TIMER = "rmq_sys_wheel_timer"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _arrives(client: RawClient, topic: str = "T", offset: int = 0) -> MessageExt:
    async with asyncio.timeout(20):
        while True:
            answer = await client.ask(pull(topic, offset=offset, count=1, suspend_ms=10_000))
            if answer.code == ResponseCode.SUCCESS:
                (message,) = pulled(answer)
                return message


async def test_it_wakes_who_waits_for_it_and_is_not_early(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        deliver_ms = _now_ms() + 1200
        sent(await client.ask(send("T", b"x", properties={"TIMER_DELIVER_MS": str(deliver_ms)})))
        message = await _arrives(client)
        assert message.body == b"x"
        assert 0 <= message.store_timestamp - deliver_ms < 3000
        assert "REAL_TOPIC" not in message.properties


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_the_answer_has_what_it_is_taken_back_with(
    tmp_path: Path, flush: str, serialization: Serialization
) -> None:
    keys = {"timerPrecisionMs": 100, "recallMessageEnable": "true", "flushDiskType": flush}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        await client.ask(create_topic("T", 4))
        properties = {"TIMER_DELAY_MS": "700", "UNIQ_KEY": "K"}
        answer = await client.ask(
            send("T", b"x", queue_id=2, properties=properties, serialization=serialization)
        )
        placed = sent(answer)
        assert (placed.queue_id, placed.queue_offset) == (2, 0)
        assert placed.recall_handle is not None
        handle = RecallHandle.decode(placed.recall_handle)
        assert (handle.topic, handle.broker_name, handle.unique_key) == ("T", "broker-a", "K")
        back = request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=placed.recall_handle)
        said = await client.ask(back)
        assert (said.code, said.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "K")
        await until(lambda: broker.services.timers.counts.recalled == 1, 10)
        assert broker.store.max_offset("T", 2) == 0


async def test_what_waits_comes_after_a_restart_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        for number in range(3):
            sent(await client.ask(send("T", b"%d" % number, properties={"TIMER_DELAY_MS": "1000"})))
        sent(await client.ask(send("T", b"late", properties={"TIMER_DELAY_SEC": "5"})))
        sent(await client.ask(send("T", b"later", properties={"TIMER_DELAY_SEC": "3600"})))
        assert (await _arrives(client, offset=2)).body == b"2"
    checkpoint = TimerCheckpoint.load(tmp_path / "store" / "config" / "timercheck")
    assert checkpoint.queue_offset == 5
    counts = (tmp_path / "store" / "config" / "timermetrics").read_bytes()
    assert TimerMetricsSerializeWrapper.decode(counts).timing_count["T"].count == 2

    async with running_broker(tmp_path) as broker, broker.client() as client:
        assert broker.services.timers.pending.count == 2
        assert (await _arrives(client, offset=3)).body == b"late"
        assert broker.store.max_offset("T", 0) == 4
        # What tools and slaves ask.
        figures = KVTable.decode((await client.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
        assert (figures["timerCongestNum"], figures["timerOffsetBehind"]) == ("1", "0")
        values = (await client.ask(request(RequestCode.GET_TIMER_CHECK_POINT))).body
        reported = TimerCheckpoint.decode(values)
        assert (reported.queue_offset, reported.precision_ms) == (5, 1000)
        assert values.startswith(reported.values())  # what Apache's slaves read
        counts = (await client.ask(request(RequestCode.GET_TIMER_METRICS))).body
        assert TimerMetricsSerializeWrapper.decode(counts).timing_count["T"].count == 1


@pytest.mark.parametrize(
    ("properties", "keys", "code", "remark"),
    [
        (
            {"TIMER_DELIVER_MS": "soon"},
            {},
            ResponseCode.MESSAGE_ILLEGAL,
            "property TIMER_DELIVER_MS='soon' must be a whole number of milliseconds",
        ),
        (
            {"TIMER_DELAY_SEC": "11"},
            {"timerMaxDelaySec": 10},
            ResponseCode.MESSAGE_ILLEGAL,
            "the message would wait for 11000 ms, the limit is 10000 ms (timerMaxDelaySec)",
        ),
        (
            {"TIMER_DELAY_MS": "500"},
            {"timerWheelEnable": "false"},
            ResponseCode.SYSTEM_ERROR,
            "timerWheelEnable=false",
        ),
    ],
    ids=["no time", "too far", "off"],
)
async def test_what_is_refused_tells_why(
    tmp_path: Path, properties: dict[str, str], keys: dict[str, object], code: int, remark: str
) -> None:
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        answer = await client.ask(send("T", properties=properties))
        assert answer.code == code
        assert remark in (answer.remark or "")
        batch = await client.ask(send_batch("T", [Message("T", b"x")], properties=properties))
        assert batch.code == ResponseCode.MESSAGE_ILLEGAL
        assert "send its messages one by one" in (batch.remark or "")
        assert (broker.store.max_offset("T", 0), broker.store.max_offset(_TIMER, 0)) == (0, 0)


async def test_a_full_second_takes_no_more(tmp_path: Path) -> None:
    async with running_broker(tmp_path, timerCongestNumEachSlot=3) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        timed = {"TIMER_DELIVER_MS": str(_now_ms() + 3_600_000)}
        taken = 0
        while taken < 7:
            answer = await client.ask(send("T", properties=timed))
            if answer.code != ResponseCode.SUCCESS:
                break
            taken += 1
            # It counts once it is in the wheel.
            await until(lambda: not broker.services.timers.entering.behind)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "(timerCongestNumEachSlot) some are refused, above 6 all" in (answer.remark or "")
        assert 4 <= taken <= 6
