"""Whether the members of a group want the same messages.

They share the group's queues out among them as if they did. Where they do not, each member gets a part of
what the others want and passes over it, and nobody is told: messages are lost silently. The broker sees it
in their heartbeats.
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

# One group is warned of this often at most, however often its members change.
WARNING_SPACING_MS: Final = 10_000
_MAX_VARIANTS_TOLD: Final = 4
_MAX_CLIENTS_TOLD: Final = 3
_MAX_WANTS_TOLD: Final = 5

# What a member wants: texts, each of which it has or has not in common with another member.
Wants = frozenset[str]


def wants_of(model: MessageModel, subscriptions: Iterable[Subscription]) -> Wants:
    """What a member wants, whatever the versions of its subscriptions and the order of their tags."""
    wants = {_text(each) for each in subscriptions if not each.topic.startswith(RETRY_PREFIX)}
    if model is MessageModel.BROADCASTING:
        wants.add("every message by itself (BROADCASTING)")
    return frozenset(wants)


class Agreement:
    """The members of one group by what they want; a change is warned of once, in the log."""

    __slots__ = ("_changed", "_members", "_next_warning_ms", "_of", "group_name")

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name
        self._members: dict[Wants, dict[Connection, ConnectedClient]] = {}
        self._of: dict[Connection, Wants] = {}
        self._changed = False
        self._next_warning_ms = 0

    @property
    def variants(self) -> int:
        """How many different things the members want: 1 where all is well."""
        return len(self._members)

    def heard(self, client: ConnectedClient, wants: Wants) -> None:
        """A member has said what it wants; its heartbeat's time is the time of the warning."""
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

    def left(self, connection: Connection) -> None:
        """A member is gone."""
        wants = self._of.pop(connection, None)
        if wants is not None:
            self._remove(connection, wants)

    # --- inside ---

    def _remove(self, connection: Connection, wants: Wants) -> None:
        members = self._members[wants]
        del members[connection]
        if not members:
            del self._members[wants]
            self._changed = True

    def _tell(self, now_ms: int) -> None:
        if self.variants > 1:
            if now_ms < self._next_warning_ms:
                return  # the next heartbeat of any member comes back to it
            self._next_warning_ms = now_ms + WARNING_SPACING_MS
            log.warning(
                "the members of group %s do not subscribe to the same: each passes over messages that are "
                "meant for others. %s",
                self.group_name,
                self.describe(),
            )
        elif self._next_warning_ms:
            self._next_warning_ms = 0
            log.info("the members of group %s subscribe to the same again", self.group_name)
        self._changed = False

    def describe(self) -> str:
        """Who differs from the others, and in what; of many only some."""
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


def _list(wants: Wants) -> str:
    if not wants:
        return "nothing more"
    told = [shown(want) for want in sorted(wants)[:_MAX_WANTS_TOLD]]
    more = len(wants) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
