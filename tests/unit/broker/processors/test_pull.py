"""The pull processor in virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import Heartbeat
from rmq_broker.delivery.waiting_requests import TICK_SECONDS
from rmq_broker.store.api import ColdLog, pack_host
from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.configuration import Change
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.pull import PullMessageResponseHeader
from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.pending_answer import PendingAnswer
from tests.support.broker_requests import offsets, pull, pulled
from tests.support.cold_log import make_cold, make_warm
from tests.support.frames import decode_one
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until

_HOST = pack_host("10.0.0.1", 10911)


class _Broker(LocalBroker):
    def __init__(self, folder: Path, **keys: object) -> None:
        small_pool = {"pullColdThreadPoolNums": 2, "pullColdThreadPoolQueueCapacity": 3}
        super().__init__(folder, **{**small_pool, **keys})  # type: ignore[arg-type]
        self.seconds = time.monotonic()
        self.held = self.services.pulls.held_pulls
        self.held.clock = lambda: self.seconds
        self.processor = self.processors.pull
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))

    def pull(self, command: RemotingCommand, peer: Peer | None = None) -> Result:
        return self.processor.pull((peer or Peer()).connection, decode_one(encode_frame(command)))

    def subscribe(
        self,
        expression: str,
        version: int,
        *,
        peer: Peer | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        subscription = SubscriptionData(
            topic="T",
            sub_string=expression,
            sub_version=version,
            tags_set=[expression],
            code_set=[string_hash_code(expression)],
        )
        data = ConsumerData(group_name="CG", message_model=model, subscription_data_set=[subscription])
        client = ConnectedClient((peer or Peer()).connection, "c1", LanguageCode.PYTHON, 479, 0)
        self.consumers.register(Heartbeat(data), client)

    async def seconds_until_answered(self, future: asyncio.Future[Answer]) -> float:
        """Let time pass until the pull is answered; return the seconds."""
        began = self.seconds
        while not future.done():
            assert self.seconds - began < 60
            self.seconds += TICK_SECONDS
            self.held.expire()
            await loop_passes()
        return self.seconds - began


def _answer(result: Result) -> RemotingCommand:
    """Return the response of an answered pull."""
    if isinstance(result, asyncio.Future):
        result = result.result()
    assert result is not None
    assert not isinstance(result, asyncio.Future | PendingAnswer)
    return decode_one(result) if isinstance(result, bytes) else result


def _held(result: Result) -> asyncio.Future[Answer]:
    """Return the future answer of a held pull."""
    assert isinstance(result, asyncio.Future)
    assert not result.done()
    return result


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    broker = _Broker(tmp_path)
    yield broker
    broker.close()


@pytest.mark.parametrize(
    ("asked_ms", "held_seconds"), [(15_000, 15), (20_000, 20), (30_000, 30), (90_000, 30), (0, 0), (-5, 0)]
)
async def test_a_pull_is_held_as_long_as_asked_and_30_s_at_most(
    broker: _Broker, asked_ms: int, held_seconds: float
) -> None:
    result = broker.pull(pull("T", suspend_ms=asked_ms))

    seconds = await broker.seconds_until_answered(_held(result))

    assert held_seconds <= seconds <= held_seconds + 3 * TICK_SECONDS
    assert _answer(result).code == ResponseCode.PULL_NOT_FOUND
    assert broker.held.count == 0


async def test_without_long_polling_a_pull_is_held_for_a_second(tmp_path: Path) -> None:
    broker = _Broker(tmp_path, longPollingEnable="false")
    result = broker.pull(pull("T", suspend_ms=15_000))

    seconds = await broker.seconds_until_answered(_held(result))

    assert 1.0 <= seconds <= 1.0 + 3 * TICK_SECONDS
    broker.close()


async def test_a_changed_hold_time_counts_at_once(broker: _Broker) -> None:
    broker.settings.long_polling_max_hold_ms = 5000
    result = broker.pull(pull("T", suspend_ms=15_000))
    assert await broker.seconds_until_answered(_held(result)) < 6


async def test_the_last_look_finds_messages_without_a_wake_up(broker: _Broker) -> None:
    result = broker.pull(pull("T", suspend_ms=15_000))
    broker.store.appender.remove_arrival_listener(broker.held.arrived)
    broker.put()

    await broker.seconds_until_answered(_held(result))

    assert len(pulled(_answer(result))) == 1


async def test_an_expired_pull_is_told_of_skipped_messages(broker: _Broker) -> None:
    broker.put(tag="a")
    result = broker.pull(pull("T", offset=1, subscription="a", suspend_ms=15_000))
    broker.put(3, tag="b")
    await loop_passes()

    await broker.seconds_until_answered(_held(result))

    answer = _answer(result)
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert offsets(answer) == (4, 0, 4)


async def test_a_pull_that_skips_many_messages_is_answered(tmp_path: Path) -> None:
    # A look searches two entries of 20 bytes, and 20 times as many by tags.
    broker = _Broker(tmp_path, maxFilterMessageSize=40)
    result = broker.pull(pull("T", count=1, subscription="a", suspend_ms=15_000))
    broker.put(1000, tag="b")
    await loop_passes()

    answer = _answer(result)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert offsets(answer) == (80, 0, 1000)
    broker.close()


async def test_a_held_pull_whose_messages_are_deleted_is_moved(broker: _Broker) -> None:
    broker.put(count=5)
    result = broker.pull(pull("T", offset=5, suspend_ms=15_000))
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    broker.put()
    queue.min_offset = 6  # all of them were deleted by age
    queue.max_offset = 8
    await loop_passes()

    answer = _answer(result)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert offsets(answer) == (6, 6, 8)


async def test_a_held_pull_is_refused_after_its_group_was_disabled(broker: _Broker) -> None:
    result = broker.pull(pull("T", suspend_ms=15_000))
    broker.groups.update(SubscriptionGroupConfig(group_name="CG", consume_enable=False))
    broker.put()
    await loop_passes()

    assert isinstance(result, asyncio.Future)
    error = result.exception()
    assert isinstance(error, CommandError)
    assert error.code == ResponseCode.NO_PERMISSION


async def test_a_held_pull_with_a_new_filter_reads_from_its_offset_again(broker: _Broker) -> None:
    broker.subscribe("a", 1)
    result = broker.pull(pull("T", subscription=None, sub_version=1, suspend_ms=15_000))
    broker.put(2, tag="b")
    await loop_passes()
    _held(result)

    broker.subscribe("b", 2)
    broker.put(tag="c")
    await loop_passes()

    assert [message.queue_offset for message in pulled(_answer(result))] == [0, 1]


async def test_a_group_without_read_permission_for_the_topic(broker: _Broker) -> None:
    broker.subscribe("a", 1)
    command = pull("T", subscription=None, sub_version=1)
    assert _answer(broker.pull(command)).code == ResponseCode.PULL_NOT_FOUND

    broker.groups.decode(b'{"subscriptionGroupTable":{},"forbiddenTable":{"CG":{"T":4}},"dataVersion":{}}')

    with pytest.raises(CommandError) as refused:
        broker.pull(command)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert refused.value.ext_fields == {"forbiddenType": "5"}


async def test_the_forbidden_type_names_the_missing_permission(broker: _Broker) -> None:
    async def kind() -> str | None:
        with pytest.raises(CommandError) as refused:
            broker.pull(pull("T", subscription=None))
        assert refused.value.code == ResponseCode.NO_PERMISSION
        return (refused.value.ext_fields or {}).get("forbiddenType")

    broker.subscribe("a", 1, model=MessageModel.BROADCASTING)
    broker.groups.update(SubscriptionGroupConfig(group_name="CG", consume_broadcast_enable=False))
    assert await kind() == "4"
    broker.topics.update(TopicConfig(topic_name="T", perm=2))
    assert await kind() == "3"
    broker.groups.update(SubscriptionGroupConfig(group_name="CG", consume_enable=False))
    assert await kind() == "2"
    broker.settings.broker_permission = 2
    assert await kind() == "1"


def _forbid(broker: _Broker) -> None:
    broker.groups.permit_reading("CG", "T", readable=False)


def _shut_the_group(broker: _Broker) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="CG", consume_enable=False))


def _shut_the_topic(broker: _Broker) -> None:
    broker.topics.update(TopicConfig(topic_name="T", perm=2))


def _take_queues_away(broker: _Broker) -> None:
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=0, write_queue_nums=4))


def _delete_the_topic(broker: _Broker) -> None:
    broker.topics.delete("T")


def _shut_the_broker(broker: _Broker) -> None:
    broker.settings.broker_permission = 2
    broker.processor.settings_changed(Change({}, {}))


def _leave(broker: _Broker) -> None:
    for group in broker.consumers.groups():
        for connection in list(group.members):
            broker.consumers.connection_closed(connection)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_forbid, ResponseCode.NO_PERMISSION),
        (_shut_the_group, ResponseCode.NO_PERMISSION),
        (_shut_the_topic, ResponseCode.NO_PERMISSION),
        (_take_queues_away, ResponseCode.INVALID_PARAMETER),
        (_delete_the_topic, ResponseCode.TOPIC_NOT_EXIST),
        (_shut_the_broker, ResponseCode.NO_PERMISSION),
        (_leave, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
)
async def test_every_change_ends_the_plan_of_a_stream(
    broker: _Broker, change: Callable[[_Broker], None], code: int
) -> None:
    broker.put(3, tag="a")
    broker.subscribe("a", 1)
    for offset in (0, 1):
        assert pulled(_answer(broker.pull(pull("T", offset=offset, subscription=None))))

    change(broker)

    with pytest.raises(CommandError) as refused:
        broker.pull(pull("T", offset=2, subscription=None))
    assert refused.value.code == code


async def test_the_next_pull_follows_a_newer_expression(broker: _Broker) -> None:
    for tag in "ab":
        broker.put(tag=tag)
    for version, (expression, found) in enumerate([("a", [0]), ("b", [1]), ("a", [0])]):
        broker.subscribe(expression, version)
        for _ in range(2):
            messages = pulled(_answer(broker.pull(pull("T", subscription=None))))
            assert [message.queue_offset for message in messages] == found


async def test_refusing_lite_pulls_does_not_affect_pulls(tmp_path: Path) -> None:
    broker = _Broker(tmp_path, litePullMessageEnable=False)
    broker.put()
    lite = pull("T", code=RequestCode.LITE_PULL_MESSAGE)
    for _ in range(2):
        assert pulled(_answer(broker.pull(pull("T"))))
        with pytest.raises(CommandError) as refused:
            broker.pull(lite)
        assert refused.value.code == ResponseCode.NO_PERMISSION
    broker.close()


async def test_each_member_of_a_broadcasting_group_has_its_own_offset(broker: _Broker) -> None:
    broker.put(count=5)
    members = [Peer(), Peer()]
    for member in members:
        broker.subscribe("*", 1, peer=member, model=MessageModel.BROADCASTING)
        for _ in range(2):
            assert pulled(_answer(broker.pull(pull("T", offset=3), member)))
    # The group becomes a clustering one, whose pulls share a plan, and broadcasts again.
    broker.subscribe("*", 1, peer=members[0])
    assert pulled(_answer(broker.pull(pull("T", offset=3), members[0])))
    broker.subscribe("*", 1, peer=members[0], model=MessageModel.BROADCASTING)
    by_proxy = pull("T", offset=-1)
    by_proxy.ext_fields.update(requestSource="1", proxyFrowardClientId="c1")
    assert offsets(_answer(broker.pull(by_proxy))) == (3, 0, 5)


async def test_pulled_and_committed_offsets_are_kept_apart(broker: _Broker) -> None:
    broker.put(count=5)
    broker.pull(pull("T", count=3, commit=1))
    assert (broker.offsets.query("CG", "T", 0), broker.offsets.pulled("CG", "T", 0)) == (1, 3)
    broker.pull(pull("T", count=3, commit=6))
    assert broker.offsets.query("CG", "T", 0) == 1, "there is no such message"


async def test_a_member_that_returns_from_a_proxy_continues_at_its_offset(broker: _Broker) -> None:
    broker.put(count=5)
    member = Peer()
    broker.subscribe("*", 1, peer=member, model=MessageModel.BROADCASTING)
    by_proxy = pull("T", offset=-1)
    by_proxy.ext_fields.update(requestSource="1", proxyFrowardClientId="c1")

    assert offsets(_answer(broker.pull(by_proxy))) == (0, 0, 5)
    by_proxy.ext_fields["queueOffset"] = "3"
    assert len(pulled(_answer(broker.pull(by_proxy)))) == 2

    moved = _answer(broker.pull(pull("T", offset=0), member))
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert offsets(moved) == (3, 0, 5)


async def test_responses_carry_the_system_flags(broker: _Broker) -> None:
    broker.topics.update(TopicConfig(topic_name="T", topic_sys_flag=1))
    broker.groups.update(SubscriptionGroupConfig(group_name="CG", group_sys_flag=2))
    broker.put()

    for offset in (0, 1):
        answer = _answer(broker.pull(pull("T", offset=offset)))
        header = PullMessageResponseHeader.decode(answer.ext_fields)
        assert (header.topic_sys_flag, header.group_sys_flag) == (1, 2)


async def test_counters_of_pulls(broker: _Broker) -> None:
    broker.put(count=3)
    found = pulled(_answer(broker.pull(pull("T"))))
    broker.pull(pull("T", offset=3))
    broker.pull(pull("T", offset=9))

    assert (broker.statistics.pulls_found, broker.statistics.pulls_missed) == (1, 2)
    counted = broker.statistics.groups["CG", "T"]
    assert (counted.answers, counted.got_messages) == (1, 3)
    assert counted.got_bytes == sum(message.store_size for message in found)


# --- messages that are not in memory ---


class _Disk:
    """A disk whose reads a test releases; no part of the log is in memory."""

    def __init__(self, broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.reads = 0
        make_cold(broker.store)
        read = ColdLog.read

        def slow_read(log: ColdLog, offset: int, size: int) -> bytes | None:
            self.reads += 1
            assert self.free.wait(20)
            return read(log, offset, size)

        monkeypatch.setattr(ColdLog, "read", slow_read)


@pytest.fixture
async def disk(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Disk]:
    disk = _Disk(broker, monkeypatch)
    yield disk
    disk.free.set()
    broker.close()


async def test_a_cold_pull_is_answered_as_a_warm_one(broker: _Broker, disk: _Disk) -> None:
    broker.put(10, tag="a")
    cold = broker.pull(pull("T", offset=3))
    assert isinstance(cold, asyncio.Future)
    disk.free.set()
    await cold
    make_warm(broker.store)
    warm = broker.pull(pull("T", offset=3))

    assert offsets(_answer(cold)) == offsets(_answer(warm)) == (10, 0, 10)
    assert _answer(cold).body == _answer(warm).body
    assert [message.queue_offset for message in pulled(_answer(cold))] == list(range(3, 10))
    assert (broker.statistics.pulls_found, disk.reads) == (2, 1)


async def test_a_cold_pull_that_finds_nothing_yet_needs_no_disk(broker: _Broker, disk: _Disk) -> None:
    broker.put(10, tag="a")
    _held(broker.pull(pull("T", offset=10, suspend_ms=15_000)))
    assert broker.held.count == 1
    assert disk.reads == 0


async def test_cold_pulls_beyond_the_pools_bound_are_refused(broker: _Broker, disk: _Disk) -> None:
    broker.put(count=5)
    results = [broker.pull(pull("T")) for _ in range(7)]  # two are read, three wait
    await until(lambda: disk.reads == 2)
    disk.free.set()
    ended = await asyncio.gather(*results, return_exceptions=True)  # type: ignore[arg-type]
    refused = [each for each in ended if isinstance(each, CommandError)]
    assert [error.code for error in refused] == [ResponseCode.SYSTEM_BUSY] * 2
    assert len(ended) - len(refused) == 5


async def test_a_held_pull_reads_cold_messages(broker: _Broker, disk: _Disk) -> None:
    result = broker.pull(pull("T", subscription="a", suspend_ms=15_000))
    broker.put(3, tag="b")
    broker.put(tag="a")
    await until(lambda: disk.reads == 1)
    broker.put(2, tag="a")
    await loop_passes()
    assert broker.held.count == 1
    disk.free.set()
    assert isinstance(result, asyncio.Future)
    await result
    # Messages that arrived during the read are for the next pull.
    assert [message.queue_offset for message in pulled(_answer(result))] == [3]
    assert (broker.held.count, disk.reads) == (0, 1)


async def test_a_topic_that_is_deleted_during_a_cold_read(broker: _Broker, disk: _Disk) -> None:
    broker.put(count=3)
    result = broker.pull(pull("T", suspend_ms=15_000))
    await until(lambda: disk.reads == 1)
    broker.topics.delete(["T"])
    broker.store.delete_topics(["T"]).result()
    disk.free.set()
    assert isinstance(result, asyncio.Future)
    with pytest.raises(CommandError) as caught:
        await result
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.held.count == 0


async def test_a_client_that_disconnects_during_a_cold_read_leaves_nothing(
    broker: _Broker, disk: _Disk
) -> None:
    broker.put(count=3)
    peer = Peer()
    result = broker.pull(pull("T", suspend_ms=15_000), peer)
    await until(lambda: disk.reads == 1)
    peer.connection.abort()
    broker.held.connection_closed(peer.connection)
    disk.free.set()
    assert isinstance(result, asyncio.Future)
    assert await result is None
    assert broker.held.count == 0
    assert peer.received == []


async def test_a_reset_is_not_taken_for_a_closed_connection(broker: _Broker) -> None:
    broker.put(count=3)
    broker.offsets.assign_reset("CG", "T", 0, 1)
    peer = Peer()
    peer.transport.lose(None)
    await loop_passes()

    assert broker.pull(pull("T", suspend_ms=0), peer) is None

    assert offsets(_answer(broker.pull(pull("T", suspend_ms=0))))[0] == 1
