"""Reports of a shard, and the requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_broker.shards.common_tables import CommonTables
from rmq_broker.shards.kinds import GROUPS, TOPICS, confirmation, exclusion
from rmq_broker.shards.shard_link import ShardLink
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import ConnectionSettings
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until


def topic(name: str, queues: int = 4, attributes: Mapping[str, str] | None = None) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, attributes=dict(attributes or {}))


class _Shard:
    """The shard's end of a connection to the supervisor."""

    def __init__(self, number: int, tables: CommonTables) -> None:
        self.link = ShardLink(number, f"b-{number}", tables, retry_seconds=60.0)
        self.link.begin()
        self.peer = Peer(self.link, ConnectionSettings(stops_reading=False))  # type: ignore[arg-type]
        self.task = asyncio.ensure_future(self.link.run(self.peer.connection))
        self._read = 0

    def report(self, *reports: RemotingCommand) -> None:
        self.peer.send(*reports)

    def report_all(self, *topics: TopicConfig) -> None:
        self.report(TOPICS.report(list(topics)), TOPICS.end_of_reports(), GROUPS.end_of_reports())

    async def requests(self) -> list[RemotingCommand]:
        """Return the requests that have arrived since the last call."""
        await loop_passes(5)
        requests = [each for each in self.peer.received if not each.is_response]
        new, self._read = requests[self._read :], len(requests)
        return new

    async def answer(self, request: RemotingCommand, code: int = ResponseCode.SUCCESS) -> None:
        self.peer.send(request.response(code, "the reason"))
        await loop_passes(5)


@asynccontextmanager
async def _shards(folder: Path, count: int = 2) -> AsyncIterator[tuple[CommonTables, list[_Shard]]]:
    tables = CommonTables(folder / "shards.json", [f"b-{number}" for number in range(count)])
    shards = [_Shard(number, tables) for number in range(count)]
    try:
        yield tables, shards
    finally:
        for shard in shards:
            shard.task.cancel()
        await asyncio.gather(*(shard.task for shard in shards), return_exceptions=True)
        await tables.close()


async def test_a_topic_of_one_shard_is_created_on_the_other(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, second)):
        first.report_all()
        second.report_all()
        first.report(TOPICS.report([topic("T", 7)], oneway=True))

        (request,) = await second.requests()

        assert request.code == Code.UPDATE_AND_CREATE_TOPIC_LIST
        assert TOPICS.decode(request.body) == [topic("T", 7)]
        assert await first.requests() == []


async def test_a_shard_gets_nothing_before_it_has_reported_all(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, second)):
        first.report_all(topic("T"), topic("U"))
        assert await second.requests() == []
        second.report(TOPICS.report([topic("T")]), TOPICS.end_of_reports())

        (request,) = await second.requests()

        assert TOPICS.decode(request.body) == [topic("U")]


async def test_reports_are_answered_unless_they_are_oneway(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, _)):
        answered, silent = TOPICS.report([topic("T")]), TOPICS.report([topic("U")], oneway=True)
        first.report(answered, silent)

        assert {number: answer.code for number, answer in first.peer.answers.items()} == {
            answered.opaque: ResponseCode.SUCCESS
        }


async def test_a_report_that_cannot_be_read_is_answered_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _shards(tmp_path) as (_, (first, _)):
        damaged = RemotingCommand.request(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=b"{")
        first.report(damaged)

        assert first.peer.answers[damaged.opaque].code == ResponseCode.SYSTEM_ERROR
    assert "report of a shard not understood shard=b-0" in caplog.text


async def test_attributes_are_sent_as_changes(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, second)):
        old = topic("T", attributes={"message.type": "NORMAL", "queue.type": "BatchCQ"})
        first.report_all(old)
        second.report_all(old)
        await first.requests()
        first.report(TOPICS.report([topic("T", attributes={"message.type": "FIFO"})], oneway=True))

        (request,) = await second.requests()

        assert TOPICS.decode(request.body)[0].attributes == {"+message.type": "FIFO", "-queue.type": ""}


