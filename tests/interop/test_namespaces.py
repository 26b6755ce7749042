"""Namespaces: Java's clients put theirs before names of topics and groups; those are names like others."""

from __future__ import annotations

import pytest

from rmq_client import PullConsumer
from rmq_client.admin import Admin
from tests.interop.clusters import Own
from tests.interop.foreign import JavaShell

pytestmark = pytest.mark.java


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
