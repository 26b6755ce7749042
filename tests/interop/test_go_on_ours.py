"""Apache's Go client with this project's name server and broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.checks import (
    bodies_of,
    check_goes_on_after_a_restart,
    check_reads_java_and_is_read,
    check_sends_and_consumes,
    check_shares_the_queues,
    expected_bodies,
)
from tests.interop.clusters import Own
from tests.interop.foreign import GoClient, JavaShell

pytestmark = pytest.mark.go


@pytest.fixture
def go(go_program: Path, own: Own, tmp_path: Path) -> GoClient:
    return GoClient(go_program, own[0].address, tmp_path / "go")


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch", "queue", "orderkey"])
async def test_sends_and_consumes(go: GoClient, own_topic: str, mode: str) -> None:
    await check_sends_and_consumes(go, own_topic, mode=mode)


async def test_the_first_send_creates_the_topic(go: GoClient, name: str) -> None:
    (await go.run("send", topic=name, count=3)).check()
    received = await go.run("consume", topic=name, group=name, count=3)
    assert bodies_of(received.check()) == expected_bodies(3)


async def test_consumes_as_a_broadcast_group(go: GoClient, own_topic: str) -> None:
    (await go.run("send", topic=own_topic, count=4)).check()
    received = await go.run("consume", topic=own_topic, group=own_topic, count=4, broadcast=True)
    assert bodies_of(received.check()) == expected_bodies(4)


async def test_a_restarted_group_continues_at_its_offset(go: GoClient, own_topic: str) -> None:
    await check_goes_on_after_a_restart(go, own_topic)


async def test_consumers_of_a_group_share_the_queues(go: GoClient, own_topic: str) -> None:
    await check_shares_the_queues(go, own_topic)


async def test_a_refused_send_names_the_cause(go: GoClient, own_topic: str) -> None:
    refused = await go.run("send", topic=own_topic, size=5_000_000, compress_over=6_000_000)
    assert refused.error is not None
    assert "CODE: 13" in refused.error["message"]
    assert "the limit is 4194304" in refused.error["message"]


@pytest.mark.java
async def test_exchange_of_messages_with_java(go: GoClient, own_shell: JavaShell, own_topic: str) -> None:
    await check_reads_java_and_is_read(go, own_shell, own_topic)
