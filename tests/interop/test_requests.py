"""Request and reply: between clients of the SDK on both kinds of servers, and between Java and the SDK."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client import Message, MessageExt, NoReply, Producer
from tests.interop.clusters import Cluster, Own
from tests.interop.consumers import consumer_of
from tests.interop.foreign import JavaClient, JavaShell
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_SECONDS = 10.0


class _Answerer:
    """A listener that replies to every message."""

    def __init__(self, producer: Producer) -> None:
        self.requests: list[MessageExt] = []
        self._producer = producer

    async def __call__(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self.requests.append(message)
            await self._producer.reply(message, b"re: " + message.body)


async def test_the_sdk_asks_the_sdk(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    async with Producer(address, group="asking") as asker, Producer(address, group="answering") as producer:
        answerer = _Answerer(producer)
        async with consumer_of(address, topic, answerer):
            replies = await asyncio.gather(
                *(
                    asker.request(Message(topic, b"%d" % number), timeout_seconds=_SECONDS)
                    for number in range(5)
                )
            )
        assert [reply.body for reply in replies] == [b"re: %d" % number for number in range(5)]
        request = answerer.requests[0]
        assert request.properties["CLUSTER"] == "DefaultCluster"
        assert replies[0].topic == "DefaultCluster_REPLY_TOPIC"


async def test_a_request_without_a_reply_times_out(cluster: Cluster, topic: str) -> None:
    async with Producer(cluster[0].address, group="asking") as asker:
        with pytest.raises(NoReply, match=r"no reply came within 0\.2 s"):
            await asker.request(Message(topic, b"x"), timeout_seconds=0.2)


@pytest.mark.java
async def test_java_asks_the_sdk(own: Own, own_shell: JavaShell, own_topic: str) -> None:
    address = own[0].address
    async with Producer(address, group="answering") as producer:
        answerer = _Answerer(producer)
        async with consumer_of(address, own_topic, answerer):
            outcome = await own_shell.run("request", topic=own_topic, body="ping")
    assert outcome.check().result["body"] == "re: ping"
    assert outcome.result["topic"] == "DefaultCluster_REPLY_TOPIC"
    properties = outcome.result["properties"]
    (request,) = answerer.requests
    assert properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
    assert {"PUSH_REPLY_TIME", "ARRIVE_TIME"} <= set(properties)


@pytest.mark.java
async def test_the_sdk_asks_java(own: Own, own_java: JavaClient, own_topic: str) -> None:
    with own_java.start("reply", topic=own_topic, group=own_topic) as java:
        await java.wait_for("started")
        async with Producer(own[0].address, group="asking") as asker:
            reply = await asker.request(Message(own_topic, b"ping"), timeout_seconds=_SECONDS)
        assert reply.body == b"re: ping"
        # Printed after the reply was sent; a program that is stopped earlier would not print it.
        await java.wait_for("replied")
        assert not java.named("failed")
        (await java.stop()).check()


@pytest.mark.java
async def test_a_request_of_java_without_a_reply_times_out(own_shell: JavaShell, own_topic: str) -> None:
    outcome = await own_shell.run("request", topic=own_topic, body="ping", timeout_ms=500)
    assert outcome.error is not None
    assert outcome.error["class"] == "RequestTimeoutException"
