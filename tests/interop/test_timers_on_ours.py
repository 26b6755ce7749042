"""Timed messages: Apache's Java client with this project's broker, and directories taken over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.timers.checkpoint import TimerCheckpoint
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from tests.interop.foreign import JavaShell
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent
from tests.support.golden_store import SETTINGS
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.raw_client import RawClient, raw_client
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = pytest.mark.java

_SETTINGS = {**SETTINGS, "brokerName": "broker-a", "recallMessageEnable": "true"}
_POLL_SECONDS = 0.1
_TIMER_MESSAGES = 5  # the timer's queue after `_fill`: four messages and a recall


# --- the Java client ---


@pytest.mark.parametrize(
    ("options", "wait_ms"),
    [({"deliver_after_ms": 1500}, 1500), ({"delay_ms": 1200}, 1200), ({"delay_s": 1}, 1000)],
    ids=["deliver time", "delay in ms", "delay in s"],
)
async def test_timed_messages_of_java(
    own_shell: JavaShell, own_topic: str, options: dict[str, int], wait_ms: int
) -> None:
    began_ms = time.time_ns() // 1_000_000
    outcome = (await own_shell.run("send", topic=own_topic, count=3, **options)).check()
    assert all(result["recallHandle"] for result in outcome.sent)
    received = await own_shell.run("consume", topic=own_topic, group=own_topic, count=3)
    messages = received.check().messages
    assert len(messages) == 3
    for message in messages:
        assert message["storeTimestamp"] >= began_ms + wait_ms
        assert not {"REAL_TOPIC", "REAL_QID"} & message["properties"].keys()


async def test_recalls_of_java(own_shell: JavaShell, own_topic: str) -> None:
    (await own_shell.admin("updateBrokerConfig", set={"recallMessageEnable": "true"})).check()
    sent_ones = (await own_shell.run("send", topic=own_topic, count=4, deliver_after_ms=4000)).check().sent
    handles = [result["recallHandle"] for result in sent_ones]
    recalled = (await own_shell.run("recall", topic=own_topic, handle=handles[:3])).check()
    assert recalled.result["recalled"] == [result["msgId"] for result in sent_ones[:3]]
    received = await own_shell.run("consume", topic=own_topic, group=own_topic, count=1)
    assert [message["msgId"] for message in received.check().messages] == [sent_ones[3]["msgId"]]


# --- directories taken over ---


@pytest.fixture
async def namesrv() -> AsyncIterator[OwnNamesrv]:
    async with OwnNamesrv() as namesrv:
        yield namesrv


async def _fill(port: int) -> None:
    """Send a message that this broker delivers, and some that the next one does."""
    async with raw_client(port) as client:
        assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS
        for body, delay_s in ((b"now", 1), (b"soon", 5), (b"taken back", 5), (b"later", 8)):
            answer = await client.ask(send("T", body, properties={"TIMER_DELAY_SEC": str(delay_s)}))
            placed = sent(answer)
            if body == b"taken back":
                assert placed.recall_handle is not None
                back = request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=placed.recall_handle)
                assert (await client.ask(back)).code == ResponseCode.SUCCESS
        await _until_there(client, [b"now"])


async def _until_there(client: RawClient, bodies: list[bytes]) -> list[MessageExt]:
    async with asyncio.timeout(40):
        while True:
            answer = await client.ask(pull("T"))
            found = pulled(answer) if answer.code == ResponseCode.SUCCESS else []
            if {message.body for message in found} >= set(bodies):
                return found
            await asyncio.sleep(_POLL_SECONDS)


def _check(messages: list[MessageExt]) -> None:
    assert [message.body for message in messages] == [b"now", b"soon", b"later"]
    for message in messages:
        waited_ms = message.store_timestamp - message.born_timestamp
        assert "TIMER_DEQUEUE_MS" in message.properties
        assert waited_ms > 0


@pytest.mark.parametrize(
    "killed", [pytest.param(False, marks=pytest.mark.long, id="stopped"), pytest.param(True, id="killed")]
)
@pytest.mark.long
async def test_apaches_broker_delivers_pending_messages_of_this_one(
    apache_program: JavaProgram, namesrv: OwnNamesrv, tmp_path: Path, killed: bool
) -> None:
    ours = OwnBroker(namesrv.address, home=tmp_path, settings=_SETTINGS)
    await ours.start()
    await _fill(ours.port)
    if killed:
        # Messages after the saved offset are entered again. Apache's broker delivers those that are overdue
        # by then, even recalled ones.
        checkpoint = ours.store_path / "config" / "timercheck"
        await until(lambda: TimerCheckpoint.load(checkpoint).queue_offset == _TIMER_MESSAGES)
        ours.kill()
    else:
        await ours.stop()
    apaches = ApacheBroker(apache_program, namesrv.address, home=tmp_path, settings=_SETTINGS)
    await apaches.start()
    async with raw_client(apaches.port) as client:
        found = await _until_there(client, [b"soon", b"later"])
    apaches.kill()
    if killed:
        found = list({message.body: message for message in found}.values())
    _check(found)


@pytest.mark.parametrize(
    "killed", [pytest.param(False, marks=pytest.mark.long, id="stopped"), pytest.param(True, id="killed")]
)
async def test_this_broker_delivers_pending_messages_of_apaches(
    apache_program: JavaProgram, namesrv: OwnNamesrv, tmp_path: Path, killed: bool
) -> None:
    apaches = ApacheBroker(apache_program, namesrv.address, home=tmp_path, settings=_SETTINGS)
    await apaches.start()
    await _fill(apaches.port)
    if killed:
        apaches.kill()
    else:
        await apaches.stop()
    async with OwnBroker(namesrv.address, home=tmp_path, settings=_SETTINGS) as ours:
        async with raw_client(ours.port) as client:
            found = await _until_there(client, [b"soon", b"later"])
        await ours.stop()
        assert ours.logged_errors() == []
    if killed:
        found = list({message.body: message for message in found}.values())
    _check(found)
