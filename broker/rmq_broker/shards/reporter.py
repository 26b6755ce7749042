"""A shard's side of the shared tables: it reports its topics and groups to the supervisor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import ConnectionClosed, RequestError

from ..groups.names import SYSTEM_GROUPS, is_system_group
from ..topics.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from .kinds import GROUPS, TOPICS, ConfigT, Kind, confirmation, exclusion

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ..groups.table import GroupsChanged, SubscriptionGroupTable
    from ..topics.table import TopicsChanged, TopicTable

log = logging.getLogger("rmq.shards")

_ItemT = TypeVar("_ItemT")

# Entries in one report.
_BATCH: Final = 100
_ANSWER_SECONDS: Final = 60.0
# Clients wait 3 s for an answer, by default.
_CONFIRM_SECONDS: Final = 2.0
# Reports that the supervisor has not read; a topic takes some 300 bytes.
_MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024


class ChangeReporter:
    """Reports all entries once, and then every change at the moment of the change.

    A change is written to the connection within the call that made it. Therefore its report precedes the
    answer to the admin request behind it, on which the supervisor relies.
    """

    def __init__(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        self._topics = topics
        self._groups = groups
        self._connection: Connection | None = None
        # Entries that were deleted before `start`: the supervisor would otherwise create them again.
        self._deleted: dict[str, set[str]] = {TOPICS.name: set(), GROUPS.name: set()}
        topics.on_change(self._topics_changed)
        groups.on_change(self._groups_changed)

    async def start(self, connection: Connection) -> None:
        """Report all entries, and every change from now on. Raises RequestError."""
        self._connection = connection
        topics = [config.topic_name for config in self._topics.configs()]
        self._exclude(topics)
        groups = [config.group_name for config in self._groups.configs()]
        await self._report_all(connection, TOPICS, filter(self._is_shared_topic, topics), self._topics.get)
        await self._report_all(connection, GROUPS, filter(_is_shared_group, groups), self._groups.get)

    async def confirmed(self) -> None:
        """Wait until the supervisor has persisted all reports so far; a failure is logged."""
        connection = self._connection
        try:
            if connection is None:
                raise ConnectionClosed("the shard has not reported its topics and groups yet")
            answer = await connection.send_request(confirmation(), _CONFIRM_SECONDS)
            problem = None if answer.code == ResponseCode.SUCCESS else answer.remark
        except RequestError as error:
            problem = str(error)
        if problem is not None:
            log.warning(
                "deletion not confirmed by the supervisor cause=%s; if the supervisor is killed now, the "
                "topic or group may be created again",
                problem,
            )

    # --- internals ---

    async def _report_all(
        self,
        connection: Connection,
        kind: Kind[ConfigT],
        names: Iterable[str],
        get: Callable[[str], ConfigT | None],
    ) -> None:
        for name in self._deleted[kind.name]:
            self._send(kind.deletion_of(name, oneway=True))
        for some in _batches(list(names)):
            # Read when they are sent: reports are in the order of the changes.
            configs = [config for name in some if (config := get(name)) is not None]
            await connection.send_request(kind.report(configs), _ANSWER_SECONDS)
        await connection.send_request(kind.end_of_reports(), _ANSWER_SECONDS)

    def _exclude(self, topics: Iterable[str]) -> None:
        """Report the static ones among topics: each broker has other logical queues of them."""
        for name in topics:
            if name in self._topics.mappings:
                self._send(exclusion(name))

    def _topics_changed(self, change: TopicsChanged) -> None:
        self._exclude(config.topic_name for config in change.updated)
        updated = [config for config in change.updated if self._is_shared_topic(config.topic_name)]
        self._report(TOPICS, updated, filter(self._is_shared_topic, change.removed))

    def _groups_changed(self, change: GroupsChanged) -> None:
        updated = [config for config in change.updated if _is_shared_group(config.group_name)]
        self._report(GROUPS, updated, filter(_is_shared_group, change.removed))

    def _report(self, kind: Kind[ConfigT], updated: list[ConfigT], removed: Iterable[str]) -> None:
        if self._connection is None:
            self._deleted[kind.name].update(removed)
            return
        for some in _batches(updated):
            self._send(kind.report(some, oneway=True))
        for name in removed:
            self._send(kind.deletion_of(name, oneway=True))

    def _send(self, report: RemotingCommand) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        if connection.unsent_bytes > _MAX_UNREAD_BYTES:
            log.error(
                "changes of topics and groups not read by the supervisor unread_bytes=%d; ending the "
                "connection, so that the supervisor restarts this shard and gets all of them",
                connection.unsent_bytes,
            )
            connection.abort()
            return
        connection.write(report)

    def _is_shared_topic(self, name: str) -> bool:
        return (
            name not in self._topics.system_topics
            and name not in self._topics.mappings
            and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        )


def _batches(items: list[_ItemT]) -> Iterator[list[_ItemT]]:
    for first in range(0, len(items), _BATCH):
        yield items[first : first + _BATCH]


def _is_shared_group(name: str) -> bool:
    return name not in SYSTEM_GROUPS and not is_system_group(name)
