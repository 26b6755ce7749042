"""Topics that a replica knows from its log alone.

A replica takes over its master's topics a second or two after a change. If the master is lost before that,
acknowledged messages of a new topic are in the replica's log, and nobody could consume them, because the
topic is unknown. Such a topic is created from its queues.

Messages of a topic that the master has deleted may be in the log, too. All of them are older than the
master's last answer, which lacks the topic. So a topic is new only if it has messages behind
`topics_log_end`, the end of this log when the last answer was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.daemon.config_file import ConfigFile, ConfigFileError

from ...topics.names import (
    DEAD_LETTER_PREFIX,
    LIGHT_QUEUE_PREFIX,
    RETRY_PREFIX,
    has_illegal_characters,
    stored_topic_problem,
)
from .followed_versions import FollowedVersions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...store.api import ConsumeQueue
    from ...topics.service import TopicService
    from ...topics.table import TopicTable

log = logging.getLogger("rmq.broker.replication")

FILE_NAME: Final = "replicaMetadata.json"
_QUEUES: Final = 4  # as producers ask for, if they do not say otherwise


class QueuesOfLog(Protocol):
    """The store, as far as this needs it."""

    @property
    def queues(self) -> Iterable[ConsumeQueue]:
        """All queues."""

    @property
    def entries_end(self) -> int:
        """The log offset up to which every message is in its queue."""


class NewTopics:
    """Creates topics of which the master's last answer could not tell yet; belongs to the loop's thread."""

    def __init__(
        self, topics: TopicTable, store: QueuesOfLog, versions: FollowedVersions, changed: Callable[[], None]
    ) -> None:
        """`changed` is called after `versions` has changed."""
        self._topics = topics
        self._store = store
        self._versions = versions
        self._changed = changed
        self._looked_up_to = -1

    @property
    def log_end(self) -> int:
        """The end of this log, to be read before the master is asked for its topics."""
        return self._store.entries_end

    def told_up_to(self, log_end: int) -> None:
        """Note that the master's answer tells of all topics with messages before `log_end`."""
        if self._versions.topics_log_end != log_end:
            self._versions.topics_log_end = log_end
            self._changed()

    def create(self) -> None:
        """Create the topics that are new; the master is away, or this broker has become the master.

        Raises OSError.
        """
        told, end = self._versions.topics_log_end, self._store.entries_end
        if told is None or end in (told, self._looked_up_to):
            return
        self._looked_up_to = end
        found: dict[str, int] = {}
        for queue in self._unknown_queues():
            last = queue.last_entry() if queue.max_offset else None
            if last is not None and last[0] >= told:
                found[queue.topic] = max(found.get(queue.topic, 0), queue.queue_id + 1)
        for name, queues in found.items():
            self._create(name, queues)

    def _unknown_queues(self) -> Iterator[ConsumeQueue]:
        for queue in self._store.queues:
            name = queue.topic
            if name in self._topics or name.startswith(LIGHT_QUEUE_PREFIX):
                continue
            if not has_illegal_characters(name) and stored_topic_problem(name) is None:
                yield queue

    def _create(self, name: str, queues: int) -> None:
        if not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            queues = max(queues, _QUEUES)
        self._topics.update(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues))
        log.warning(
            "topic created from its messages topic=%s queues=%d cause=the master was lost before this "
            "replica took the topic over; if it had other settings, set them by mqadmin updateTopic",
            name,
            queues,
        )


async def create_after_promotion(folder: Path, topics: TopicService, store: QueuesOfLog) -> None:
    """Create the topics that are new to a master which was a replica before. Raises OSError.

    `folder` is that of the configuration's files.
    """
    versions = FollowedVersions()
    file = ConfigFile(folder / FILE_NAME, versions)
    try:
        was_replica = await asyncio.to_thread(file.load)
    except ConfigFileError as error:
        log.warning("new topics of the former master not looked for cause=%s", error)
        return
    if not was_replica or versions.topics_log_end is None:
        return
    NewTopics(topics.table, store, versions, file.changed).create()
    await topics.save()
    # From now on this broker creates and deletes topics itself.
    versions.topics_log_end = None
    file.changed()
    await file.close()
