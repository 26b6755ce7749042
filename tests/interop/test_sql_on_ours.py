"""Go and Node.js consumers with SQL filters, with this project's broker. (Java: another file.)"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_client import Message, Producer
from rmq_client.admin import Admin
from tests.interop.clusters import Own
from tests.interop.foreign import ForeignClient, GoClient, NodeClient
from tests.support.own_servers import own_cluster
from tests.support.toolchain import NodeProgram

_SQL = "a BETWEEN 1 AND 4 AND color IN ('red', 'green') OR color = 'blue' AND a = 0"


@pytest.fixture(scope="module")
def filtering() -> Iterator[Own]:
    with asyncio.Runner() as runner:
        cluster = own_cluster({"enablePropertyFilter": "true"})
        try:
            yield runner.run(cluster.__aenter__())
        finally:
            runner.run(cluster.__aexit__(None, None, None))


async def _check_gets_what_matches(client: ForeignClient, namesrv: str, topic: str) -> None:
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=2)
    async with Producer(namesrv, group="p") as producer:
        for number in range(6):
            values = {"a": str(number), "color": "red" if number % 2 else "blue"}
            await producer.send(Message(topic, b"body", properties=values))
    received = (await client.run("consume", topic=topic, group=topic, sql=_SQL, count=3)).check()
    assert sorted(message["properties"]["a"] for message in received.messages) == ["0", "1", "3"]
    assert received.result["deliveries"] == 3


@pytest.mark.go
async def test_go(go_program: Path, filtering: Own, name: str, tmp_path: Path) -> None:
    namesrv = filtering[0].address
    await _check_gets_what_matches(GoClient(go_program, namesrv, tmp_path), namesrv, name)


@pytest.mark.node
async def test_node(node_program: NodeProgram, filtering: Own, name: str, tmp_path: Path) -> None:
    namesrv = filtering[0].address
    await _check_gets_what_matches(NodeClient(node_program, namesrv, tmp_path), namesrv, name)