async def test_a_static_topic_of_one_shard_is_not_shared(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (tables, (first, second)):
        first.report(exclusion("T"))
        first.report_all()
        second.report_all(topic("T"))

        assert await first.requests() == await second.requests() == []
        assert tables.behind_count(0) == 0


async def test_deletions_are_requests_of_their_own(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, second)):
        for shard in (first, second):
            shard.report_all(topic("T"))
        first.report(TOPICS.deletion_of("T", oneway=True))

        (request,) = await second.requests()

        assert request.code == Code.DELETE_TOPIC_IN_BROKER
        assert request.ext_fields["topic"] == "T"


async def test_groups_are_shared_and_keep_their_offsets(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, second)):
        group = SubscriptionGroupConfig(group_name="G", retry_max_times=3)
        first.report_all()
        second.report_all()
        first.report(GROUPS.report([group], oneway=True))
        (created,) = await second.requests()
        assert created.code == Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        assert GROUPS.decode(created.body) == [group]
        await second.answer(created)
        first.report(GROUPS.deletion_of("G", oneway=True))

        (deleted,) = await second.requests()

        assert deleted.code == Code.DELETE_SUBSCRIPTIONGROUP
        assert deleted.ext_fields == {"cleanOffset": "false", "groupName": "G"}


async def test_entries_of_a_refused_batch_are_sent_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _shards(tmp_path) as (tables, (first, second)):
        second.report_all()
        first.report_all(topic("good"), topic("bad"))
        (batch,) = await second.requests()
        await second.answer(batch, ResponseCode.INVALID_PARAMETER)
        (good,) = await second.requests()
        await second.answer(good)
        (bad,) = await second.requests()
        await second.answer(bad, ResponseCode.INVALID_PARAMETER)

        assert await second.requests() == []
        assert tables.behind_count(1) == 1
        # Another value is sent at once.
        first.report(TOPICS.report([topic("bad", 1)], oneway=True))
        (changed,) = await second.requests()
        assert TOPICS.decode(changed.body) == [topic("bad", 1)]
    assert "shard refuses a topic that others have topic=bad shard=b-1 cause=the reason" in caplog.text


async def test_many_entries_are_sent_in_several_requests(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (tables, (first, second)):
        second.report_all()
        first.report_all(*(topic(f"T{number}") for number in range(120)))
        sizes = []
        while requests := await second.requests():
            sizes += [len(TOPICS.decode(request.body)) for request in requests]
            for request in requests:
                await second.answer(request)

        assert sizes == [50, 50, 20]
        assert tables.behind_count(1) == 0


async def test_the_tables_survive_the_supervisor(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (tables, (first, second)):
        for shard in (first, second):
            shard.report_all(topic("T"), topic("U", attributes={"message.type": "FIFO"}))
        first.report(TOPICS.deletion_of("T", oneway=True))
        await second.requests()

    again = CommonTables(tmp_path / "shards.json", ["b-0", "b-1"])
    again.load()
    assert again.topics.entries == tables.topics.entries
    assert list(again.topics.behind_names()) == [[], ["T"]]


async def test_reports_are_confirmed_once_they_are_persisted(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, _)):
        first.report_all(topic("T"))
        asked = confirmation()
        first.report(asked)
        assert asked.opaque not in first.peer.answers

        await until(lambda: asked.opaque in first.peer.answers)

        assert first.peer.answers[asked.opaque].code == ResponseCode.SUCCESS
        assert b'"T"' in (tmp_path / "shards.json").read_bytes()


async def test_the_end_of_the_connection_ends_the_work(tmp_path: Path) -> None:
    async with _shards(tmp_path) as (_, (first, second)):
        second.report_all()
        first.report_all(topic("T"))
        await second.requests()

        second.peer.transport.lose(None)

        await asyncio.wait_for(second.task, 1.0)
