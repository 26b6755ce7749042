"""Connected consumers, by group.

Source of the rules: Apache RocketMQ 5.3.3, ConsumerManager and ConsumerGroupInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmq_remoting.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from rmq_remoting.connection import Connection

from ..groups.names import SYSTEM_GROUPS
from .client import ConnectedClient
from .subscription import Subscription
from .subscription_consistency import SubscriptionConsistency, subscription_texts

log = logging.getLogger("rmq.broker.clients")


class ConsumerGroup:
    """The live members of a group and their subscriptions.

    The latest heartbeat determines the group's consume type (push or pull), its message model and the
    position at which it starts.
    """

    __slots__ = (
        "consistency",
        "consume_from_where",
        "consume_type",
        "heartbeat_fingerprint",
        "members",
        "message_model",
        "name",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        # The fingerprints show whether the members agree; clients without fingerprints send 0.
        self.heartbeat_fingerprint: int | None = None
        self.members: dict[Connection, ConnectedClient] = {}
        self.consistency = SubscriptionConsistency(name)
        self.subscriptions: dict[str, Subscription] = {}

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def profile(self) -> tuple[object, ...]:
        """Properties of the whole group, from the latest heartbeats."""
        return (self.consume_type, self.message_model, self.consume_from_where, *self.subscriptions.values())

    def find_subscription(self, topic: str) -> Subscription | None:
        """Return the group's subscription to a topic; None without one."""
        return self.subscriptions.get(topic)

    def client_ids(self) -> list[str]:
        """Client ids of the members, each once: a client that just reconnected still has both connections."""
        return list(dict.fromkeys(client.client_id for client in self.members.values()))

    def find_client(self, client_id: str) -> ConnectedClient | None:
        """Return the member with this client id; None without one."""
        return next((client for client in self.members.values() if client.client_id == client_id), None)

    def update_member(self, client: ConnectedClient) -> bool:
        """Record a member's heartbeat; whether the member is new."""
        known = self.members.get(client.connection)
        if known is None:
            self.members[client.connection] = client
            log.info("consumer joined client=%s group=%s", client, self.name)
            return True
        if known.client_id != client.client_id:
            log.warning(
                "client id of a connection changed client=%s group=%s new_client_id=%s",
                known,
                self.name,
                client.client_id,
            )
            self.members[client.connection] = client
        else:
            known.last_seen_ms = client.last_seen_ms
        return False

    def update_subscriptions(self, wanted: Iterable[Subscription]) -> bool:
        """Apply all subscriptions of a heartbeat; whether topics were added or removed.

        A newer expression replaces the older one for the same topic, and needs no rebalance.
        """
        topics: set[str] = set()
        updated = False
        for subscription in wanted:
            topics.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                log.info(
                    "subscription added group=%s topic=%s type=%s expression=%.80r",
                    self.name,
                    subscription.topic,
                    subscription.expression_type,
                    subscription.sub_string,
                )
                updated = True
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[subscription.topic] = subscription
        for topic in self.subscriptions.keys() - topics:
            log.info("subscription removed group=%s topic=%s", self.name, topic)
            del self.subscriptions[topic]
            updated = True
        return updated


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The part of a heartbeat about one group; `fingerprint` is 0 for the first version of heartbeats.

    A heartbeat without subscriptions repeats the previous one.
    """

    data: ConsumerData
    fingerprint: int = 0
    without_subscriptions: bool = False


class ConsumerTable:
    """Consumer groups with live members; a group without members is removed.

    Listeners are called when a group's members or topics have changed and the group must rebalance. `version`
    grows with every change, so that caches derived from the table can detect it.
    """

    def __init__(self) -> None:
        self.version = 0
        self._groups: dict[str, ConsumerGroup] = {}
        # By connection: the end of a connection costs only its own groups.
        self._groups_of: dict[Connection, set[str]] = {}
        self._listeners: list[Callable[[ConsumerGroup], None]] = []
        self._subscription_listeners: list[Callable[[str, list[Subscription]], None]] = []

    # --- looking up ---

    def find_group(self, name: str) -> ConsumerGroup | None:
        """Return a group with live members; None without one."""
        return self._groups.get(name)

    def find_subscription(self, group: str, topic: str) -> Subscription | None:
        """Return a group's subscription to a topic; None without one."""
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def may_consume(self, group: str, topic: str) -> bool:
        """Whether the group may still consume the topic.

        If its connected members have unsubscribed from the topic, its offsets are only history.
        """
        found = self._groups.get(group)
        return found is None or not found.subscriptions or topic in found.subscriptions

    def groups(self) -> list[ConsumerGroup]:
        """Return a new list of all groups."""
        return list(self._groups.values())

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """Return the names of the groups that are subscribed to a topic."""
        return {group.name for group in self._groups.values() if topic in group.subscriptions}

    def on_change(self, listener: Callable[[ConsumerGroup], None]) -> None:
        """Register `listener`, called after a group's members or topics have changed."""
        self._listeners.append(listener)

    def on_subscriptions(self, listener: Callable[[str, list[Subscription]], None]) -> None:
        """Register `listener`, called with a group and all subscriptions of a member's heartbeat."""
        self._subscription_listeners.append(listener)

    # --- heartbeats ---

    def register(self, heartbeat: Heartbeat, client: ConnectedClient) -> bool:
        """Record a heartbeat; whether the client must send its complete heartbeat next time.

        It must if the group's subscriptions are unknown, or if another member's fingerprint differs
        (ClientManageProcessor.heartBeatV2).
        """
        data = heartbeat.data
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        before = group.profile
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        differs = group.heartbeat_fingerprint not in (None, heartbeat.fingerprint)
        group.heartbeat_fingerprint = heartbeat.fingerprint
        self._groups_of.setdefault(client.connection, set()).add(group.name)
        changed = group.update_member(client)
        if heartbeat.without_subscriptions:
            # Apache answers false if it knows no subscription at all, e.g. after the broker's restart.
            differs = differs or not group.subscriptions
        else:
            wanted = [Subscription.of(each) for each in data.subscription_data_set]
            changed |= group.update_subscriptions(wanted)
            for hear in self._subscription_listeners:
                hear(group.name, wanted)
            if data.group_name not in SYSTEM_GROUPS:  # admin tools: each instance has its own purpose
                group.consistency.update(client, subscription_texts(data.message_model, wanted))
        if changed:
            self._publish(group)
        elif group.profile != before:
            self.version += 1
        return differs

    def unregister(self, group_name: str, connection: Connection) -> bool:
        """Remove a client that has left a group; whether it was a member."""
        group = self._groups.get(group_name)
        if group is None or not self._remove(group, connection, "left"):
            return False
        self._publish(group)
        return True

    def connection_closed(self, connection: Connection) -> None:
        """Remove the clients of a closed connection."""
        for name in list(self._groups_of.get(connection, ())):
            group = self._groups[name]
            self._remove(group, connection, "disconnected")
            self._publish(group)

    def expire(self, before_ms: int) -> list[ConnectedClient]:
        """Remove the members whose last heartbeat is older; the caller closes their connections."""
        expired: list[ConnectedClient] = []
        for group in self.groups():
            silent = [client for client in group.members.values() if client.last_seen_ms < before_ms]
            for client in silent:
                self._remove(group, client.connection, "expired without heartbeat")
            if silent:
                self._publish(group)
                expired += silent
        return expired

    # --- internals ---

    def _remove(self, group: ConsumerGroup, connection: Connection, how: str) -> bool:
        client = group.members.pop(connection, None)
        if client is None:
            return False
        group.consistency.remove(connection)
        log.info("consumer %s client=%s group=%s", how, client, group.name)
        names = self._groups_of[connection]
        names.discard(group.name)
        if not names:
            del self._groups_of[connection]
        if not group.members:
            del self._groups[group.name]
        return True

    def _publish(self, group: ConsumerGroup) -> None:
        self.version += 1
        for listener in self._listeners:
            listener(group)
