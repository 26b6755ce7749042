"""Whether the members of a consumer group have the same subscriptions.

The members divide the queues among themselves as if all had the same subscriptions. If they differ, each
member receives messages that only the others want and skips them: messages are lost silently. The broker
detects this from the heartbeats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION, MessageModel
from rmq_remoting.connection import Connection
from rmq_remoting.errors import shown

from ..topics.names import RETRY_PREFIX

if TYPE_CHECKING:
    from .client import ConnectedClient
    from .subscription import Subscription

log = logging.getLogger("rmq.broker.clients")

# At most one warning per group in this interval, however often its members change.
WARNING_SPACING_MS: Final = 10_000
_MAX_VARIANTS_TOLD: Final = 4
_MAX_CLIENTS_TOLD: Final = 3
_MAX_WANTS_TOLD: Final = 5

# The subscriptions of one member as texts, in a form that can be compared with another member's.
SubscriptionTexts = frozenset[str]


def subscription_texts(model: MessageModel, subscriptions: Iterable[Subscription]) -> SubscriptionTexts:
    """Return a member's subscriptions as texts, regardless of their versions and the order of tags."""
    texts = {_text(each) for each in subscriptions if not each.topic.startswith(RETRY_PREFIX)}
    if model is MessageModel.BROADCASTING:
        texts.add("every message by itself (BROADCASTING)")
    return frozenset(texts)


class SubscriptionConsistency:
    """The members of one group by their subscriptions; each inconsistency is logged once."""

    __slots__ = ("_changed", "_members", "_next_warning_ms", "_of", "group_name")

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name
        self._members: dict[SubscriptionTexts, dict[Connection, ConnectedClient]] = {}
        self._of: dict[Connection, SubscriptionTexts] = {}
        self._changed = False
        self._next_warning_ms = 0

    @property
    def variants(self) -> int:
        """Number of different subscription sets in the group: 1 if the members are consistent."""
        return len(self._members)

    def update(self, client: ConnectedClient, wants: SubscriptionTexts) -> None:
        """Note the subscriptions of a member; the time of a warning is that of its heartbeat."""
        connection = client.connection
        before = self._of.get(connection)
        if before != wants:
            if before is not None:
                self._remove(connection, before)
            self._of[connection] = wants
            members = self._members.get(wants)
            if members is None:
                members = self._members[wants] = {}
                self._changed = True
            members[connection] = client
        if self._changed:
            self._tell(client.last_seen_ms)

    def remove(self, connection: Connection) -> None:
        """Remove a member that has left."""
        wants = self._of.pop(connection, None)
        if wants is not None:
            self._remove(connection, wants)

    # --- internals ---

    def _remove(self, connection: Connection, wants: SubscriptionTexts) -> None:
        members = self._members[wants]
        del members[connection]
        if not members:
            del self._members[wants]
            self._changed = True

    def _tell(self, now_ms: int) -> None:
        if self.variants > 1:
            if now_ms < self._next_warning_ms:
                return  # the next heartbeat of any member checks again
            self._next_warning_ms = now_ms + WARNING_SPACING_MS
            log.warning(
                "members of a group have different subscriptions, so each skips messages that only "
                "others want; give all members the same subscriptions. group=%s members: %s",
                self.group_name,
                self.describe(),
            )
        elif self._next_warning_ms:
            self._next_warning_ms = 0
            log.info("members of a group have the same subscriptions again group=%s", self.group_name)
        self._changed = False

    def describe(self) -> str:
        """Return the members that differ, and their additional subscriptions; only some if there are many."""
        common = frozenset.intersection(*self._members) if self._members else frozenset()
        told = [
            f"{_names(list(members.values()))}: {_list(wants - common)}"
            for wants, members in list(self._members.items())[:_MAX_VARIANTS_TOLD]
        ]
        if self.variants > len(told):
            told.append(f"and {self.variants - len(told)} more variants")
        return "; ".join(told)


def _text(subscription: Subscription) -> str:
    if subscription.expression_type != TAG_EXPRESSION:
        return f"{subscription.topic} by {subscription.expression_type} {subscription.sub_string}"
    if subscription.takes_all or not subscription.tags_set:
        return f"{subscription.topic} {subscription.sub_string}"
    return f"{subscription.topic} {' || '.join(sorted(subscription.tags_set))}"


def _names(clients: list[ConnectedClient]) -> str:
    names = ", ".join(client.client_id for client in clients[:_MAX_CLIENTS_TOLD])
    more = len(clients) - _MAX_CLIENTS_TOLD
    return f"{names} and {more} more" if more > 0 else names


def _list(wants: SubscriptionTexts) -> str:
    if not wants:
        return "nothing more"
    told = [shown(want) for want in sorted(wants)[:_MAX_WANTS_TOLD]]
    more = len(wants) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
