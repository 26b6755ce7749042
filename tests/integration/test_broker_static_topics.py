"""Static topics: one logical queue on two brokers, which ask each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rmq_remoting.bodies.offsets import ConsumeStats
from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.bodies.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
)
from rmq_remoting.bodies.topic import TopicStatsTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.pull import PullMessageResponseHeader
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_requests import (
    create_topic,
    heartbeat,
    offsets,
    pull,
    pulled,
    request,
    send,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.raw_client import RawClient, raw_client
from tests.support.signed_requests import AUTHENTICATION, ROOT, signed
from tests.support.static_topics import EPOCH, item, map_topic, mapping
from tests.support.waiting import until

_BEGIN = 10_000


class _Pair:
    """Two brokers, A and B, of one name server, and connections to each of them."""

    def __init__(
        self,
        namesrv: RawClient,
        brokers: list[RunningBroker],
        clients: list[RawClient],
        members: list[RawClient],
    ) -> None:
        """`members`: connections for heartbeats, since the brokers send notifications to them."""
        self.namesrv = namesrv
        self.broker_a, self.broker_b = brokers
        self.a, self.b = clients
        self._members = members

    async def map_to_a(self) -> None:
        """Create the topic S with two logical queues at A; B has none."""
        queues = {0: [item("A", 0)], 1: [item("A", 1)]}
        succeeded(await self.a.ask(map_topic(mapping("A", queues), 2)))
        succeeded(await self.b.ask(map_topic(mapping("B", {}, total=2), 0)))

    async def remap_to_b(self, *steps: int) -> None:
        """Move logical queue 0 to B, in the steps of mqadmin (1: B, 2: A, 4: B with its logical offset)."""
        for step in steps or (1, 2, 4):
            begin = _BEGIN if step == 4 else -1
            items = [item("A", 0), item("B", 0, begin, generation=1)]
            if step == 2:
                queues = {0: items, 1: [item("A", 1)]}
                succeeded(await self.a.ask(map_topic(mapping("A", queues, epoch=EPOCH + 1000), 2)))
            else:
                moved = mapping("B", {0: items}, total=2, epoch=EPOCH + 1000)
                succeeded(await self.b.ask(map_topic(moved)))

    async def join(self) -> None:
        """Let the group CG subscribe to S at both brokers."""
        for member in self._members:
            await member.ask(heartbeat("client", "CG", {"S": "*"}))


class _SignedClient(RawClient):
    """A client of the user root."""

    def __init__(self, client: RawClient) -> None:
        super().__init__(client._reader, client.writer)

    def send(self, *commands: RemotingCommand) -> None:
        super().send(*(signed(command, ROOT) for command in commands))


@asynccontextmanager
async def _running_pair(folder: Path, *, signs: bool = False, **keys: object) -> AsyncIterator[_Pair]:
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(running_namesrv(folder))
        brokers = [
            await stack.enter_async_context(
                running_broker(folder / name, brokerName=name, namesrvAddr=namesrv.address, **keys)
            )
            for name in ("A", "B")
        ]
        connections = [await stack.enter_async_context(broker.client()) for broker in (*brokers, *brokers)]
        if signs:
            connections = [_SignedClient(client) for client in connections]
        port = int(namesrv.address.rpartition(":")[2])
        ask = await stack.enter_async_context(raw_client(port))
        yield _Pair(ask, brokers, connections[:2], connections[2:])


async def _read_all(client: RawClient, offset: int = 0) -> list[tuple[int, bytes]]:
    """Pull logical queue 0 until it has no further message; return logical offsets and bodies."""
    read: list[tuple[int, bytes]] = []
    while True:
        answer = await client.ask(pull("S", offset=offset))
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return read
        if answer.code == ResponseCode.SUCCESS:
            header = PullMessageResponseHeader.decode(answer.ext_fields)
            delta = header.offset_delta or 0
            assert header.suggest_which_broker_id == 0
            read += [(message.queue_offset + delta, message.body) for message in pulled(answer)]
        else:
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY, answer.remark
        offset, _, _ = offsets(answer)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[_Pair]:
    async with _running_pair(tmp_path) as running:
        yield running


def _offset(answer: RemotingCommand) -> int:
    return int(succeeded(answer).ext_fields["offset"])


def _of_queue(code: int, queue_id: int = 0, **fields: object) -> RemotingCommand:
    return request(code, topic="S", queueId=queue_id, **fields)


async def test_messages_are_read_in_order_across_brokers(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    for body in (b"0", b"1", b"2"):
        sent(await pair.a.ask(send("S", body)))
    await pair.remap_to_b()
    refused = await pair.a.ask(send("S", b"lost"))
    assert (refused.code, refused.remark) == (
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        "broker A does not lead logical queue 0 of static topic S: broker B does",
    )
    place = sent(await pair.b.ask(send("S", b"3")))
    assert (place.queue_id, place.queue_offset) == (0, _BEGIN)
    expected = [(0, b"0"), (1, b"1"), (2, b"2"), (_BEGIN, b"3")]
    assert await _read_all(pair.b) == expected
    for serialization in Serialization:
        answer = await pair.b.ask(pull("S", offset=1, count=1, serialization=serialization))
        assert [message.body for message in pulled(answer)] == [b"1"]
        assert offsets(answer) == (2, 0, _BEGIN)
    assert (await pair.a.ask(pull("S"))).code == ResponseCode.NOT_LEADER_FOR_QUEUE


@pytest.mark.parametrize("keys", [AUTHENTICATION, {"flushDiskType": "SYNC_FLUSH"}])
async def test_the_same_with_signatures_and_with_flushes(tmp_path: Path, keys: dict[str, object]) -> None:
    async with _running_pair(tmp_path, signs=keys is AUTHENTICATION, **keys) as pair:
        await pair.map_to_a()
        await pair.join()
        # The mapping is changed while a message is being flushed.
        pair.a.send(send("S", b"0"), send("S", b"1"))
        await pair.remap_to_b(1)
        for _ in range(2):
            sent(await pair.a.receive())
        await pair.remap_to_b(2, 4)
        sent(await pair.b.ask(send("S", b"2")))
        assert await _read_all(pair.b) == [(0, b"0"), (1, b"1"), (_BEGIN, b"2")]
        commit = _of_queue(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="CG", commitOffset=1)
        succeeded(await pair.b.ask(commit))
        assert pair.broker_a.offsets.query("CG", "S", 0) == 1


async def test_a_logical_queue_may_have_another_number_than_its_physical_one(pair: _Pair) -> None:
    queues = {0: [item("A", 2)], 1: [item("A", 0)], 2: [item("A", 1)]}
    succeeded(await pair.a.ask(map_topic(mapping("A", queues), 3)))
    place = sent(await pair.a.ask(send("S", b"body", queue_id=0)))
    assert (place.queue_id, place.queue_offset) == (0, 0)
    assert pair.broker_a.bodies("S", 2) == [b"body"]
    assert sent(await pair.a.ask(send("S", b"any", queue_id=-1))).queue_id in (0, 1, 2)


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "5"}, {"TRAN_MSG": "true"}])
async def test_messages_that_reach_their_queue_later_are_refused(
    pair: _Pair, properties: dict[str, str]
) -> None:
    await pair.map_to_a()
    answer = await pair.a.ask(send("S", properties=properties))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "takes no delayed, timed or transactional messages" in (answer.remark or "")


async def test_consumers_wait_while_a_remapping_is_under_way(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    sent(await pair.a.ask(send("S", b"0")))
    await pair.remap_to_b(1, 2)
    # B stores messages already, and does not know their logical offsets.
    assert sent(await pair.b.ask(send("S", b"1"))).queue_offset == -1
    answer = await pair.b.ask(pull("S", offset=1, suspend_ms=5000))
    assert (answer.code, offsets(answer)[0]) == (ResponseCode.PULL_NOT_FOUND, 1)
    assert _offset(await pair.b.ask(_of_queue(RequestCode.GET_MAX_OFFSET))) == 1
    await pair.remap_to_b(4)
    assert await _read_all(pair.b) == [(0, b"0"), (_BEGIN, b"1")]


async def test_a_pull_at_the_end_of_the_leader_is_held(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    await pair.remap_to_b()
    pair.b.send(pull("S", offset=_BEGIN, suspend_ms=5000))
    await until(lambda: pair.broker_b.held_pulls.count == 1)
    async with pair.broker_b.client() as producer:
        sent(await producer.ask(send("S", b"new")))
    answer = await pair.b.receive()
    assert [message.body for message in pulled(answer)] == [b"new"]
    assert offsets(answer) == (_BEGIN + 1, _BEGIN, _BEGIN + 1)


async def test_a_held_pull_is_answered_when_its_queue_is_moved(pair: _Pair) -> None:
    """Its consumer would learn of the new leader at the end of its wait otherwise."""
    await pair.map_to_a()
    await pair.join()
    for queue_id in (0, 1):
        pair.a.send(pull("S", queue_id=queue_id, suspend_ms=60_000))
    await until(lambda: pair.broker_a.held_pulls.count == 2)
    async with pair.broker_a.client() as tool:
        pair.a, held = tool, pair.a
        await pair.remap_to_b()
        answer = await held.receive()
        assert (answer.code, offsets(answer)[0]) == (ResponseCode.PULL_NOT_FOUND, 0)
        assert pair.broker_a.held_pulls.count == 1, "the other queue stays"
        assert (await tool.ask(pull("S"))).code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_offsets_of_groups_are_kept_where_the_messages_are(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    for _ in range(3):
        sent(await pair.a.ask(send("S")))
    await pair.remap_to_b()
    sent(await pair.b.ask(send("S")))
    query = _of_queue(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CG")
    assert _offset(await pair.b.ask(query)) == 0  # the first message is newer than the group
    explicit = _of_queue(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CG", setZeroIfNotFound=False)
    assert (await pair.b.ask(explicit)).code == ResponseCode.QUERY_NOT_FOUND

    async def commit(offset: int) -> RemotingCommand:
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        return await pair.b.ask(_of_queue(code, consumerGroup="CG", commitOffset=offset))

    succeeded(await commit(2))
    assert pair.broker_a.offsets.query("CG", "S", 0) == 2
    assert _offset(await pair.b.ask(query)) == 2
    succeeded(await commit(_BEGIN + 1))
    assert pair.broker_b.offsets.query("CG", "S", 0) == 1
    assert _offset(await pair.b.ask(query)) == _BEGIN + 1
    beyond = await commit(_BEGIN + 2)
    assert beyond.code == ResponseCode.INVALID_PARAMETER
    assert (await pair.a.ask(query)).code == ResponseCode.NOT_LEADER_FOR_QUEUE
    # A pull that carries an offset of the leader commits it, too.
    sent(await pair.b.ask(send("S")))
    succeeded(await pair.b.ask(pull("S", offset=_BEGIN + 1, commit=_BEGIN + 1)))
    await pair.b.ask(pull("S", offset=2, commit=_BEGIN))
    assert pair.broker_b.offsets.query("CG", "S", 0) == 1


async def test_ends_and_times_of_a_logical_queue(pair: _Pair) -> None:
    await pair.map_to_a()
    for _ in range(3):
        sent(await pair.a.ask(send("S")))
    await pair.remap_to_b()
    for _ in range(2):
        sent(await pair.b.ask(send("S")))
    assert _offset(await pair.b.ask(_of_queue(RequestCode.GET_MIN_OFFSET))) == 0
    assert _offset(await pair.b.ask(_of_queue(RequestCode.GET_MAX_OFFSET))) == _BEGIN + 2
    times_a = [message.store_timestamp for message in pair.broker_a.stored("S")]
    times_b = [message.store_timestamp for message in pair.broker_b.stored("S")]
    earliest = succeeded(await pair.b.ask(_of_queue(RequestCode.GET_EARLIEST_MSG_STORETIME)))
    assert earliest.ext_fields["timestamp"] == str(times_a[0])
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert _offset(await pair.b.ask(_of_queue(search, timestamp=times_a[0]))) == 0
    assert _offset(await pair.b.ask(_of_queue(search, timestamp=times_b[-1] + 1))) == _BEGIN + 2
    for code in (search, RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_MAX_OFFSET):
        assert (await pair.a.ask(_of_queue(code, timestamp=0))).code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_what_tools_and_clients_learn_of_a_static_topic(pair: _Pair) -> None:
    await pair.map_to_a()
    sent(await pair.a.ask(send("S")))
    await pair.remap_to_b()
    route = TopicRouteData.decode(
        succeeded(await pair.namesrv.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="S"))).body
    )
    infos = route.topic_queue_mapping_by_broker or {}
    assert {name: (info.current_id_map, info.epoch) for name, info in infos.items()} == {
        "A": ({1: 1}, EPOCH + 1000),
        "B": ({0: 0}, EPOCH + 1000),
    }
    answer = succeeded(await pair.b.ask(request(RequestCode.GET_TOPIC_CONFIG, topic="S", lo=True)))
    detail = TopicConfigAndQueueMapping.decode(answer.body).mapping_detail
    assert detail is not None and detail.hosted_queues == {0: [item("A"), item("B", 0, _BEGIN, generation=1)]}
    answer = succeeded(await pair.b.ask(request(RequestCode.GET_TOPIC_CONFIG, topic="S")))
    assert TopicConfigAndQueueMapping.decode(answer.body).mapping_detail is None
    answer = succeeded(await pair.a.ask(request(RequestCode.GET_ALL_TOPIC_CONFIG)))
    table = TopicConfigAndMappingSerializeWrapper.decode(answer.body)
    assert set(table.topic_queue_mapping_detail_map) == {"S"}
    assert table.mapping_data_version == pair.broker_a.topics.mappings.data_version
    # The statistics are those of physical queues; mqadmin translates them.
    answer = succeeded(await pair.a.ask(request(RequestCode.GET_TOPIC_STATS_INFO, topic="S")))
    assert TopicStatsTable.decode(answer.body).offset_table[MessageQueue("S", "A", 0)].max_offset == 1
    await pair.join()
    fields = {"consumerGroup": "CG", "topic": "S"}
    answer = succeeded(await pair.b.ask(request(RequestCode.GET_CONSUME_STATS, **fields)))
    stats = ConsumeStats.decode(answer.body).offset_table[MessageQueue("S", "B", 0)]
    assert (stats.consumer_offset, stats.pull_offset) == (-1, -1)


async def test_the_leader_locks_a_logical_queue(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    queues = [MessageQueue("S", "__syslo__global__", number) for number in (0, 1, 2)]
    body = LockBatchRequestBody(consumer_group="CG", client_id="client", mq_set=queues)
    answer = succeeded(await pair.a.ask(request(RequestCode.LOCK_BATCH_MQ, body.encode())))
    assert set(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set) == set(queues[:2])
    answer = succeeded(await pair.b.ask(request(RequestCode.LOCK_BATCH_MQ, body.encode())))
    assert LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == []


async def test_a_broker_that_does_not_answer_is_named(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    sent(await pair.a.ask(send("S")))
    await pair.remap_to_b()
    await pair.broker_a.broker.listeners.stop()
    for command in (pull("S"), _of_queue(RequestCode.GET_MIN_OFFSET)):
        answer = await pair.b.ask(command)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "broker A, which has a part of a queue of static topic S, cannot be asked" in (
            answer.remark or ""
        )
    # The leader goes on.
    assert sent(await pair.b.ask(send("S"))).queue_offset == _BEGIN


async def test_mappings_survive_a_restart_and_end_with_their_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path, brokerName="A") as broker, broker.client() as client:
        succeeded(await client.ask(map_topic(mapping("A", {0: [item("A", 1)]}), 2)))
    async with running_broker(tmp_path, brokerName="A") as broker, broker.client() as client:
        assert sent(await client.ask(send("S", b"kept"))).queue_id == 0
        assert broker.bodies("S", 1) == [b"kept"]
        succeeded(await client.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="S")))
        succeeded(await client.ask(create_topic("S", 1)))
        assert sent(await client.ask(send("S", b"plain"))).queue_offset == 0
    async with running_broker(tmp_path, brokerName="A") as broker:
        assert "S" not in broker.topics.mappings


async def test_items_without_messages_are_removed(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.remap_to_b()
    sent(await pair.b.ask(send("S", b"first")))

    def items() -> list[LogicQueueMappingItem]:
        found = pair.broker_b.topics.mappings.get("S")
        assert found is not None
        return list(found.led_items(0))

    await pair.broker_b.broker.master_services.mapping_cleaner.clean()
    assert items() == [item("B", 0, _BEGIN, generation=1)]
    await pair.join()
    assert await _read_all(pair.b, _BEGIN) == [(_BEGIN, b"first")]
    assert _offset(await pair.b.ask(_of_queue(RequestCode.GET_MIN_OFFSET))) == _BEGIN


async def test_a_held_pull_of_a_topic_that_becomes_static_is_refused(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, brokerName="A") as broker,
        broker.client() as consumer,
        broker.client() as client,
    ):
        succeeded(await client.ask(create_topic("S", 1)))
        await client.ask(heartbeat("client", "CG", {"S": "*"}))
        consumer.send(pull("S", suspend_ms=5000))
        await until(lambda: broker.held_pulls.count == 1)
        client.send(map_topic(mapping("A", {0: [item("A")]})), send("S"))
        answer = await consumer.receive()
        assert (answer.code, answer.remark) == (
            ResponseCode.NOT_LEADER_FOR_QUEUE,
            "topic S has become static: ask a name server for its route",
        )
        assert [message.body for message in pulled(await consumer.ask(pull("S")))] == [b"body"]


async def test_consumers_wait_for_messages_that_are_being_flushed(pair: _Pair) -> None:
    await pair.map_to_a()
    await pair.join()
    sent(await pair.a.ask(send("S", b"0")))
    await pair.remap_to_b()
    queue = pair.broker_a.store.queues.get("S", 0)
    assert queue is not None
    queue.next_offset = 2
    answer = await pair.b.ask(pull("S", offset=1))
    assert (answer.code, offsets(answer)[0]) == (ResponseCode.PULL_NOT_FOUND, 1)
    answer = succeeded(await pair.a.ask(request(RequestCode.GET_TOPIC_STATS_INFO, topic="S")))
    assert TopicStatsTable.decode(answer.body).offset_table[MessageQueue("S", "A", 0)].max_offset == 2
    queue.next_offset = 1
    assert await _read_all(pair.b) == [(0, b"0")]
