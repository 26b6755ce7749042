"""Rights for messages that a request names by their place in the log: they depend on the stored topic.

The guard sees only the topics and groups that the request itself names. Apache's broker checks no more than
those (RocketMQ 5.3.3), so that a client may reach messages of topics that it has no rights for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.daemon.access.broker_requests import is_pop_retry_topic, topic_need
from rmq_remoting.daemon.access.needs import Actions

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.access.guard import AccessGuard

# Raises CommandError (NO_PERMISSION) unless the client may reach messages of a topic.
TopicCheck = Callable[[str], None]


class StoredTopics:
    """Checks the topics of stored messages."""

    def __init__(self, guard: AccessGuard | None) -> None:
        self._guard = guard if guard is not None and guard.knows_rights else None

    @property
    def are_checked(self) -> bool:
        """Whether a client may be refused for the topic of a message."""
        return self._guard is not None

    def check(
        self, connection: Connection, request: RemotingCommand, actions: Actions, topic: str, group: str = ""
    ) -> None:
        """Raise CommandError (NO_PERMISSION) unless the client may reach messages of a topic.

        `group`: the group that the request acts for, which owns the retry topics of its pops.
        """
        if self._guard is not None and not (group and is_pop_retry_topic(topic, group)):
            self._guard.demand(connection, request, topic_need(topic, actions))
