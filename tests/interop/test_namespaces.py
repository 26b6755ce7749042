"""Namespaces, which clients prepend to topics and groups; for brokers they are ordinary names."""

from __future__ import annotations

import pytest

from rmq_client import (
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
)
from rmq_client.admin import Admin
from tests.interop.clusters import Own
from tests.interop.consumers import consumer_of
from tests.interop.foreign import JavaShell
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

pytestmark = pytest.mark.java

_SHOP = ClientSettings(namespace="shop")


async def test_java_sends_and_consumes_in_a_namespace(own: Own, own_shell: JavaShell, name: str) -> None:
    address, full_name = own[0].address, f"shop%{name}"
    async with Admin(address) as admin:
        await admin.create_topic(full_name, queues=1)
        sending = await own_shell.run("send", topic=name, namespace="shop", count=3)
        assert len(sending.check().sent) == 3
        consuming = await own_shell.run("consume", topic=name, group=name, namespace="shop", count=3)
        assert {message["topic"] for message in consuming.check().messages} == {name}
        assert f"%RETRY%{full_name}" in await admin.topics(), "the group has the namespace, too"
    async with PullConsumer(address, group="reader", consume_from="first") as reader:
        await reader.assign(await reader.queues(full_name))
        messages = await reader.poll(max_messages=10, timeout_seconds=5)
        assert [message.topic for message in messages] == [full_name] * 3


async def test_java_and_the_sdk_in_one_namespace(own: Own, own_shell: JavaShell, name: str) -> None:
    address = own[0].address
    async with Admin(address, settings=_SHOP) as admin:
        await admin.create_topic(name, queues=1)
    async with Producer(address, group="ours", settings=_SHOP) as producer:
        for number in range(2):
            await producer.send(Message(name, b"ours %d" % number))
    consuming = await own_shell.run("consume", topic=name, group=name, namespace="shop", count=2)
    assert {message["topic"] for message in consuming.check().messages} == {name}

    sending = await own_shell.run("send", topic=name, namespace="shop", count=2)
    wanted = {message["msgId"] for message in sending.check().sent}
    got: list[MessageExt] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        got.extend(messages)
        context.delay_level = 1
        return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.LATER

    async with consumer_of(address, name, listen, settings=_SHOP):
        await until(lambda: {one.msg_id for one in got if one.reconsume_times} >= wanted, timeout_seconds=20)
    assert {message.topic for message in got} == {name}, "also of redelivered messages"
    # The group of the Java consumer: it continues at its offset.
    async with PullConsumer(address, group=name, consume_from="first", settings=_SHOP) as reader:
        (queue,) = await reader.queues(name)
        assert await reader.committed(queue) == 2
