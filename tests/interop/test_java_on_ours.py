"""Apache's Java client 5.3.3 with this project's name server and broker."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_remoting.codes import ResponseCode
from tests.interop.checks import bodies_of, check_shares_the_queues, expected_bodies
from tests.interop.foreign import JavaClient, JavaShell
from tests.support.outcome import Event, expected_body, sha256
from tests.support.own_servers import own_cluster

HEADERS = ["JSON", "ROCKETMQ"]
MODES = ["sync", "async", "oneway", "batch", "queue", "selector", "orderkey"]
MEBIBYTE = 1024 * 1024

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def shells(own_tool: JavaShell, own_shell: JavaShell) -> dict[str, JavaShell]:
    """A JVM for each header serialization."""
    return {"JSON": own_tool, "ROCKETMQ": own_shell}


# --- sending ---


@pytest.mark.smoke("ROCKETMQ")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("header", HEADERS)
async def test_sends_in_every_mode(
    shells: dict[str, JavaShell], own_topic: str, header: str, mode: str
) -> None:
    shell = shells[header]
    sent = await shell.run("send", topic=own_topic, count=6, mode=mode, queue=2, batch=4, tag="A")
    assert sent.check().result["count"] == 6
    statuses = {result["status"] for result in sent.sent}
    assert statuses == {"ONEWAY" if mode == "oneway" else "SEND_OK"}
    pulled = await shell.run("pull", topic=own_topic, group=own_topic, tag="A || B", count=6)
    assert bodies_of(pulled.check()) == expected_bodies(6)
    check_queues(mode, pulled.messages)


def check_queues(mode: str, messages: list[Event]) -> None:
    """Check that six messages are in the queues of the mode of sending."""
    queues = {message["bodySha256"]: message["queueId"] for message in messages}
    in_order = [queues[sha256(expected_body(index))] for index in range(6)]
    if mode == "queue":
        assert in_order == [2] * 6
    elif mode == "selector":
        assert in_order == [0, 1, 2, 3, 0, 1]
    elif mode == "orderkey":
        assert in_order[:3] == in_order[3:]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_compressed_messages(
    shells: dict[str, JavaShell], own_topic: str, header: str, compression: str
) -> None:
    shell = shells[header]
    (await shell.run("send", topic=own_topic, count=2, size=20_000, compress=compression)).check()
    pulled = await shell.run("pull", topic=own_topic, group=own_topic, count=2)
    assert bodies_of(pulled.check()) == expected_bodies(2, 20_000)
    assert all(message["storeSize"] < 2_000 for message in pulled.messages)


async def test_sends_by_the_fast_port_and_in_automatic_batches(own_shell: JavaShell, own_topic: str) -> None:
    (await own_shell.run("send", topic=own_topic, count=3, vip=True)).check()
    (await own_shell.run("send", topic=own_topic, count=50, mode="async", auto_batch=True)).check()
    pulled = await own_shell.run("pull", topic=own_topic, group=own_topic, count=53)
    assert bodies_of(pulled.check()) == sorted(expected_bodies(3) + expected_bodies(50))


async def test_the_first_send_creates_the_topic(own_shell: JavaShell, name: str) -> None:
    (await own_shell.run("send", topic=name, count=3)).check()
    pulled = await own_shell.run("pull", topic=name, group=name, count=3)
    assert bodies_of(pulled.check()) == expected_bodies(3)


async def test_a_message_of_four_mebibytes(own_shell: JavaShell, own_topic: str) -> None:
    largest: dict[str, Any] = {
        "size": 4 * MEBIBYTE,
        "max_message_size": 5 * MEBIBYTE,
        "compress_over": 5 * MEBIBYTE,
    }
    (await own_shell.run("send", topic=own_topic, **largest)).check()
    pulled = await own_shell.run("pull", topic=own_topic, group=own_topic)
    assert bodies_of(pulled.check()) == expected_bodies(1, 4 * MEBIBYTE)


# --- consuming ---


@pytest.mark.parametrize(("tag", "batches"), [("*", 3), ("A || B", 2)])
async def test_consumes(shells: dict[str, JavaShell], own_topic: str, tag: str, batches: int) -> None:
    shell = shells["JSON" if tag == "*" else "ROCKETMQ"]
    for sent_tag in ("A", "B", "C"):
        (await shell.run("send", topic=own_topic, count=3, mode="batch", tag=sent_tag)).check()
    received = await shell.run("consume", topic=own_topic, group=own_topic, tag=tag, count=3 * batches)
    assert bodies_of(received.check()) == sorted(expected_bodies(3) * batches)
    assert received.result["deliveries"] == 3 * batches


async def test_consumes_as_a_broadcast_group(own_shell: JavaShell, own_topic: str) -> None:
    (await own_shell.run("send", topic=own_topic, count=4)).check()
    received = await own_shell.run("consume", topic=own_topic, group=own_topic, count=4, broadcast=True)
    assert bodies_of(received.check()) == expected_bodies(4)


async def test_consumers_of_a_group_share_the_queues(
    own_java: JavaClient, own_shell: JavaShell, own_topic: str
) -> None:
    await check_shares_the_queues(own_java, own_topic, sender=own_shell)
    for queue in range(4):
        rest = await own_shell.run("pull", api="old", topic=own_topic, group=own_topic, queue=queue)
        assert rest.messages == [], "some offsets were not committed"


async def test_a_restarted_group_continues_at_its_offset(own_shell: JavaShell, name: str) -> None:
    async with own_cluster() as (namesrv, broker):
        at: dict[str, Any] = {"namesrv": namesrv.address, "topic": name}
        (await own_shell.run("send", **at, count=4)).check()
        received = await own_shell.run("consume", **at, group=name, count=4)
        assert bodies_of(received.check()) == expected_bodies(4)

        await broker.stop()
        await broker.start()
        (await own_shell.run("send", **at, count=3, size=50)).check()
        received = await own_shell.run("consume", **at, group=name, count=3)
        assert bodies_of(received.check()) == expected_bodies(3, 50)
        assert received.result["deliveries"] == 3

        broker.kill()
        await broker.start()
        read = await own_shell.run("pull", **at, group="other" + name, count=7)
        assert bodies_of(read.check()) == sorted(expected_bodies(4) + expected_bodies(3, 50))


# --- pulling ---


@pytest.mark.parametrize("api", ["lite", "old"])
@pytest.mark.parametrize("header", HEADERS)
async def test_pulls_and_commits(shells: dict[str, JavaShell], own_topic: str, header: str, api: str) -> None:
    shell = shells[header]
    (await shell.run("send", topic=own_topic, count=6, mode="queue", queue=3)).check()
    pulled = await shell.run(
        "pull", api=api, topic=own_topic, group=own_topic, queue=3, offset=2, count=4, max=4, commit=True
    )
    assert [message["queueOffset"] for message in pulled.check().messages] == [2, 3, 4, 5]
    assert [commit["offset"] for commit in pulled.result["committed"]] == [6]
    (await shell.run("send", topic=own_topic, count=1, mode="queue", queue=3)).check()
    pulled = await shell.run("pull", api="old", topic=own_topic, group=own_topic, queue=3)
    assert [message["queueOffset"] for message in pulled.check().messages] == [6]


@pytest.mark.parametrize(
    ("options", "status", "next_offset"),
    [
        ({"queue": 1, "offset": 2}, "NO_NEW_MSG", 2),
        ({"queue": 1, "offset": 9}, "OFFSET_ILLEGAL", 2),
        ({"queue": 1, "offset": 0, "tag": "B"}, "NO_MATCHED_MSG", 2),
        ({"queue": 0, "offset": 0}, "NO_NEW_MSG", 0),
        ({"queue": 0, "offset": 5}, "OFFSET_ILLEGAL", 0),
    ],
)
async def test_pulls_without_messages_name_the_cause(
    own_shell: JavaShell, own_topic: str, options: dict[str, Any], status: str, next_offset: int
) -> None:
    (await own_shell.run("send", topic=own_topic, count=2, mode="queue", queue=1, tag="A")).check()
    pulled = await own_shell.run("pull", api="old", topic=own_topic, group=own_topic, wait_s=3, **options)
    [answer] = [event for event in pulled.events if event["event"] == "pull"]
    assert (answer["status"], answer["nextOffset"]) == (status, next_offset)


# --- refusals ---


@pytest.mark.parametrize(
    ("options", "code", "remark"),
    [
        ({"mode": "queue", "queue": 77}, ResponseCode.INVALID_PARAMETER, "queue id 77 is illegal"),
        (
            {"size": 5_000_000, "max_message_size": 6_000_000, "compress_over": 6_000_000},
            ResponseCode.MESSAGE_ILLEGAL,
            "the limit is 4194304",
        ),
        ({"property": {"long": "x" * 40_000}}, ResponseCode.MESSAGE_ILLEGAL, "properties"),
        ({"delay_s": 400_000}, ResponseCode.MESSAGE_ILLEGAL, "the limit is 259200000 ms"),
    ],
    ids=["queue", "body", "properties", "timer"],
)
async def test_a_refused_send_names_the_cause(
    own_shell: JavaShell, own_topic: str, options: dict[str, Any], code: ResponseCode, remark: str
) -> None:
    refused = await own_shell.run("send", topic=own_topic, retries=0, **options)
    assert refused.error is not None
    assert (refused.error["class"], refused.error["code"]) == ("MQBrokerException", code)
    assert remark in refused.error["remark"]
    stats = (await own_shell.admin("examineTopicStats", topic=own_topic)).check().result
    assert {queue["maxOffset"] for queue in stats["queues"]} == {0}


async def test_an_unknown_topic_is_refused_without_auto_create(own_shell: JavaShell, name: str) -> None:
    change = own_shell.admin("updateBrokerConfig", set={"autoCreateTopicEnable": "false"})
    (await change).check()
    try:
        refused = await own_shell.run("send", topic=name, retries=0)
    finally:
        await own_shell.admin("updateBrokerConfig", set={"autoCreateTopicEnable": "true"})
    assert refused.error is not None
    assert refused.error["code"] == ResponseCode.TOPIC_NOT_EXIST
    assert "autoCreateTopicEnable=true" in refused.error["causes"][0]["remark"]
    (await own_shell.run("send", topic=name, retries=0)).check()
