"""Broadcasting members that pull directly or through a proxy (BroadcastOffsetManager)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.clients.consumers import ConsumerTable
from rmq_broker.offsets import broadcast
from rmq_broker.offsets.broadcast import BroadcastOffsets
from rmq_broker.offsets.service import OffsetService
from rmq_broker.offsets.table import NO_OFFSET
from rmq_broker.store.api import MessageStore
from rmq_broker.topics.table import TopicTable
from rmq_remoting.bodies.heartbeat import ConsumeType, MessageModel
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.connection import Connection
from rmq_remoting.headers.pull import PROXY_FOR_BROADCAST, PullMessageRequestHeader
from tests.support.broker_settings import broker_settings
from tests.support.broker_tables import BrokerTables
from tests.support.clock import Clock
from tests.support.peers import Peer

_KEPT = "CG@broadcast"


def _pull_header(offset: int, by_proxy_for: str | None = None) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        "CG", "T", 0, offset, 32, 0, 0, 0, "*", 0, "TAG", None,
        PROXY_FOR_BROADCAST if by_proxy_for is not None else None,
        proxy_forward_client_id=by_proxy_for,
    )  # fmt: skip


class _Broker(BrokerTables):
    """A broadcasting group whose members pull queue 0 of T, in virtual time."""

    def __init__(self, folder: Path, **keys: object) -> None:
        super().__init__(storePathRootDir=folder, **keys)
        self.store = MessageStore(self.settings, self.settings, self.settings)
        self.store.queues.get_or_create("T", 0)
        self.broadcast = BroadcastOffsets(
            self.offsets, self.consumers, self.store, self.settings, self.clock.steady_ms
        )

    def member(
        self,
        client_id: str,
        model: MessageModel = MessageModel.BROADCASTING,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    ) -> Connection:
        """Connect a member of the group; return its connection."""
        return self.join(client_id, model=model, consume_type=consume_type).connection

    def pull(self, connection: Connection, offset: int, by_proxy_for: str | None = None) -> int:
        """Process a pull as the broker does; return its start offset, or NO_OFFSET."""
        header = _pull_header(offset, by_proxy_for)
        member = self.broadcast.client_id(connection, header)
        if member is None:
            return NO_OFFSET
        first = self.broadcast.first_offset(member, header)
        self.broadcast.pulled(member, header, offset if first == NO_OFFSET else first)
        return first


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[_Broker]:
    broker = _Broker(tmp_path)
    yield broker
    broker.store.close()


async def test_member_without_switch_continues_at_its_offset(broker: _Broker) -> None:
    direct, proxy = broker.member("c1"), Peer().connection
    assert [broker.pull(direct, offset) for offset in (0, 32, 5)] == [NO_OFFSET] * 3
    assert [broker.pull(proxy, offset, "c2") for offset in (0, 32, 5)] == [NO_OFFSET] * 3
    assert len(broker.broadcast) == 2


async def test_switching_member_continues_at_its_known_offset(broker: _Broker) -> None:
    direct, proxy = broker.member("c1"), Peer().connection
    broker.pull(direct, 64)
    assert broker.pull(proxy, 0, "c1") == 64
    assert broker.pull(proxy, 64, "c1") == NO_OFFSET
    broker.pull(proxy, 96, "c1")
    assert broker.pull(direct, 7) == 96


async def test_member_without_offset_gets_its_known_offset(broker: _Broker) -> None:
    proxy = Peer().connection
    assert broker.pull(proxy, -1, "c1") == 0, "the end of an empty queue"
    broker.pull(proxy, 32, "c1")
    assert broker.pull(proxy, -1, "c1") == 32
    await broker.broadcast.scan()
    assert broker.offsets.query(_KEPT, "T", 0) == 32
    assert broker.pull(proxy, -1, "c2") == 32, "where the others are"


async def test_lowest_offset_is_committed(broker: _Broker) -> None:
    first, second = broker.member("c1"), broker.member("c2")
    broker.pull(first, 50)
    broker.pull(second, 20)
    await broker.broadcast.scan()
    assert broker.offsets.query(_KEPT, "T", 0) == 20
    revision = broker.offsets.revision
    await broker.broadcast.scan()
    assert broker.offsets.revision == revision, "nothing new, nothing to write"
    assert broker.offsets.groups_of("T") == set(), "no group of that name consumes anything"
    broker.offsets.remove_group("CG")
    assert broker.offsets.query(_KEPT, "T", 0) == NO_OFFSET


async def test_inactive_members_are_removed(broker: _Broker) -> None:
    online, proxy = broker.member("c1"), Peer().connection
    broker.pull(online, 10)
    broker.pull(proxy, 5, "c2")
    broker.clock.pass_seconds(119)
    await broker.broadcast.scan()
    assert len(broker.broadcast) == 2
    broker.clock.pass_seconds(1)
    await broker.broadcast.scan()
    assert len(broker.broadcast) == 1
    assert broker.offsets.query(_KEPT, "T", 0) == 10
    broker.clock.pass_seconds(180)
    await broker.broadcast.scan()
    assert len(broker.broadcast) == 0


@pytest.mark.parametrize("hours", [5, -5])
async def test_a_step_of_the_wall_clock_does_not_make_members_inactive(broker: _Broker, hours: int) -> None:
    broker.broadcast = OffsetService(
        broker.settings, broker.topics, broker.consumers, broker.store, broker.clock.clocks
    ).broadcast
    broker.pull(Peer().connection, 5, "c2")
    broker.clock.set_by(hours * 3600)
    broker.clock.pass_seconds(119)
    await broker.broadcast.scan()
    assert len(broker.broadcast) == 1
    broker.clock.pass_seconds(1)
    await broker.broadcast.scan()
    assert len(broker.broadcast) == 0


async def test_clustering_groups_are_ignored(broker: _Broker) -> None:
    clustering = broker.member("c1", MessageModel.CLUSTERING)
    broker.pull(clustering, 10)
    pulling = broker.member("c2", consume_type=ConsumeType.CONSUME_ACTIVELY)
    broker.pull(pulling, 10)
    broker.member("c3")
    broker.pull(Peer().connection, 10)
    assert len(broker.broadcast) == 0


async def test_broadcast_offsets_can_be_disabled(tmp_path: Path) -> None:
    broker = _Broker(tmp_path, enableBroadcastOffsetStore="false")
    broker.pull(broker.member("c1"), 64)
    assert broker.pull(Peer().connection, -1, "c1") == NO_OFFSET
    assert len(broker.broadcast) == 0
    broker.store.close()


async def test_number_of_members_is_bounded(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "_MAX_MEMBERS", 3)
    proxy = Peer().connection
    for number in range(10):
        broker.pull(proxy, 5, f"c{number}")
    assert len(broker.broadcast) == 3


async def test_a_deleted_topic_leaves_no_offsets(broker: _Broker) -> None:
    broker.pull(broker.member("c1"), 10)
    broker.store.delete_topics(["T"]).result()
    await broker.broadcast.scan()
    assert len(broker.offsets) == 0


async def test_recreated_topic_has_no_member_offsets(broker: _Broker) -> None:
    direct, proxy = broker.member("c1"), Peer().connection
    broker.pull(direct, 64)
    broker.pull(proxy, 32, "c2")
    broker.broadcast.topics_removed(())
    broker.broadcast.topics_removed(("U",))
    assert len(broker.broadcast) == 2
    broker.store.delete_topics(["T"]).result()
    broker.broadcast.topics_removed(("T",))
    assert len(broker.broadcast) == 0
    broker.store.queues.get_or_create("T", 0)
    assert broker.pull(proxy, -1, "c2") == 0
    broker.pull(direct, 5)
    assert broker.pull(proxy, 0, "c1") == 5


async def test_members_of_a_deleted_topic_are_removed(tmp_path: Path) -> None:
    settings, clock = broker_settings(storePathRootDir=tmp_path), Clock()
    topics = TopicTable(settings, "DefaultCluster", "broker-a", clock)
    store = MessageStore(settings, settings, settings)
    broadcast = OffsetService(settings, topics, ConsumerTable(), store, clock.clocks).broadcast
    topics.update(TopicConfig(topic_name="T"))
    broadcast.pulled("c1", _pull_header(5), 5)
    assert len(broadcast) == 1
    topics.delete(["T"])
    assert len(broadcast) == 0


async def test_other_requests_run_during_a_scan_of_many_queues(broker: _Broker) -> None:
    proxy = Peer().connection
    broker.pull(proxy, 0, "c1")
    (member,) = broker.broadcast._members["CG", "T"].values()
    member.offsets.update({number: 5 for number in range(10_000)})
    scan = asyncio.create_task(broker.broadcast.scan())
    passes = 0
    while not scan.done():
        await asyncio.sleep(0)
        passes += 1
    assert passes >= 19, "10,000 offsets are looked at, and then committed"
    assert broker.offsets.query(_KEPT, "T", 9999) == 5
