"""Apache's Java consumers with SQL filters, with this project's broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rmq_remoting.codes import ResponseCode
from tests.interop.clusters import Own
from tests.interop.foreign import JavaShell

pytestmark = pytest.mark.java


@pytest_asyncio.fixture
async def shell(own: Own, own_shell: JavaShell) -> AsyncIterator[JavaShell]:
    """A JVM for a broker with property filters, which are off by default."""
    (await own_shell.admin("updateBrokerConfig", set={"enablePropertyFilter": "true"})).check()
    yield own_shell
    (await own_shell.admin("updateBrokerConfig", set={"enablePropertyFilter": "false"})).check()


async def test_off_by_default(own_shell: JavaShell, own_topic: str) -> None:
    refused = await own_shell.run("consume", topic=own_topic, group=own_topic, sql="a > 3")
    assert refused.error is not None
    assert refused.error["code"] == ResponseCode.SYSTEM_ERROR
    assert "enablePropertyFilter=true" in refused.error["remark"]


async def test_consumes_matching_messages(shell: JavaShell, own_topic: str) -> None:
    for number in range(6):
        values = {"a": str(number), "color": "red" if number % 2 else "blue"}
        (await shell.run("send", topic=own_topic, property=values)).check()
    sql = "a BETWEEN 1 AND 4 AND color IN ('red', 'green') OR color = 'blue' AND a = 0"
    received = await shell.run("consume", topic=own_topic, group=own_topic, sql=sql, count=3)
    received.check()
    assert sorted(message["properties"]["a"] for message in received.messages) == ["0", "1", "3"]
    assert received.result["deliveries"] == 3


async def test_an_invalid_expression_is_explained_at_start(shell: JavaShell, own_topic: str) -> None:
    refused = await shell.run("consume", topic=own_topic, group=own_topic, sql="a > 3 AND b LIKE 'x%'")
    assert refused.error is not None
    assert refused.error["code"] == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "character 13" in refused.error["remark"] and "CONTAINS" in refused.error["remark"]
