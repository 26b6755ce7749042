"""Apache's consumers and admin tool with this project's broker: order, resets, running consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_client.admin import Admin
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from tests.interop.checks import check_order, expected_bodies, offsets_by_queue, wait_for_bodies
from tests.interop.clusters import Own
from tests.interop.foreign import AdminOutput, GoClient, JavaClient, JavaShell
from tests.support.outcome import Event, Option, expected_body, sha256
from tests.support.own_servers import OwnBroker
from tests.support.raw_client import raw_client
from tests.support.running import RunningProgram

pytestmark = pytest.mark.java


async def _mqadmin(tool: JavaShell, line: str) -> AdminOutput:
    name, *arguments = line.split()
    told = await tool.mqadmin(name, *arguments)
    if "CODE: 208" in told.text:  # no message: so the tool also reports an answer that took too long
        told = await tool.mqadmin(name, *arguments)
    return told


def _check_order(consumers: list[RunningProgram]) -> None:
    for consumer in consumers:
        check_order(offsets_by_queue(consumer))


def _queues(messages: list[Event]) -> set[int]:
    return {message["queueId"] for message in messages}


async def _check_takes_over(
    first: RunningProgram, partner: RunningProgram, sender: JavaShell, topic: str
) -> None:
    """Check that a second member takes over queues of the first, and returns them when it stops."""
    size = 100
    while not partner.named("message"):
        size += 1
        (await sender.run("send", topic=topic, count=12, mode="selector", size=size)).check()
        await wait_for_bodies([first, partner], expected_bodies(12, size))
    _check_order([first, partner])
    (await partner.stop()).check()  # it unlocks its queues; otherwise their locks last a minute
    (await sender.run("send", topic=topic, count=12, mode="selector", size=50)).check()
    await wait_for_bodies([first], expected_bodies(12, 50))
    _check_order([first])


async def test_ordered_consumers_share_and_take_over(
    own_java: JavaClient, own_shell: JavaShell, own_topic: str
) -> None:
    options: dict[str, Option] = {"topic": own_topic, "group": own_topic, "count": 10_000, "orderly": True}
    with own_java.start("consume", **options) as first:
        (await own_shell.run("send", topic=own_topic, count=12, mode="selector")).check()
        await wait_for_bodies([first], expected_bodies(12))
        assert _queues(first.named("message")) == {0, 1, 2, 3}
        with own_java.start("consume", **options) as second:
            await _check_takes_over(first, second, own_shell, own_topic)
        (await first.stop()).check()


@pytest.mark.go
async def test_an_ordered_go_consumer(
    own_shell: JavaShell, go_program: Path, own: Own, own_topic: str, tmp_path: Path
) -> None:
    # In a group with the Java client it also locks its queues, but only every 20 s.
    go = GoClient(go_program, own[0].address, tmp_path / "go")
    with go.start("consume", topic=own_topic, group=own_topic, count=10_000, orderly=True) as consumer:
        (await own_shell.run("send", topic=own_topic, count=12, mode="selector")).check()
        await wait_for_bodies([consumer], expected_bodies(12))
        _check_order([consumer])
        (await consumer.stop()).check()


async def test_requests_to_a_running_consumer_and_resets(
    own_tool: JavaShell, own_java: JavaClient, own_shell: JavaShell, own_topic: str
) -> None:
    with own_java.start("consume", topic=own_topic, group=own_topic, count=10_000) as consumer:
        [started] = await consumer.wait_for("started")
        client_id = started["clientId"]
        sent = (await own_shell.run("send", topic=own_topic, count=4, mode="selector")).check().sent
        await consumer.wait_for("message", 4)

        shown = await _mqadmin(own_tool, f"consumerStatus -g {own_topic} -i {client_id}")
        assert "#Consumer MQ Detail#" in shown.text
        assert f"Topic: {own_topic} " in shown.text

        shown = await _mqadmin(
            own_tool,
            f"queryMsgById -t {own_topic} -i {sent[2]['offsetMsgId']} -g {own_topic} -d {client_id}",
        )
        assert "CR_SUCCESS" in shown.text
        again = await consumer.wait_for("message", 5)
        assert again[4]["bodySha256"] == sha256(expected_body(2))

        shown = await _mqadmin(own_tool, f"resetOffsetByTime -g {own_topic} -t {own_topic} -s 0")
        assert sorted(row[-2:] for row in shown.check().rows if row[0] == "broker-a") == [
            [str(queue_id), "0"] for queue_id in range(4)
        ]
        await consumer.wait_for("message", 9)
        (await consumer.stop()).check()


async def _give_up(broker: OwnBroker, group: str, message: Event) -> None:
    """Make a message a dead letter at once."""
    header = ConsumerSendMsgBackRequestHeader(
        offset=message["commitLogOffset"], group=group, delay_level=-1, origin_topic=message["topic"]
    )
    async with raw_client(broker.port) as client:
        request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())
        assert (await client.ask(request)).code == ResponseCode.SUCCESS


async def test_a_dead_letter_is_consumed_directly_and_sent_again(
    own: Own, own_tool: JavaShell, own_java: JavaClient, own_shell: JavaShell, own_topic: str
) -> None:
    dead = f"%DLQ%{own_topic}"
    async with Admin(own[0].address) as admin:
        await admin.create_topic(dead, queues=1)
    with own_java.start("consume", topic=own_topic, group=own_topic, count=10_000) as consumer:
        [started] = await consumer.wait_for("started")
        (await own_shell.run("send", topic=own_topic, count=1, keys="order-7")).check()
        [message] = await consumer.wait_for("message")
        await _give_up(own[1], own_topic, message)
        [letter] = (await own_shell.run("pull", topic=dead, group=own_topic, count=1)).check().messages

        # To the consumer that refused it.
        shown = await _mqadmin(
            own_tool,
            f"queryMsgById -t {dead} -i {letter['msgId']} -g {own_topic} -d {started['clientId']}",
        )
        assert "CR_SUCCESS" in shown.text
        again = (await consumer.wait_for("message", 2))[1]
        assert again["bodySha256"] == message["bodySha256"]
        assert again["properties"]["DLQ_ORIGIN_TOPIC"] == own_topic
        (await consumer.stop()).check()

    # And as a new message to the topic in which the tool found it.
    shown = await _mqadmin(own_tool, f"queryMsgById -t {dead} -i {letter['msgId']} -s true")
    assert "sendStatus=SEND_OK" in shown.text
    letters = (await own_shell.run("pull", topic=dead, group=own_topic, count=2)).check().messages
    assert [each["bodySha256"] for each in letters] == [message["bodySha256"]] * 2
    assert letters[1]["properties"]["KEYS"] == "order-7"


async def test_an_offline_group_is_reset_forward_and_back(
    own_tool: JavaShell, own_shell: JavaShell, own_topic: str
) -> None:
    (await own_shell.run("send", topic=own_topic, count=3, mode="queue", queue=1)).check()
    (await own_shell.run("pull", topic=own_topic, group=own_topic, queue=1, count=1, commit=True)).check()

    async def offset() -> str:
        rows = (await _mqadmin(own_tool, f"consumerProgress -g {own_topic} -t {own_topic}")).check().rows
        [row] = [row for row in rows if row[:3] == [own_topic, "broker-a", "1"]]
        return row[4]

    shown = await _mqadmin(own_tool, f"skipAccumulatedMessage -g {own_topic} -t {own_topic}")
    assert ["1", "3"] in [row[-2:] for row in shown.check().rows]
    assert await offset() == "3"
    await _mqadmin(own_tool, f"resetOffsetByTime -g {own_topic} -t {own_topic} -s 0")
    assert await offset() == "0"
    shown = await _mqadmin(own_tool, f"resetOffsetByTime -g nobody -t {own_topic} -s 0")
    assert "nobody does not exist" in shown.text


async def test_a_consumer_that_reads_too_many_cold_messages(
    own: Own, own_java: JavaClient, own_topic: str
) -> None:
    """The client pulls again 3 s after a refusal, in a later period of 5 s."""
    (await own_java.run("send", topic=own_topic, count=12, size=1000)).check()
    on = {
        "coldDataFlowControlEnable": "true",
        "accessMessageInMemoryHotRatio": "0",  # each message may be cold
        "cgColdReadThreshold": "2000",
    }
    off = {
        "coldDataFlowControlEnable": "false",
        "accessMessageInMemoryHotRatio": "26",
        "cgColdReadThreshold": "3145728",
    }
    async with Admin(own[0].address) as admin:
        await admin.update_broker_settings("broker-a", on)
        try:
            with own_java.start("consume", topic=own_topic, group=own_topic, count=10_000) as consumer:
                await wait_for_bodies([consumer], expected_bodies(12, 1000))
                cold = await admin.cold_reads("broker-a")
                assert own_topic in {each.group for each in cold.groups}
                (await consumer.stop()).check()
        finally:
            await admin.update_broker_settings("broker-a", off)
