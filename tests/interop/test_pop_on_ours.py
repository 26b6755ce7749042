"""Apache's Java push consumer 5.3.3 in POP mode with this project's broker, which assigns the queues."""

from __future__ import annotations

import pytest

from tests.interop.checks import bodies_of, expected_bodies
from tests.interop.clusters import Own
from tests.interop.foreign import JavaShell

pytestmark = pytest.mark.java


async def _pops(tool: JavaShell, own: Own, topic: str, group: str) -> None:
    """Set POP mode for a group and a topic, as an administrator does."""
    broker = own[1].address
    (await tool.mqadmin("updateSubGroup", "-b", broker, "-g", group)).check()
    words = ["-b", broker, "-t", topic, "-g", group, "-m", "POP", "-q", "8"]
    (await tool.mqadmin("setConsumeMode", *words)).check()


async def test_pops_and_acknowledges(
    own_tool: JavaShell, own: Own, own_shell: JavaShell, own_topic: str
) -> None:
    await _pops(own_tool, own, own_topic, own_topic)
    (await own_shell.run("send", topic=own_topic, count=40)).check()
    received = await own_tool.run("consume", topic=own_topic, group=own_topic, count=40, pop=True)
    assert bodies_of(received.check()) == expected_bodies(40)
    assert received.result["deliveries"] == 40
    again = await own_tool.run("consume", topic=own_topic, group=own_topic, count=1, pop=True, wait_s=2)
    assert again.messages == [], "an acknowledged message was redelivered"


async def test_refused_messages_are_redelivered(
    own_tool: JavaShell, own: Own, own_shell: JavaShell, own_topic: str
) -> None:
    await _pops(own_tool, own, own_topic, own_topic)
    (await own_shell.run("send", topic=own_topic, count=4, tag="A")).check()
    received = await own_tool.run(
        "consume",
        topic=own_topic,
        group=own_topic,
        tag="A",
        count=4,
        pop=True,
        refuse_first=2,
        pop_delay_s=1,
    )
    accepted = [message for message in received.check().messages if message["accepted"]]
    assert sorted(message["bodySha256"] for message in accepted) == expected_bodies(4)
    assert sorted(message["reconsumeTimes"] for message in accepted) == [0, 0, 1, 1]
    assert received.result["deliveries"] == 6


async def test_pops_in_order(own_tool: JavaShell, own: Own, own_shell: JavaShell, own_topic: str) -> None:
    await _pops(own_tool, own, own_topic, own_topic)
    (await own_shell.run("send", topic=own_topic, count=12, mode="queue", queue=1)).check()
    received = await own_tool.run(
        "consume", topic=own_topic, group=own_topic, count=12, pop=True, orderly=True
    )
    offsets = [message["queueOffset"] for message in received.check().messages]
    assert offsets == list(range(12))
