"""Sends and recalls on the proxy's remoting port: types of messages and of their topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client import Message, Producer
from rmq_client.admin import Admin
from rmq_proxy.proxy import Proxy
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.broker_requests import request, send, succeeded
from tests.support.clusters import RunningCluster
from tests.support.proxied_requests import permissive_cluster, to_broker
from tests.support.raw_client import raw_client
from tests.support.rows import each_row
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until

_DELAY_SECONDS = 2


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with permissive_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def proxy(cluster: RunningCluster) -> AsyncIterator[Proxy]:
    async with running_proxy(cluster.address) as running:
        yield running


async def test_a_delayed_message_is_recalled(cluster: RunningCluster, proxy: Proxy) -> None:
    async with Admin(cluster.address) as admin:
        await admin.create_topic("D", queues=2, attributes={"+message.type": "DELAY"})
    async with Producer(proxy.remoting_address, group="p") as producer:
        sent = await producer.send(Message("D", b"recalled", delay_seconds=_DELAY_SECONDS))
        assert sent.recall_handle is not None
        assert await producer.recall(sent.recall_handle) == sent.msg_id
    name = sent.queue.broker_name
    timers = cluster.brokers[name].services.timers
    await until(lambda: timers.counts.recalled == 1, 20.0)


async def test_a_recall_without_a_valid_handle_has_the_brokers_answer(
    cluster: RunningCluster, proxy: Proxy
) -> None:
    async with Admin(cluster.address) as admin:
        await admin.create_topic("D", queues=1, attributes={"+message.type": "DELAY"})
    recall = request(RequestCode.RECALL_MESSAGE, topic="D", recallHandle="no handle")
    async with cluster.broker.client() as direct, raw_client(remoting_port(proxy)) as client:
        expected = await direct.ask(recall)
        answer = await client.ask(to_broker(recall))
    assert expected.code != ResponseCode.SUCCESS
    assert (answer.code, answer.remark) == (expected.code, expected.remark)


@each_row(
    ("topic_type", "properties", "code"),
    [
        ("NORMAL", {}, ResponseCode.SUCCESS),
        ("NORMAL", {"TIMER_DELAY_MS": "60000"}, ResponseCode.MESSAGE_ILLEGAL),
        ("NORMAL", {"DELAY": "1"}, ResponseCode.MESSAGE_ILLEGAL),
        ("NORMAL", {"DELAY": "1", "TRANSFER_FLAG": "1"}, ResponseCode.SUCCESS),
        ("DELAY", {"TIMER_DELAY_MS": "60000"}, ResponseCode.SUCCESS),
        ("DELAY", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("FIFO", {"__SHARDINGKEY": "k"}, ResponseCode.SUCCESS),
        ("FIFO", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("TRANSACTION", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("MIXED", {"DELAY": "1"}, ResponseCode.SUCCESS),
    ],
)
@each_row("code_of_send", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_message_has_to_be_of_its_topics_type(
    cluster: RunningCluster,
    proxy: Proxy,
    topic_type: str,
    properties: dict[str, str],
    code: int,
    code_of_send: RequestCode,
) -> None:
    async with Admin(cluster.address) as admin:
        attributes = {"+message.type": topic_type}
        await admin.create_topic(topic_type, queues=1, attributes=attributes, exists_ok=True)
    async with raw_client(remoting_port(proxy)) as client:
        answer = await client.ask(to_broker(send(topic_type, properties=properties, code=code_of_send)))
    assert answer.code == code, answer.remark
    if code == ResponseCode.MESSAGE_ILLEGAL:
        assert f"the expected type is {topic_type}" in (answer.remark or "")


async def test_only_messages_of_delay_topics_are_recalled(proxy: Proxy) -> None:
    recall = request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle="any")
    async with raw_client(remoting_port(proxy)) as client:
        answer = await client.ask(to_broker(recall))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "the expected type is NORMAL, but actual type is DELAY" in (answer.remark or "")


async def test_the_check_of_types_can_be_off(cluster: RunningCluster) -> None:
    delayed = to_broker(send("T", properties={"TIMER_DELAY_MS": "60000"}))
    async with (
        running_proxy(cluster.address, enableTopicMessageTypeCheck=False) as proxy,
        raw_client(remoting_port(proxy)) as client,
    ):
        succeeded(await client.ask(delayed))


async def test_messages_of_retry_topics_have_no_type(cluster: RunningCluster, proxy: Proxy) -> None:
    async with Admin(cluster.address) as admin:
        await admin.create_topic("%RETRY%G", queues=1)
    async with raw_client(remoting_port(proxy)) as client:
        succeeded(await client.ask(to_broker(send("%RETRY%G", properties={"DELAY": "1"}))))
