"""Reports of a shard's topics and groups to its supervisor."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.shards.kinds import CONFIRM, END_OF_REPORTS, GROUPS, NOT_SHARED, TOPICS
from rmq_broker.shards.reporter import ChangeReporter
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.static_topic import TopicQueueMappingDetail
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_tables import BrokerTables
from tests.support.peers import Peer
from tests.support.waiting import loop_passes


class _Supervisor:
    """The supervisor's end of the connection of a shard with tables."""

    def __init__(self, *, taking: bool = True) -> None:
        self.tables = BrokerTables()
        self.peer = Peer(taking=taking)
        self.reporter = ChangeReporter(self.tables.topics, self.tables.groups)
        self._read = 0

    def create(self, *names: str) -> None:
        self.tables.topics.update_all([(TopicConfig(topic_name=name), {}) for name in names])

    def new(self) -> list[RemotingCommand]:
        """Return the reports since the last call."""
        self.peer.connection.flush()
        received = self.peer.received
        new, self._read = received[self._read :], len(received)
        return new

    async def started(self) -> list[RemotingCommand]:
        """Start the reporter, and return its reports of all entries."""
        starting = asyncio.ensure_future(self.reporter.start(self.peer.connection))
        reports = []
        while not starting.done():
            await loop_passes()
            for report in self.new():
                reports.append(report)
                self.peer.send(report.response(ResponseCode.SUCCESS))
        await starting
        return reports


def _topics(reports: list[RemotingCommand]) -> list[str]:
    bodies = [report.body for report in reports if report.code == TOPICS.update]
    return [config.topic_name for body in bodies for config in TOPICS.decode(body)]


def _groups(reports: list[RemotingCommand]) -> list[str]:
    bodies = [report.body for report in reports if report.code == GROUPS.update]
    return [config.group_name for body in bodies for config in GROUPS.decode(body)]


async def test_all_entries_are_reported_and_the_end_of_them() -> None:
    supervisor = _Supervisor()
    supervisor.create(*(f"T{number}" for number in range(250)))
    supervisor.tables.groups.update(SubscriptionGroupConfig(group_name="G"))

    reports = await supervisor.started()

    assert sorted(_topics(reports)) == sorted(f"T{number}" for number in range(250))
    assert _groups(reports) == ["G"]
    ends = [report.code for report in reports if END_OF_REPORTS in report.ext_fields]
    assert ends == [Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST]
    assert not any(report.is_oneway for report in reports)


async def test_each_change_is_reported_when_it_is_made() -> None:
    supervisor = _Supervisor()
    await supervisor.started()
    tables = supervisor.tables

    supervisor.create("T")
    tables.groups.find("G")
    tables.topics.delete(["T"])
    tables.groups.delete("G")

    codes = [report.code for report in supervisor.new()]
    assert codes == [TOPICS.update, GROUPS.update, TOPICS.deletion, GROUPS.deletion]


async def test_a_change_during_the_reports_is_reported_behind_the_value_before() -> None:
    supervisor = _Supervisor()
    supervisor.create("T")
    starting = asyncio.ensure_future(supervisor.reporter.start(supervisor.peer.connection))
    await loop_passes()
    supervisor.tables.topics.delete(["T"])

    first, second = supervisor.new()
    starting.cancel()

    assert _topics([first]) == ["T"]
    assert second.code == TOPICS.deletion and second.is_oneway


async def test_a_deletion_before_the_reports_is_reported() -> None:
    """A topic was deleted while the broker served already; the supervisor must not create it again."""
    supervisor = _Supervisor()
    supervisor.create("deleted", "recreated")
    supervisor.tables.topics.delete(["deleted", "recreated"])
    supervisor.create("recreated")

    reports = await supervisor.started()

    deleted = {report.ext_fields["topic"] for report in reports if report.code == TOPICS.deletion}
    assert deleted == {"deleted", "recreated"}
    assert _topics(reports) == ["recreated"]
    assert [report.code for report in reports].index(TOPICS.update) == len(deleted)


async def test_a_deletion_is_confirmed_by_the_supervisor(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = _Supervisor()
    await supervisor.started()
    waiting = asyncio.ensure_future(supervisor.reporter.confirmed())
    await loop_passes()
    (asked,) = supervisor.new()
    assert CONFIRM in asked.ext_fields and not waiting.done()

    supervisor.peer.send(asked.response(ResponseCode.SUCCESS))
    await waiting

    assert not caplog.records


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_deletion_that_is_not_confirmed_is_logged(
    is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = _Supervisor()
    await supervisor.started()
    waiting = asyncio.ensure_future(supervisor.reporter.confirmed())
    await loop_passes()
    if is_lost:
        supervisor.peer.transport.lose(None)
    else:
        (asked,) = supervisor.new()
        supervisor.peer.send(asked.response(ResponseCode.SYSTEM_ERROR, "no space left"))
    await waiting

    assert "deletion not confirmed by the supervisor cause=" in caplog.text


async def test_a_deletion_before_the_reports_is_not_confirmed(caplog: pytest.LogCaptureFixture) -> None:
    await _Supervisor().reporter.confirmed()

    assert "cause=the shard has not reported its topics and groups yet" in caplog.text


@pytest.mark.parametrize(
    "name", ["broker-a", "DefaultCluster", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%G", "%DLQ%G", "rmq_sys_x"]
)
async def test_topics_of_the_broker_itself_are_not_reported(name: str) -> None:
    supervisor = _Supervisor()
    reported = _topics(await supervisor.started())

    supervisor.tables.topics.create_for_group(name, 1)
    supervisor.tables.topics.delete([name])

    assert name not in reported
    assert supervisor.new() == []


async def test_static_topics_are_reported_as_not_shared() -> None:
    supervisor = _Supervisor()
    table = supervisor.tables.topics
    table.update_static(TopicConfig(topic_name="T"), _mapping("T"))
    reports = await supervisor.started()
    table.update_static(TopicConfig(topic_name="U"), _mapping("U"))

    assert [report.ext_fields.get(NOT_SHARED) for report in reports if NOT_SHARED in report.ext_fields] == [
        "T"
    ]
    assert _topics(reports) == []
    assert [report.ext_fields for report in supervisor.new()] == [{NOT_SHARED: "U"}]


def _mapping(topic: str) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(topic=topic, broker_name="broker-a", total_queues=0)


async def test_groups_of_the_broker_itself_are_not_reported() -> None:
    supervisor = _Supervisor()

    assert _groups(await supervisor.started()) == []
    supervisor.tables.groups.find("CID_RMQ_SYS_X")
    assert supervisor.new() == []


async def test_a_supervisor_that_does_not_read_loses_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq_broker.shards.reporter._MAX_UNREAD_BYTES", 1000)
    supervisor = _Supervisor(taking=False)
    starting = asyncio.ensure_future(supervisor.reporter.start(supervisor.peer.connection))
    await loop_passes()
    for number in range(20):
        supervisor.create(f"T{number}")
        supervisor.peer.connection.flush()

    starting.cancel()
    assert supervisor.peer.connection.is_closed
    assert "changes of topics and groups not read by the supervisor" in caplog.text
    supervisor.create("another")
