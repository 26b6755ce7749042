"""Topics of the master (Apache RocketMQ 5.3.3, SlaveSynchronize.syncTopicConfig)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.static_topic import TopicConfigAndMappingSerializeWrapper
from rmq_remoting.codes import RequestCode

from ...topics.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    has_illegal_characters,
    stored_topic_problem,
)
from .master import MetadataError
from .part import require_member
from .table_age import TableAge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq_remoting.bodies.topic import TopicConfig

    from ...topics.deletion import TopicDeletion
    from ...topics.table import TopicTable
    from .log_barrier import LogBarrier
    from .master import Master
    from .new_topics import NewTopics

log = logging.getLogger("rmq.broker.replication")

_DELETED: Final = "deleted topics"
# Every broker has these. An answer without them is no whole table.
_OF_EVERY_BROKER: Final = frozenset({SCHEDULE_TOPIC, SELF_TEST_TOPIC})
_GROUP_SEPARATORS: Final = ("+", "_")  # behind the group in the names of POP's retry topics


class TopicPart:
    """Takes over topics, and the mappings of static topics.

    Topics that the master has deleted are deleted here once the log is at that point. Kept are topics that
    this broker needs itself, and retry topics of groups in use here: their members, or commits that the
    master does not have yet. Nothing is deleted because of an answer that is no whole table, or of one
    that is older than the table taken over before.
    """

    name = "topics"
    period_seconds = 10.0
    is_versioned = True

    def __init__(
        self,
        topics: TopicTable,
        deletion: TopicDeletion,
        age: TableAge,
        barrier: LogBarrier,
        groups_in_use: Callable[[], Iterable[str]],
        new_topics: NewTopics,
    ) -> None:
        """`groups_in_use` returns the names of groups that are in use here."""
        self._topics = topics
        self._deletion = deletion
        self._age = age
        self._barrier = barrier
        self._groups_in_use = groups_in_use
        self._new_topics = new_topics
        self._masters: frozenset[str] = frozenset()  # the names in the last answer
        # The last answer, and the version of the topics afterwards; None if there are further topics here.
        self._taken: tuple[bytes, int] | None = None
        self._told: set[str] = set()

    async def sync(self, master: Master) -> None:
        """Take over the master's topics. Raises RequestError, MetadataError, BodyError."""
        log_end = self._new_topics.log_end
        body = await master.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        if self._taken == (body, self._topics.version):
            self._new_topics.told_up_to(log_end)
            return
        answer = await asyncio.to_thread(TopicConfigAndMappingSerializeWrapper.decode, body)
        require_member(answer, "topic_config_table")
        table = answer.topic_config_table
        missing = sorted(_OF_EVERY_BROKER - table.keys())
        if missing:
            raise MetadataError(f"the answer lacks the topics {', '.join(missing)}, which every broker has")
        version = self._age.newer(answer.data_version)
        if version is not None:
            mapped = self._topics.mappings.follow(
                answer.topic_queue_mapping_detail_map, answer.mapping_data_version, table
            )
            if mapped:
                log.info("static topics taken from the master changed=%d master=%s", mapped, master.address)
        changed = self._topics.follow(self._usable(table.values()), version)
        if changed:
            log.info("topics taken from the master changed=%d master=%s", changed, master.address)
        self._masters = frozenset(table)
        gone = self._gone()
        if gone and version is not None:
            self._barrier.hold(_DELETED, self._delete_gone)
        self._age.tell(version, answer.data_version, gone)
        self._taken = None if self._further() else (body, self._topics.version)
        if version is not None:
            self._new_topics.told_up_to(log_end)

    def master_changed(self) -> None:
        """Forget the last answer."""
        self._masters, self._taken = frozenset(), None

    def _usable(self, configs: Iterable[TopicConfig]) -> list[TopicConfig]:
        """Return the topics whose queues the store can hold; log the others once."""
        usable = []
        for config in configs:
            name = config.topic_name
            if name and not has_illegal_characters(name) and stored_topic_problem(name) is None:
                usable.append(config)
            elif name not in self._told:
                self._told.add(name)
                log.error("topic of the master skipped topic=%.300r cause=illegal or too long name", name)
        return usable

    def _further(self) -> list[str]:
        """Return the topics here that the master lacks, without system topics."""
        topics, masters = self._topics, self._masters
        names = [config.topic_name for config in topics.configs() if config.topic_name not in masters]
        return [name for name in names if name not in topics.system_topics]

    def _gone(self) -> list[str]:
        """Return the topics here that the master has deleted."""
        further = self._further()
        used = list(self._groups_in_use()) if further else []
        return [name for name in further if not any(_belongs_to(name, group) for group in used)]

    async def _delete_gone(self) -> None:
        """Delete the topics that the master lacks still. Raises OSError."""
        gone = self._gone() if self._masters else []
        if not gone:
            return
        log.info("topics deleted, the master has deleted them topics=%s", ", ".join(gone))
        version = self._topics.data_version
        deleted = self._deletion.delete(gone)
        self._topics.follow((), version)
        await deleted


def _belongs_to(topic: str, group: str) -> bool:
    """Whether a topic is a retry or dead letter topic of a group."""
    retry = f"{RETRY_PREFIX}{group}"
    return topic in (retry, f"{DEAD_LETTER_PREFIX}{group}") or topic.startswith(
        tuple(f"{retry}{separator}" for separator in _GROUP_SEPARATORS)
    )
