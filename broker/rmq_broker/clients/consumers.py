"""Consumers that are connected now, by group.

Source of the rules: Apache RocketMQ 5.3.3, ConsumerManager and ConsumerGroupInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmq_remoting.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from rmq_remoting.connection import Connection

from ..groups.names import SYSTEM_GROUPS
from .agreement import Agreement, wants_of
from .client import ConnectedClient
from .subscription import Subscription

log = logging.getLogger("rmq.broker.clients")


class ConsumerGroup:
    """The living members of a group and what they are subscribed to.

    What a group does (who decides when messages come, whether each member gets each message, where it
    starts) is what its last heartbeat said.
    """

    __slots__ = (
        "agreement",
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
        # By which it is seen whether the members agree; 0 from clients that know no fingerprints.
        self.heartbeat_fingerprint: int | None = None
        self.members: dict[Connection, ConnectedClient] = {}
        self.agreement = Agreement(name)
        self.subscriptions: dict[str, Subscription] = {}

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def profile(self) -> tuple[object, ...]:
        """What the last heartbeats said of the group as a whole."""
        return (self.consume_type, self.message_model, self.consume_from_where, *self.subscriptions.values())

    def find_subscription(self, topic: str) -> Subscription | None:
        """The group's subscription to a topic."""
        return self.subscriptions.get(topic)

    def client_ids(self) -> list[str]:
        """The members' ids, each once: a client that has just reconnected is here with both connections."""
        return list(dict.fromkeys(client.client_id for client in self.members.values()))

    def find_client(self, client_id: str) -> ConnectedClient | None:
        """The member of that id."""
        return next((client for client in self.members.values() if client.client_id == client_id), None)

    def update_member(self, client: ConnectedClient) -> bool:
        """Note a member's heartbeat; whether it is a new member."""
        known = self.members.get(client.connection)
        if known is None:
            self.members[client.connection] = client
            log.info("consumer %s joined group %s", client, self.name)
            return True
        if known.client_id != client.client_id:
            log.warning("consumer %s of group %s is now %s", known, self.name, client.client_id)
            self.members[client.connection] = client
        else:
            known.last_seen_ms = client.last_seen_ms
        return False

    def update_subscriptions(self, wanted: Iterable[Subscription]) -> bool:
        """Take over a whole heartbeat's subscriptions; whether topics came or went.

        A newer expression for a topic replaces the older; it is no reason to share the queues out anew.
        """
        topics: set[str] = set()
        updated = False
        for subscription in wanted:
            topics.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                log.info("group %s subscribes to %s", self.name, subscription)
                updated = True
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[subscription.topic] = subscription
        for topic in self.subscriptions.keys() - topics:
            log.info("group %s no longer subscribes to %s", self.name, topic)
            del self.subscriptions[topic]
            updated = True
        return updated


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What one heartbeat tells of one group; `fingerprint` is 0 for the first version of heartbeats.

    A heartbeat without subscriptions stands for one that is as the last.
    """

    data: ConsumerData
    fingerprint: int = 0
    without_subscriptions: bool = False


class ConsumerTable:
    """Consumer groups with living members; a group without any is forgotten.

    Listeners are called when a group's members or topics have changed: the queues are to be shared out anew.
    `version` grows with every change, for whoever keeps something made out of the table.
    """

    def __init__(self) -> None:
        self.version = 0
        self._groups: dict[str, ConsumerGroup] = {}
        # By connection, so that the end of one costs what it has, not what there is.
        self._groups_of: dict[Connection, set[str]] = {}
        self._listeners: list[Callable[[ConsumerGroup], None]] = []
        self._subscription_listeners: list[Callable[[str, list[Subscription]], None]] = []

    # --- looking up ---

    def find_group(self, name: str) -> ConsumerGroup | None:
        """A group with living members."""
        return self._groups.get(name)

    def find_subscription(self, group: str, topic: str) -> Subscription | None:
        """A group's subscription to a topic."""
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def may_consume(self, group: str, topic: str) -> bool:
        """Not if members are connected and have given the topic up; its offsets tell of the past then."""
        found = self._groups.get(group)
        return found is None or not found.subscriptions or topic in found.subscriptions

    def groups(self) -> list[ConsumerGroup]:
        """All groups, as a list of its own."""
        return list(self._groups.values())

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """Names of the groups that are subscribed to a topic."""
        return {group.name for group in self._groups.values() if topic in group.subscriptions}

    def on_change(self, listener: Callable[[ConsumerGroup], None]) -> None:
        """Have `listener` called after a group's members or topics have changed."""
        self._listeners.append(listener)

    def on_subscriptions(self, listener: Callable[[str, list[Subscription]], None]) -> None:
        """Have `listener` called with a group and all that one of its members says it subscribes to."""
        self._subscription_listeners.append(listener)

    # --- what clients tell ---

    def register(self, heartbeat: Heartbeat, client: ConnectedClient) -> bool:
        """Note a heartbeat.

        Whether the client has to send its whole heartbeat next time: the group's subscriptions are not
        known, or another member's fingerprint was different (ClientManageProcessor.heartBeatV2).
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
            # Apache answers false where it knows no subscription at all, e.g. after the broker's restart.
            differs = differs or not group.subscriptions
        else:
            wanted = [Subscription.of(each) for each in data.subscription_data_set]
            changed |= group.update_subscriptions(wanted)
            for hear in self._subscription_listeners:
                hear(group.name, wanted)
            if data.group_name not in SYSTEM_GROUPS:  # tools: each has its own errand
                group.agreement.heard(client, wants_of(data.message_model, wanted))
        if changed:
            self._publish(group)
        elif group.profile != before:
            self.version += 1
        return differs

    def unregister(self, group_name: str, connection: Connection) -> bool:
        """A client has left a group; whether it was in it."""
        group = self._groups.get(group_name)
        if group is None or not self._remove(group, connection, "left"):
            return False
        self._publish(group)
        return True

    def connection_closed(self, connection: Connection) -> None:
        """A connection has ended."""
        for name in list(self._groups_of.get(connection, ())):
            group = self._groups[name]
            self._remove(group, connection, "lost its connection and left")
            self._publish(group)

    def expire(self, before_ms: int) -> list[ConnectedClient]:
        """Forget the members whose last heartbeat is older; their connections are not closed here."""
        expired: list[ConnectedClient] = []
        for group in self.groups():
            silent = [client for client in group.members.values() if client.last_seen_ms < before_ms]
            for client in silent:
                self._remove(group, client.connection, "was silent and is out of")
            if silent:
                self._publish(group)
                expired += silent
        return expired

    # --- inside ---

    def _remove(self, group: ConsumerGroup, connection: Connection, how: str) -> bool:
        client = group.members.pop(connection, None)
        if client is None:
            return False
        group.agreement.left(connection)
        log.info("consumer %s %s group %s", client, how, group.name)
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
