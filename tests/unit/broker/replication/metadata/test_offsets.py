"""Consumer offsets follow the master; commits that it does not have are kept and passed on."""

from __future__ import annotations

import pytest

from rmq_broker.offsets.saved import SavedOffsets
from rmq_broker.offsets.table import NO_OFFSET, ConsumerOffsetTable
from rmq_broker.replication.metadata.log_barrier import LogBarrier
from rmq_broker.replication.metadata.master import Master, MetadataError
from rmq_broker.replication.metadata.offsets import OffsetPart
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode
from tests.support.broker_tables import BrokerTables
from tests.support.clock import Clock
from tests.support.fake_master import ADDRESS, FakeMaster
from tests.support.golden import DATA

_CODE = RequestCode.GET_ALL_CONSUMER_OFFSET


class _Replica:
    """The offsets of a replica, and a master whose offsets tests change."""

    def __init__(self) -> None:
        self.tables = BrokerTables()
        self.tables.topics.update(TopicConfig(topic_name="T"))
        self.tables.groups.update(SubscriptionGroupConfig(group_name="CG"))
        self.offsets = ConsumerOffsetTable(Clock(), is_replica=True)
        self.masters = ConsumerOffsetTable(Clock())
        self.ends: dict[tuple[str, int], int] = {}
        self.flushed = 0
        self.barrier = LogBarrier(lambda: self.flushed)
        self.client = FakeMaster()
        self.client.answers[_CODE] = self._answer
        self._new_part()

    def _new_part(self) -> None:
        self.part = OffsetPart(
            self.offsets,
            self.tables.topics,
            self.tables.groups,
            lambda topic, queue_id: self.ends.get((topic, queue_id), 1000),
            self.barrier,
        )

    def restart(self) -> None:
        content = self.offsets.encode()
        self.offsets = ConsumerOffsetTable(Clock(), is_replica=True)
        self.offsets.decode(content)
        self._new_part()

    def commit(self, offset: int, group: str = "CG") -> None:
        """Commit at the replica, as a consumer does."""
        self.offsets.commit(group, "T", 0, offset, self.tables.connection)

    def _answer(self) -> bytes:
        return self.masters.encode()

    async def sync(self) -> None:
        await self.part.sync(Master(self.client, ADDRESS))
        self.barrier.master_ends_at(self.client.log_end)
        for _, apply in self.barrier.take_reached():
            await apply()

    @property
    def offset(self) -> int:
        return self.offsets.query("CG", "T", 0)


async def test_offsets_and_the_data_version_are_taken_over() -> None:
    replica = _Replica()
    for count in range(1, 600):
        replica.masters.commit("CG", "T", count % 3, count)
    replica.masters.commit("CG@broadcast", "T", 0, 5)
    await replica.sync()
    assert replica.offsets.offsets_of("CG", "T") == {0: 597, 1: 598, 2: 599}
    assert replica.offsets.query("CG@broadcast", "T", 0) == 5
    assert replica.offsets.data_version == replica.masters.data_version
    assert not replica.offsets.own_commits and not replica.client.commits
    revision = replica.offsets.revision
    await replica.sync()
    assert replica.offsets.revision == revision  # nothing is written without a change


async def test_the_answer_of_apaches_master_is_taken_over() -> None:
    replica = _Replica()
    content = (DATA / "protocol" / "config" / "consumerOffset.json").read_bytes()
    replica.client.answers[_CODE] = content
    await replica.sync()
    taken, expected = (SavedOffsets.decode(text) for text in (replica.offsets.encode(), content))
    assert taken == expected


async def test_the_master_may_set_an_offset_back() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 90)
    await replica.sync()
    replica.masters.put("CG", "T", 0, 10)
    await replica.sync()
    assert replica.offset == 10


async def test_offsets_wait_for_the_log_that_they_rest_on() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 90)
    replica.client.log_end, replica.flushed = 500, 499
    await replica.sync()
    assert replica.offset == NO_OFFSET
    replica.masters.commit("CG", "T", 0, 95)
    replica.client.log_end, replica.flushed = 600, 550
    await replica.sync()
    assert replica.offset == 90
    replica.flushed = 600
    await replica.sync()
    assert replica.offset == 95


async def test_no_offset_is_behind_the_end_of_its_queue() -> None:
    """A queue whose messages had expired on the master begins at 0 on a new replica."""
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 90)
    replica.ends["T", 0] = 0
    await replica.sync()
    assert replica.offset == 0
    replica.ends["T", 0] = 91
    await replica.sync()
    assert replica.offset == 90


# --- commits at the replica ---


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_commit_made_while_the_master_was_away_is_kept_and_passed_on(restarts: bool) -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    await replica.sync()
    replica.commit(70)
    if restarts:
        replica.restart()
    await replica.sync()
    assert replica.offset == 70
    assert replica.client.commits == [("CG", "T", 0, 70)]
    # The master has it from now on; its offset counts again.
    replica.masters.commit("CG", "T", 0, 70)
    await replica.sync()
    assert not replica.offsets.own_commits
    replica.masters.put("CG", "T", 0, 20)
    await replica.sync()
    assert replica.offset == 20
    assert len(replica.client.commits) == 1


