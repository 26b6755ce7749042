"""Delayed messages and retries over the wire, through restarts."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

# Nothing waits for longer than a test takes.
_AT_ONCE = " ".join(["0s"] * 18)


async def _arrives(client: RawClient, topic: str, offset: int = 0) -> MessageExt:
    """The message of an offset, once it is there."""
    async with asyncio.timeout(20):
        while True:
            answer = await client.ask(pull(topic, offset=offset, count=1, suspend_ms=10_000))
            if answer.code == ResponseCode.SUCCESS:
                (message,) = pulled(answer)
                return message


async def test_a_delayed_message_wakes_who_waits_for_it_and_is_not_early(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        sent(await client.ask(send("T", b"x", properties={"DELAY": "1"})))

        message = await _arrives(client, "T")

        record = broker.store.get("SCHEDULE_TOPIC_XXXX", 0, 0, 1, None)
        assert record.count == 1
        (entry,) = broker.store.queue_entries("SCHEDULE_TOPIC_XXXX", 0, 0, 1) or []
        assert message.body == b"x"
        assert message.store_timestamp >= entry[2]


async def test_what_waits_is_delivered_after_a_restart_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, messageDelayLevel="0s 1h") as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        for number in range(3):
            sent(await client.ask(send("T", b"%d" % number, properties={"DELAY": "1"})))
        sent(await client.ask(send("T", b"late", properties={"DELAY": "2"})))
        assert (await _arrives(client, "T", 2)).body == b"2"
    written = (tmp_path / "store" / "config" / "delayOffset.json").read_bytes()
    assert DelayOffsetSerializeWrapper.decode(written).offset_table[1] == 3

    async with running_broker(tmp_path, messageDelayLevel="0s 1h") as broker, broker.client() as client:
        sent(await client.ask(send("T", b"last", properties={"DELAY": "1"})))
        assert (await _arrives(client, "T", 3)).body == b"last"
        assert broker.services.delivery.delayed.waiting() == {1: 0, 2: 1}
        answer = await client.ask(request(RequestCode.GET_ALL_DELAY_OFFSET))
        assert DelayOffsetSerializeWrapper.decode(answer.body).offset_table[1] == 3


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_maximum_of_n_means_n_more_deliveries(tmp_path: Path, flush: str) -> None:
    settings = {"messageDelayLevel": _AT_ONCE, "flushDiskType": flush}
    async with running_broker(tmp_path, **settings) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        sent(await client.ask(send("T", b"x", properties={"UNIQ_KEY": "U"})))
        message = await _arrives(client, "T")
        origin_id = message.offset_msg_id
        for times in range(1, 4):
            await _send_back(client, message)
            message = await _arrives(client, "%RETRY%CG", times - 1)
            assert (message.body, message.reconsume_times) == (b"x", times)
        await _send_back(client, message)

        dead = await _arrives(client, "%DLQ%CG")
        assert dead.body == b"x"
        assert dead.properties["RETRY_TOPIC"] == dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
        assert dead.properties["ORIGIN_MESSAGE_ID"] == origin_id
        assert broker.store.max_offset("%RETRY%CG", 0) == 3
        await _tells_of_it(broker, client)


async def _send_back(client: RawClient, message: MessageExt) -> None:
    command = request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group="CG",
        offset=message.physical_offset,
        delayLevel=0,
        originTopic=message.topic,
        originMsgId="U",
        maxReconsumeTimes=3,
        unitMode=False,
    )
    answer = await client.ask(command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _tells_of_it(broker: RunningBroker, client: RawClient) -> None:
    """In request 28, as Apache's brokers do."""
    answer = await client.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))
    table = json.loads(answer.body)["table"]
    told = {name: value for name, value in table.items() if name.startswith("scheduleMessageOffset_")}
    assert told == {f"scheduleMessageOffset_{level}": "1,1" for level in (3, 4, 5)}


async def test_a_request_without_what_it_needs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        for fields in ({}, {"group": "CG", "delayLevel": 0}, {"group": "CG", "delayLevel": "x", "offset": 0}):
            answer = await client.ask(request(RequestCode.CONSUMER_SEND_MSG_BACK, **fields))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert re.search("group|offset|delayLevel", answer.remark or "")
        assert broker.store.max_phy_offset() == 0


async def test_offsets_reach_the_disk_while_the_broker_runs(tmp_path: Path) -> None:
    settings = {"messageDelayLevel": "0s", "flushDelayOffsetInterval": 100, "flushIntervalCommitLog": 50}
    settings["flushCommitLogLeastPages"] = 0
    path = tmp_path / "store" / "config" / "delayOffset.json"
    async with running_broker(tmp_path, **settings) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        sent(await client.ask(send("T", properties={"DELAY": "1"})))
        await _arrives(client, "T")
        await until(lambda: path.exists() and b"{1:1}" in path.read_bytes(), timeout_seconds=20)
        assert broker.services.delivery.delay_offsets.current() == {1: 1}
