"""Traces: ours, and those of Java's client through our broker, read by Apache's tool."""

from __future__ import annotations

import pytest

from rmq_client import Message, MessageExt, Producer, Tracing
from tests.interop.clusters import Own
from tests.interop.consumers import consumer_of
from tests.interop.foreign import JavaShell
from tests.support.waiting import until
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

pytestmark = pytest.mark.java

_TRACING = Tracing(linger_seconds=0.05)


async def test_mqadmin_reads_our_traces(own: Own, own_tool: JavaShell, own_topic: str) -> None:
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
        output = await own_tool.mqadmin("queryMsgTraceById", "-i", result.msg_id)
        (sent,) = [row for row in output.check().rows if row[0] == "Pub"]
        assert (sent[1], sent[-1]) == ("tracing", "success")
        (consumed,) = [row for row in output.rows if row[0] == "Sub"]
        assert (consumed[1], consumed[-1]) == (f"g-{own_topic}", "success")


async def test_javas_traces_through_our_broker(own_tool: JavaShell, own_topic: str) -> None:
    sending = await own_tool.run("send", topic=own_topic, group="java-tracing", count=2, trace=True)
    for message in sending.check().sent:
        output = await own_tool.mqadmin("queryMsgTraceById", "-i", message["msgId"])
        (sent,) = [row for row in output.check().rows if row[0] == "Pub"]
        assert (sent[1], sent[-1]) == ("java-tracing", "success")
