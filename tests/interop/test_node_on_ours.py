"""ali-ons, the client for Node.js, with this project's name server and broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.interop.checks import (
    bodies_of,
    check_goes_on_after_a_restart,
    check_reads_java_and_is_read,
    check_sends_and_consumes,
    check_shares_the_queues,
    expected_bodies,
)
from tests.interop.clusters import Own
from tests.interop.foreign import JavaShell, NodeClient
from tests.support.toolchain import NodeProgram

pytestmark = pytest.mark.node


@pytest.fixture
def node(node_program: NodeProgram, own: Own, tmp_path: Path) -> NodeClient:
    return NodeClient(node_program, own[0].address, tmp_path / "node")


async def test_sends_and_consumes(node: NodeClient, own_topic: str) -> None:
    await check_sends_and_consumes(node, own_topic)


async def test_a_sharding_key_chooses_the_queue(node: NodeClient, own_topic: str) -> None:
    sent = await node.run("send", topic=own_topic, count=5, sharding_key="customer-7")
    assert len({result["queueId"] for result in sent.check().sent}) == 1


async def test_consumes_as_a_broadcast_group(node: NodeClient, own_topic: str) -> None:
    (await node.run("send", topic=own_topic, count=4)).check()
    received = await node.run("consume", topic=own_topic, group=own_topic, count=4, broadcast=True)
    assert bodies_of(received.check()) == expected_bodies(4)


async def test_a_restarted_group_continues_at_its_offset(node: NodeClient, own_topic: str) -> None:
    await check_goes_on_after_a_restart(node, own_topic)


async def test_consumers_of_a_group_share_the_queues(node: NodeClient, own_topic: str) -> None:
    await check_shares_the_queues(node, own_topic)


async def test_a_refused_send_names_the_cause(node: NodeClient, own_topic: str) -> None:
    refused = await node.run("send", topic=own_topic, size=5_000_000, compress_over=6_000_000)
    assert refused.error is not None
    assert refused.error["code"] == ResponseCode.MESSAGE_ILLEGAL
    assert "the limit is 4194304" in refused.error["message"]


@pytest.mark.java
async def test_exchange_of_messages_with_java(node: NodeClient, own_shell: JavaShell, own_topic: str) -> None:
    await check_reads_java_and_is_read(node, own_shell, own_topic)
