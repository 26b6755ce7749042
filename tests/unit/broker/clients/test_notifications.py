"""Members are notified of membership changes."""

from __future__ import annotations

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import Heartbeat
from rmq_broker.clients.notifications import MemberChangeNotifier
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq_remoting.codes import LanguageCode, RequestCode
from tests.support.broker_tables import BrokerTables
from tests.support.clock import START_MS
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until


class _Broker(BrokerTables):
    """A table of consumers with a notifier."""

    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.notifier = MemberChangeNotifier(self.groups, self.settings)
        self.consumers.on_change(self.notifier.changed)

    def heartbeat(self, peer: Peer, model: MessageModel = MessageModel.CLUSTERING) -> None:
        self.join(str(id(peer)), peer=peer, model=model, subscriptions=[SubscriptionData(topic="T")])


async def test_every_member_is_notified_once() -> None:
    broker, peers = _Broker(), [Peer() for _ in range(3)]
    for peer in peers:
        broker.heartbeat(peer)
    await loop_passes()
    for peer in peers:
        (command,) = peer.received
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway
        assert command.ext_fields == {"consumerGroup": "CG"}
    broker.consumers.connection_closed(peers[0].connection)
    await loop_passes()
    assert [len(peer.received) for peer in peers] == [1, 2, 2]
    assert broker.notifier.sent == 5


async def test_notifications_of_a_large_group_are_batched() -> None:
    broker, peers = _Broker(), [Peer() for _ in range(130)]
    for peer in peers:
        broker.heartbeat(peer)
        await loop_passes()
    await until(lambda: peers[-1].received)
    assert len(peers[-1].received) == 1
    assert broker.notifier.sent < 101 * 102 / 2 + 2 * 130


async def test_heartbeats_without_change_cause_no_notification() -> None:
    broker, peer = _Broker(), Peer()
    for _ in range(3):
        broker.heartbeat(peer)
        await loop_passes()
    assert len(peer.received) == 1


async def test_members_without_notifications() -> None:
    off = _Broker(notifyConsumerIdsChangedEnable="false")
    group_off = _Broker()
    group_off.groups.update(
        SubscriptionGroupConfig(group_name="CG", notify_consumer_ids_changed_enable=False)
    )
    for broker in (off, group_off):
        peer = Peer()
        broker.heartbeat(peer)
        await loop_passes()
        assert peer.received == []
    peer = Peer()
    _Broker().heartbeat(peer, MessageModel.BROADCASTING)
    await loop_passes()
    assert peer.received == []


async def test_closed_connection_does_not_block_notifications() -> None:
    broker, gone, there = _Broker(), Peer(), Peer()
    broker.heartbeat(gone)
    broker.heartbeat(there)
    gone.transport.abort()
    await gone.connection.wait_closed()
    await loop_passes()
    broker.consumers.register(
        Heartbeat(ConsumerData(group_name="CG", subscription_data_set=[SubscriptionData(topic="U")])),
        ConnectedClient(there.connection, "there", LanguageCode.JAVA, 479, START_MS),
    )
    await loop_passes()
    assert len(there.received) == 2
