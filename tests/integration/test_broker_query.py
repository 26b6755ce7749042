"""Looking messages up, and how far groups have come, over the wire: codes 12, 33, 208, 303, 315, 317, 321."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_remoting.bodies.broker_stats import BrokerStatsData
from rmq_remoting.bodies.checks import QueryConsumeQueueResponseBody
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.offsets import ConsumeStats, ConsumeStatsList, QueryConsumeTimeSpanBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.query import QueryMessageResponseHeader
from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_codec import decode_messages
from tests.support.broker_requests import heartbeat, pull, pulled, request, send, send_batch, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient

_FOREVER = 2**63 - 1


def by_key(key: str, **fields: object) -> RemotingCommand:
    chosen = {
        "topic": "T",
        "key": key,
        "maxNum": 32,
        "beginTimestamp": 0,
        "endTimestamp": _FOREVER,
        **fields,
    }
    return request(RequestCode.QUERY_MESSAGE, **chosen)


def by_unique_key(key: str, **fields: object) -> RemotingCommand:
    return by_key(key, **{"_UNIQUE_KEY_QUERY": "true", **fields})


def by_offset(offset: int) -> RemotingCommand:
    return request(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in pulled(answer)]


async def store(client: RawClient, body: bytes, keys: str = "", unique_key: str = "U0") -> MessageExt:
    """Send a message to T/0; the message as it is stored."""
    properties = {"UNIQ_KEY": unique_key, **({"KEYS": keys} if keys else {})}
    offset = sent(await client.ask(send("T", body, properties=properties))).queue_offset
    [message] = pulled(await client.ask(pull("T", offset=offset, count=1)))
    await indexed(client, unique_key)
    return message


async def indexed(client: RawClient, unique_key: str) -> None:
    """Wait for the index: of a broker that has just started it is made in the background."""
    async with asyncio.timeout(20):
        while (await client.ask(by_unique_key(unique_key))).code != ResponseCode.SUCCESS:
            pass


async def test_messages_by_key(client: RawClient) -> None:
    await store(client, b"1", "a b", "U1")
    second = await store(client, b"2", "b", "U2")
    await store(client, b"3", "c", "U3")
    answer = await client.ask(by_key("b"))
    assert bodies(answer) == [b"1", b"2"]
    assert decode_messages(answer.body)[1] == second
    header = QueryMessageResponseHeader.decode(answer.ext_fields)
    assert header.index_last_update_physical_offset > second.physical_offset
    assert header.index_last_update_timestamp >= second.store_timestamp
    assert bodies(await client.ask(by_key("b", maxNum=1))) == [b"2"]
    assert bodies(await client.ask(by_unique_key("U1"))) == [b"1"]
    for command in (by_key("d"), by_key("b", topic="Other"), by_key("B"), by_key("a b")):
        refused = await client.ask(command)
        assert refused.code == ResponseCode.QUERY_NOT_FOUND
        assert command.ext_fields["key"] in (refused.remark or "")


async def test_messages_of_a_time(client: RawClient) -> None:
    message = await store(client, b"1", "a")
    # The index counts whole seconds.
    begin, end = message.store_timestamp - 2000, message.store_timestamp + 2000
    assert bodies(await client.ask(by_key("a", beginTimestamp=begin, endTimestamp=end))) == [b"1"]
    for fields in (
        {"beginTimestamp": end},
        {"endTimestamp": begin},
        {"beginTimestamp": end, "endTimestamp": begin},
    ):
        assert (await client.ask(by_key("a", **fields))).code == ResponseCode.QUERY_NOT_FOUND


async def test_the_messages_of_a_batch(client: RawClient) -> None:
    messages = [Message("T", f"{number}".encode(), keys=[f"k{number}", "all"]) for number in range(3)]
    await client.ask(send_batch("T", messages, properties={"UNIQ_KEY": "BATCH"}))
    await store(client, b"last", unique_key="LAST")  # the index follows the log
    assert bodies(await client.ask(by_key("k1"))) == [b"1"]
    assert bodies(await client.ask(by_key("all"))) == [b"0", b"1", b"2"]
    assert bodies(await client.ask(by_unique_key("BATCH"))) == [b"0", b"1", b"2"]


async def test_what_one_query_gets_is_bounded(client: RawClient) -> None:
    messages = [Message("T", f"{number}".encode(), keys="k") for number in range(70)]
    await client.ask(send_batch("T", messages, properties={"UNIQ_KEY": "BATCH"}))
    await store(client, b"last", unique_key="LAST")  # the index follows the log
    newest = [f"{number}".encode() for number in range(70)]
    assert bodies(await client.ask(by_key("k", maxNum=1000))) == newest[-64:]
    assert bodies(await client.ask(by_unique_key("BATCH", maxNum=1000))) == newest[-32:]


async def test_messages_are_found_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await store(client, b"1", "a", "U1")
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await store(client, b"2", "a", "U2")
        assert bodies(await client.ask(by_key("a"))) == [b"1", b"2"]
        assert bodies(await client.ask(by_unique_key("U1"))) == [b"1"]


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_message_by_its_place(client: RawClient, serialization: Serialization) -> None:
    await store(client, b"1")
    message = await store(client, b"2")
    command = by_offset(message.physical_offset)
    command.serialization = serialization
    answer = await client.ask(command)
    assert decode_messages(answer.body) == [message]
    assert answer.serialization == serialization


async def test_places_where_no_message_begins(client: RawClient) -> None:
    await store(client, b"x" * 300)
    end = sent(await client.ask(send("T", b"y" * 300)))
    [last] = pulled(await client.ask(pull("T", offset=end.queue_offset)))
    places = [*range(1, last.physical_offset), last.physical_offset + 1]
    places += [last.physical_offset + last.store_size, 2**40, 2**63 - 1, -1, -(2**63)]
    for place in places:
        answer = await client.ask(by_offset(place))
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b""), place
        assert f"offset {place} " in (answer.remark or "")


async def test_the_entries_of_a_queue(broker: RunningBroker, client: RawClient) -> None:
    first = await store(client, b"1")
    properties = {"TAGS": "A"}
    second = sent(await client.ask(send("T", b"2", properties=properties)))

    async def entries(**fields: object) -> QueryConsumeQueueResponseBody:
        chosen = {"topic": "T", "queueId": 0, "index": 0, "count": 10, **fields}
        answer = await client.ask(request(RequestCode.QUERY_CONSUME_QUEUE, **chosen))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return QueryConsumeQueueResponseBody.decode(answer.body)

    body = await entries()
    assert (body.min_queue_index, body.max_queue_index) == (0, 2)
    shown = [(each.physical_offset, each.physical_size, each.tags_code) for each in body.queue_data or []]
    assert shown[0] == (first.physical_offset, first.store_size, 0)
    assert shown[1][2] == string_hash_code("A") and second.queue_offset == 1
    async with broker.client() as consumer:
        await consumer.ask(heartbeat("c1", "CG", {"T": "A"}))
        body = await entries(index=1, count=1, consumerGroup="CG")
    assert len(body.queue_data or []) == 1
    assert body.subscription_data is not None and body.subscription_data.sub_string == "A"
    assert (await entries(index=2)).queue_data == []
    for fields in ({"topic": "Other"}, {"queueId": 3}, {"queueId": -1}):
        chosen = {"topic": "T", "queueId": 0, "index": 0, "count": 1, **fields}
        answer = await client.ask(request(RequestCode.QUERY_CONSUME_QUEUE, **chosen))
        assert answer.code == ResponseCode.SYSTEM_ERROR and "no queue" in (answer.remark or "")


async def test_where_a_group_is(client: RawClient) -> None:
    messages = [await store(client, body) for body in (b"1", b"2", b"3")]
    await client.ask(pull("T", "CG", offset=2, commit=2))

    answer = await client.ask(request(RequestCode.GET_CONSUME_STATS, consumerGroup="CG"))
    stats = ConsumeStats.decode(answer.body)
    reach = {queue.queue_id: each for queue, each in stats.offset_table.items()}
    assert (reach[0].broker_offset, reach[0].consumer_offset) == (3, 2)
    assert reach[0].last_timestamp == messages[1].store_timestamp
    assert reach[1].broker_offset == 0
    assert stats.consume_tps > 0

    answer = await client.ask(request(RequestCode.QUERY_CONSUME_TIME_SPAN, group="CG", topic="T"))
    span = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set[0]
    assert (span.min_timestamp, span.max_timestamp) == (
        messages[0].store_timestamp,
        messages[2].store_timestamp,
    )
    assert span.consume_timestamp == messages[1].store_timestamp

    told = ConsumeStatsList.decode((await client.ask(request(RequestCode.GET_BROKER_CONSUME_STATS))).body)
    assert told.total_diff == 1
    assert {group for each in told.consume_stats_list for group in each} > {"CG"}


async def test_the_query_pool_is_shown(client: RawClient) -> None:
    table = KVTable.decode((await client.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
    assert (table["queryThreadPoolQueueSize"], table["queryThreadPoolQueueCapacity"]) == ("0", "20000")


async def test_what_was_counted(client: RawClient) -> None:
    for _ in range(4):
        await store(client, b"x")

    async def counted(name: str, key: str) -> int:
        answer = await client.ask(request(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        data = BrokerStatsData.decode(answer.body)
        assert data.stats_minute is not None and data.stats_hour is not None and data.stats_day is not None
        assert data.stats_minute.sum == data.stats_hour.sum == data.stats_day.sum
        return data.stats_day.sum

    assert await counted("TOPIC_PUT_NUMS", "T") == 4
    assert await counted("TOPIC_PUT_SIZE", "T") > 400
    assert await counted("GROUP_GET_NUMS", "T@CG") == 4
    assert await counted("BROKER_PUT_NUMS", "DefaultCluster") == 4
    unknown = request(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="Other")
    answer = await client.ask(unknown)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "TOPIC_PUT_NUMS of Other" in (answer.remark or "")
