"""Messages refused by foreign consumers are redelivered, and at last become dead letters; delayed messages.

The broker's delay levels are short, so that the tests take seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from tests.interop.clusters import Own
from tests.interop.foreign import ForeignClient, GoClient, JavaClient, JavaShell, NodeClient
from tests.support.own_servers import own_cluster
from tests.support.toolchain import JavaProgram, NodeProgram

# Redeliveries use the third level and higher ones, for which the highest is taken.
LEVELS = "1s 1s 0s"


@pytest.fixture(scope="module")
def quick() -> Iterator[Own]:
    with asyncio.Runner() as runner:
        cluster = own_cluster({"messageDelayLevel": LEVELS})
        try:
            yield runner.run(cluster.__aenter__())
        finally:
            runner.run(cluster.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def java(
    java_program: JavaProgram, quick: Own, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaShell]:
    with JavaClient(java_program, quick[0].address, tmp_path_factory.mktemp("java")).shell() as shell:
        yield shell


@pytest.fixture
def go(go_program: Path, quick: Own, tmp_path: Path) -> GoClient:
    return GoClient(go_program, quick[0].address, tmp_path / "go")


@pytest.fixture
def node(node_program: NodeProgram, quick: Own, tmp_path: Path) -> NodeClient:
    return NodeClient(node_program, quick[0].address, tmp_path / "node")


async def _topic(quick: Own, name: str) -> str:
    """Create a topic, and the retry topic of its group, which clients would look for only every 30 s."""
    async with Admin(quick[0].address) as admin:
        for prefix in ("", "%RETRY%", "%DLQ%"):
            await admin.create_topic(f"{prefix}{name}", queues=1)
    return name


async def _check_redelivery(client: ForeignClient | JavaShell, topic: str, times: int = 2) -> None:
    """Check that a message refused twice is delivered three times."""
    (await client.run("send", topic=topic, count=1)).check()
    received = await client.run("consume", topic=topic, group=topic, count=1, refuse_first=times, wait_s=30)
    received.check()
    assert [message["reconsumeTimes"] for message in received.messages] == list(range(times + 1))
    assert len({message["bodySha256"] for message in received.messages}) == 1


@pytest.mark.java
async def test_messages_refused_by_java_are_redelivered(quick: Own, java: JavaShell, name: str) -> None:
    await _check_redelivery(java, await _topic(quick, name))


@pytest.mark.go
async def test_messages_refused_by_go_are_redelivered(quick: Own, go: GoClient, name: str) -> None:
    await _check_redelivery(go, await _topic(quick, name))


@pytest.mark.node
async def test_messages_refused_by_node_are_redelivered(quick: Own, node: NodeClient, name: str) -> None:
    # After a second refusal the client does not send the message back.
    await _check_redelivery(node, await _topic(quick, name), times=1)


@pytest.mark.java
async def test_a_message_refused_17_times_by_java_is_a_dead_letter(
    quick: Own, java: JavaShell, name: str
) -> None:
    topic = await _topic(quick, name)
    (await java.run("send", topic=topic, count=1)).check()
    refused = await java.run("consume", topic=topic, group=topic, deliveries=17, refuse_first=99)
    assert [message["reconsumeTimes"] for message in refused.messages] == list(range(17))

    received = (await java.run("pull", topic=f"%DLQ%{topic}", group=topic, count=1)).check()

    [dead] = received.messages
    assert dead["properties"]["RETRY_TOPIC"] == dead["properties"]["DLQ_ORIGIN_TOPIC"] == topic
    assert dead["reconsumeTimes"] == 17


@pytest.mark.java
async def test_delayed_messages_of_java(quick: Own, java: JavaShell, name: str) -> None:
    topic = await _topic(quick, name)
    (await java.run("send", topic=topic, count=3, delay_level=1)).check()
    received = (await java.run("consume", topic=topic, group=topic, count=3)).check()
    for message in received.messages:
        assert message["storeTimestamp"] - message["bornTimestamp"] >= 1000
        assert message["properties"]["REAL_TOPIC"] == topic
