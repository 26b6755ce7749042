"""Consumer groups made by heartbeats (Apache RocketMQ 5.3.3, ConsumerManager, ConsumerGroupInfo)."""

from __future__ import annotations

import logging

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerGroup, ConsumerTable, Heartbeat
from rmq_remoting.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmq_remoting.codes import LanguageCode
from tests.support.clock import START_MS
from tests.support.peers import Peer


def _client(peer: Peer, client_id: str, seen_ms: int = START_MS) -> ConnectedClient:
    return ConnectedClient(peer.connection, client_id, LanguageCode.JAVA, 479, seen_ms)


def _data(*topics: str, group: str = "CG", version: int = 1, tags: str = "*") -> ConsumerData:
    return ConsumerData(
        group_name=group,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_version=version, sub_string=tags) for topic in topics
        ],
    )


class _Watched:
    """A table, and the names of the groups whose listeners were called, in order."""

    def __init__(self) -> None:
        self.table = ConsumerTable()
        self.changes: list[str] = []
        self.table.on_change(self._changed)

    def _changed(self, group: ConsumerGroup) -> None:
        self.changes.append(group.name)


async def test_members_join_and_stay() -> None:
    watched, one, two = _Watched(), Peer(), Peer()
    table = watched.table
    assert table.find_group("CG") is None and table.find_subscription("CG", "T") is None
    table.register(Heartbeat(_data("T")), _client(one, "1"))
    table.register(Heartbeat(_data("T")), _client(two, "2"))
    table.register(Heartbeat(_data("T")), _client(one, "1", START_MS + 30_000))
    group = table.find_group("CG")
    assert group is not None and group.client_ids() == ["1", "2"]
    assert group.members[one.connection].last_seen_ms == START_MS + 30_000
    assert watched.changes == ["CG", "CG"]
    found = group.find_client("2")
    assert found is not None and found.connection is two.connection
    assert group.find_client("3") is None


async def test_reconnected_client_counts_once() -> None:
    watched, old, new = _Watched(), Peer(), Peer()
    watched.table.register(Heartbeat(_data("T")), _client(old, "1"))
    watched.table.register(Heartbeat(_data("T")), _client(new, "1"))
    group = watched.table.find_group("CG")
    assert group is not None and group.client_ids() == ["1"]
    watched.table.connection_closed(old.connection)
    assert group.client_ids() == ["1"]


async def test_latest_heartbeat_determines_the_group_profile() -> None:
    table, peer = ConsumerTable(), Peer()
    data = _data("T").model_copy(
        update={
            "consume_type": ConsumeType.CONSUME_ACTIVELY,
            "message_model": MessageModel.BROADCASTING,
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        }
    )
    table.register(Heartbeat(data), _client(peer, "1"))
    group = table.find_group("CG")
    assert group is not None and group.is_broadcasting
    assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    table.register(Heartbeat(_data("T")), _client(peer, "1"))
    assert not group.is_broadcasting


async def test_topics_are_added_and_removed() -> None:
    watched, peer = _Watched(), Peer()
    for topics in (("A", "B"), ("A", "B"), ("B", "C"), ("B",)):
        watched.table.register(Heartbeat(_data(*topics)), _client(peer, "1"))
    group = watched.table.find_group("CG")
    assert group is not None and set(group.subscriptions) == {"B"}
    assert len(watched.changes) == 3
    assert watched.table.groups_subscribed_to("B") == {"CG"}
    assert watched.table.groups_subscribed_to("A") == set()


async def test_an_added_subscription_is_logged_in_short(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rmq.broker.clients"):
        _Watched().table.register(Heartbeat(_data("T", tags="a || b")), _client(Peer(), "1"))
    assert "subscription added group=CG topic=T type=TAG expression='a || b'" in caplog.messages


async def test_newest_expression_wins_without_rebalance() -> None:
    watched, peer = _Watched(), Peer()
    for version, tags in ((5, "a"), (4, "old"), (5, "same"), (6, "b")):
        watched.table.register(Heartbeat(_data("T", version=version, tags=tags)), _client(peer, "1"))
    subscription = watched.table.find_subscription("CG", "T")
    assert subscription is not None
    assert (subscription.sub_string, subscription.sub_version) == ("b", 6)
    assert watched.changes == ["CG"]


async def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    watched, one, two = _Watched(), Peer(), Peer()
    table = watched.table
    assert not table.register(Heartbeat(_data("T"), 77), _client(one, "1"))
    short = Heartbeat(_data(), 77, without_subscriptions=True)
    assert not table.register(short, _client(one, "1"))
    assert table.find_subscription("CG", "T") is not None
    assert not table.register(short, _client(two, "2"))
    assert watched.changes == ["CG", "CG"]


async def test_differing_members_must_send_complete_heartbeats() -> None:
    table, one, two = ConsumerTable(), Peer(), Peer()
    assert not table.register(Heartbeat(_data("A"), 77), _client(one, "1"))
    assert table.register(Heartbeat(_data("B"), 88), _client(two, "2"))
    assert table.register(Heartbeat(_data(), 77, without_subscriptions=True), _client(one, "1"))
    assert not table.register(Heartbeat(_data("A"), 77), _client(one, "1"))


async def test_short_heartbeat_is_not_enough_after_a_restart() -> None:
    table, peer = ConsumerTable(), Peer()
    assert table.register(Heartbeat(_data(), 77, without_subscriptions=True), _client(peer, "1"))
    assert not table.register(Heartbeat(_data("T"), 77), _client(peer, "1"))


async def test_group_without_members_is_removed() -> None:
    watched, one, two = _Watched(), Peer(), Peer()
    table = watched.table
    for peer in (one, two):
        table.register(Heartbeat(_data("T")), _client(peer, "x"))
    assert table.unregister("CG", one.connection)
    assert not table.unregister("CG", one.connection)
    assert not table.unregister("Unknown", one.connection)
    assert table.find_group("CG") is not None
    table.unregister("CG", two.connection)
    assert table.find_group("CG") is None and table.groups() == []
    assert len(watched.changes) == 4


async def test_closed_connection_leaves_all_its_groups() -> None:
    watched, one, two = _Watched(), Peer(), Peer()
    for group in ("A", "B"):
        watched.table.register(Heartbeat(_data("T", group=group)), _client(one, "1"))
    watched.table.register(Heartbeat(_data("T", group="B")), _client(two, "2"))
    watched.changes.clear()
    watched.table.connection_closed(one.connection)
    watched.table.connection_closed(one.connection)
    assert sorted(watched.changes) == ["A", "B"]
    assert [group.name for group in watched.table.groups()] == ["B"]


async def test_silent_members_expire() -> None:
    watched, one, two = _Watched(), Peer(), Peer()
    watched.table.register(Heartbeat(_data("T")), _client(one, "1", START_MS))
    watched.table.register(Heartbeat(_data("T")), _client(two, "2", START_MS + 60_000))
    watched.changes.clear()
    assert watched.table.expire(START_MS) == []
    expired = watched.table.expire(START_MS + 1)
    assert [client.client_id for client in expired] == ["1"]
    group = watched.table.find_group("CG")
    assert group is not None and group.client_ids() == ["2"]
    assert watched.changes == ["CG"]
