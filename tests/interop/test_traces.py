"""Message traces of the SDK and of the Java client, read by Apache's tool."""

from __future__ import annotations

import asyncio
from collections.abc import Set

import pytest

from rmq_client import Message, MessageExt, Producer, Tracing
from tests.interop.clusters import Own
from tests.interop.consumers import consumer_of
from tests.interop.foreign import JavaShell
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

pytestmark = pytest.mark.java

_TRACING = Tracing(linger_seconds=0.05)
_WAIT_SECONDS = 30.0


async def _trace(tool: JavaShell, message_id: str, kinds: Set[str]) -> list[list[str]]:
    """Return the trace of a message once all of it is in the broker's index."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            output = await tool.mqadmin("queryMsgTraceById", "-i", message_id)
            if not output.failed and kinds <= {row[0] for row in output.rows}:
                return [row for row in output.rows if row[0] in kinds]


async def test_mqadmin_reads_traces_of_the_sdk(own: Own, own_tool: JavaShell, own_topic: str) -> None:
    address = own[0].address
    got: list[MessageExt] = []

    async def listen(messages: list[MessageExt]) -> None:
        got.extend(messages)

    async with Producer(address, group="tracing", trace=_TRACING) as producer:
        results = await producer.send_batch([Message(own_topic, b"first"), Message(own_topic, b"second")])
        results.append(await producer.send(Message(own_topic, b"third", keys=["k1"])))
        async with producer.transaction(Message(own_topic, b"fourth")) as transaction:
            pass
        results.append(transaction.sent)
        async with consumer_of(address, own_topic, listen, trace=_TRACING):
            await until(lambda: len(got) == 4, timeout_seconds=20)
    for result in results:
        rows = await _trace(own_tool, result.msg_id, {"Pub", "Sub"})
        (sent,) = [row for row in rows if row[0] == "Pub"]
        assert (sent[1], sent[-1]) == ("tracing", "success")
        (consumed,) = [row for row in rows if row[0] == "Sub"]
        assert (consumed[1], consumed[-1]) == (f"g-{own_topic}", "success")


async def test_traces_of_java_with_this_broker(own_tool: JavaShell, own_topic: str) -> None:
    sending = await own_tool.run("send", topic=own_topic, group="java-tracing", count=2, trace=True)
    for message in sending.check().sent:
        (sent,) = await _trace(own_tool, message["msgId"], {"Pub"})
        assert (sent[1], sent[-1]) == ("java-tracing", "success")