async def test_a_commit_that_the_master_refuses_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    replica = _Replica()
    replica.client.refusal = "no such group"
    replica.commit(70)
    await replica.sync()
    await replica.sync()
    assert replica.offset == 70 and replica.offsets.groups_with_own_commits() == {"CG"}
    assert caplog.text.count("not taken by the master count=1") == 1
    replica.client.refusal = ""
    await replica.sync()
    assert replica.client.commits == [("CG", "T", 0, 70)]


async def test_many_commits_are_passed_on_some_after_each_answer() -> None:
    replica = _Replica()
    for queue_id in range(2500):
        replica.offsets.commit("CG", "T", queue_id, 7, replica.tables.connection)
    await replica.sync()
    assert len(replica.client.commits) == 1000
    for _ in range(2):
        await replica.sync()
    assert len(replica.client.commits) == 3000
    assert len(set(replica.client.commits)) == 2500


async def test_a_reset_on_the_master_counts_more_than_a_commit_here() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    await replica.sync()
    replica.commit(70)
    replica.masters.put("CG", "T", 0, 10)
    await replica.sync()
    assert replica.offset == 10
    assert not replica.client.commits and not replica.offsets.own_commits


async def test_a_commit_behind_the_masters_is_given_up() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    await replica.sync()
    replica.commit(40)
    await replica.sync()
    assert replica.offset == 50
    assert not replica.client.commits and not replica.offsets.own_commits


async def test_the_offset_of_another_master_is_no_reset() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    await replica.sync()
    replica.commit(70)
    replica.masters = ConsumerOffsetTable(Clock())
    replica.masters.commit("CG", "T", 0, 45)
    replica.part.master_changed()
    await replica.sync()
    assert replica.client.commits == [("CG", "T", 0, 70)]


def test_only_a_replica_keeps_commits_apart() -> None:
    replica = ConsumerOffsetTable(Clock(), is_replica=True)
    replica.decode(b'{"offsetTable":{"T@CG":{0:70}},"ownCommits":{"T@CG":{0:70}}}')
    assert b'"ownCommits":{"T@CG":{0:70}}' in replica.encode()
    master = ConsumerOffsetTable(Clock())
    master.decode(replica.encode())
    assert master.query("CG", "T", 0) == 70
    assert b"ownCommits" not in master.encode()
    replica.remove_topic("T")
    assert not replica.own_commits


# --- deletions ---


@pytest.mark.parametrize("what", ["topic", "group"])
async def test_offsets_of_deleted_topics_and_groups_are_removed(what: str) -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    await replica.sync()
    replica.masters.remove_topic("T")
    await replica.sync()
    assert replica.offset == 50  # both exist: the master may have lost its offsets
    if what == "topic":
        replica.tables.topics.delete(["T"])
    else:
        replica.tables.groups.delete("CG")
    await replica.sync()
    assert replica.offset == NO_OFFSET
    assert b'"offsetTable":{}' in replica.offsets.encode()


async def test_an_answer_without_offsets_changes_nothing() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    await replica.sync()
    replica.client.answers[_CODE] = b"{}"
    with pytest.raises(MetadataError, match="offsetTable"):
        await replica.sync()
    assert replica.offset == 50


# --- pending resets ---


async def test_a_pending_reset_is_pending_here_until_either_broker_has_answered_with_it() -> None:
    replica = _Replica()
    replica.masters.commit("CG", "T", 0, 50)
    replica.masters.assign_reset("CG", "T", 0, 10)
    await replica.sync()
    assert replica.offsets.has_reset("CG", "T", 0)
    assert replica.offsets.take_reset("CG", "T", 0) == 10
    await replica.sync()
    assert not replica.offsets.has_reset("CG", "T", 0)  # a consumer here would go back again and again
    replica.masters.assign_reset("CG", "T", 0, 5)
    await replica.sync()
    assert replica.offset == 5
    replica.masters.take_reset("CG", "T", 0)
    await replica.sync()
    assert not replica.offsets.has_reset("CG", "T", 0)


async def test_a_group_of_the_outage_is_created_at_the_master() -> None:
    replica = _Replica()
    replica.commit(7)
    replica.client.unknown_groups.add("CG")
    await replica.sync()
    assert replica.client.commits == [("CG", "T", 0, 7)]
    assert replica.client.count(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP) == 1


async def test_a_group_that_the_replica_lacks_is_not_created_at_the_master() -> None:
    replica = _Replica()
    replica.commit(7)
    replica.tables.groups.delete("CG")
    replica.client.unknown_groups.add("CG")
    await replica.sync()
    assert replica.client.commits == []
    assert replica.client.count(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP) == 0
