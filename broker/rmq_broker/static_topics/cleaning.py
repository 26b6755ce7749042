"""Removal of items of static topics that no longer matter.

Source: Apache RocketMQ 5.3.3, TopicQueueMappingCleanService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from rmq_remoting.bodies.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from rmq_remoting.bodies.topic import TopicOffset, TopicStatsTable
from rmq_remoting.codes import RequestCode
from rmq_remoting.errors import BodyError, CommandError, RequestError
from rmq_remoting.message_queue import MessageQueue

from ..topics.queue_mapping import is_located
from .other_brokers import succeeded
from .requests import LOGICAL

if TYPE_CHECKING:
    from rmq_remoting.bodies.route import TopicRouteData

    from ..topics.queue_mapping import QueueMapping
    from ..topics.table import TopicTable
    from .other_brokers import OtherBrokers

log = logging.getLogger("rmq.broker.static_topics")

CLEANING_SECONDS: Final = 300.0

_Hosted = dict[int, list[LogicQueueMappingItem]]


class QueueEnds(Protocol):
    """The part of the message store that the cleaning needs."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's first message."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's next message."""


class DeletionHours(Protocol):
    """The setting `deleteWhen`."""

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of the day in which expired messages are deleted."""


class MappingCleaner:
    """Removes the oldest items of queues led here, and queues that this broker led long ago.

    An item is removed when its messages have been deleted. A queue is removed when its leader is another
    broker than the one that it was remapped to from here.
    """

    def __init__(
        self,
        settings: DeletionHours,
        topics: TopicTable,
        store: QueueEnds,
        brokers: OtherBrokers,
        now_seconds: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store
        self._brokers = brokers
        self._now_seconds = now_seconds

    async def clean_in_time(self) -> None:
        """Clean in the hours in which messages are deleted (`deleteWhen`)."""
        if datetime.fromtimestamp(self._now_seconds()).hour in self._settings.delete_hours:
            await self.clean()

    async def clean(self) -> None:
        """Clean the mappings of all static topics; those whose brokers do not answer stay as they are."""
        for mapping in self._topics.mappings.all():
            for clean in (self._clean_expired, self._clean_left):
                current = self._topics.mappings.get(mapping.topic)
                if current is None:
                    break
                try:
                    await clean(current)
                except (CommandError, RequestError, BodyError) as error:
                    log.warning(
                        "mapping of a static topic not cleaned, retrying in the next round topic=%s cause=%s",
                        *(mapping.topic, error),
                    )
            await asyncio.sleep(0)

    # --- items without messages ---

    async def _clean_expired(self, mapping: QueueMapping) -> None:
        """Remove the first item of each queue led here if it has no message."""
        hosted = mapping.detail.hosted_queues
        oldest = {
            logical_id: hosted[logical_id][0]
            for logical_id in mapping.leaders
            if len(hosted[logical_id]) > 1 and is_located(hosted[logical_id][1])
        }
        offsets = await self._offsets_of(mapping, oldest.values())
        empty = [
            logical_id
            for logical_id, item in oldest.items()
            if (ends := offsets.get((item.broker_name, item.queue_id))) is not None
            and ends.max_offset in (ends.min_offset, 0)
        ]
        kept: _Hosted = {**hosted, **{logical_id: hosted[logical_id][1:] for logical_id in empty}}
        if empty and self._topics.mappings.replace_queues(mapping, kept) is not None:
            log.info(
                "items of a static topic removed, they have no messages topic=%s queues=%s",
                *(mapping.topic, empty),
            )

    async def _offsets_of(
        self, mapping: QueueMapping, items: Iterable[LogicQueueMappingItem]
    ) -> dict[tuple[str | None, int], TopicOffset]:
        """Return the ends of physical queues, by broker and queue id, as far as their brokers answer."""
        found: dict[tuple[str | None, int], TopicOffset] = {}
        elsewhere: set[str] = set()
        for item in items:
            if mapping.is_here(item):
                found[item.broker_name, item.queue_id] = TopicOffset(
                    min_offset=max(0, self._store.min_offset(mapping.topic, item.queue_id)),
                    max_offset=max(0, self._store.max_offset(mapping.topic, item.queue_id)),
                )
            elif item.broker_name is not None:
                elsewhere.add(item.broker_name)
        for name in sorted(elsewhere):
            fields = {"topic": mapping.topic, LOGICAL: "false"}
            try:
                response = await self._brokers.ask(
                    mapping.topic, name, RequestCode.GET_TOPIC_STATS_INFO, fields
                )
                table = TopicStatsTable.decode(succeeded(response, name).body).offset_table
            except (CommandError, BodyError) as error:
                log.warning(
                    "queues of a static topic unknown, their items stay topic=%s broker=%s cause=%s",
                    *(mapping.topic, name, error),
                )
                continue
            found.update(
                ((name, queue.queue_id), ends)
                for queue, ends in table.items()
                if isinstance(queue, MessageQueue) and queue.broker_name == name
            )
        return found

    # --- queues that were remapped twice ---

    async def _clean_left(self, mapping: QueueMapping) -> None:
        """Remove queues whose leader is another one than this broker knows.

        Raises CommandError, RequestError, BodyError.
        """
        hosted = mapping.detail.hosted_queues
        known_leaders = {
            logical_id: items[-1].broker_name
            for logical_id, items in hosted.items()
            if items and not mapping.is_here(items[-1])
        }
        if not known_leaders:
            return
        leaders = _leaders(await self._brokers.route_of(mapping.topic), mapping)
        moved = {
            logical_id: leader
            for logical_id, known in known_leaders.items()
            if (leader := leaders.get(logical_id)) is not None and leader != known
        }
        details: dict[str, TopicQueueMappingDetail | None] = {}
        for name in sorted(set(moved.values())):
            details[name] = await self._mapping_at(mapping.topic, name)
        gone = [
            logical_id
            for logical_id, leader in moved.items()
            if _leads(details[leader], leader, logical_id, mapping.detail)
        ]
        kept = {logical_id: items for logical_id, items in hosted.items() if logical_id not in gone}
        if gone and self._topics.mappings.replace_queues(mapping, kept) is not None:
            log.info(
                "queues of a static topic forgotten, they were remapped again topic=%s queues=%s",
                *(mapping.topic, gone),
            )

    async def _mapping_at(self, topic: str, broker_name: str) -> TopicQueueMappingDetail | None:
        response = await self._brokers.ask(
            topic, broker_name, RequestCode.GET_TOPIC_CONFIG, {"topic": topic, LOGICAL: "true"}
        )
        body = succeeded(response, broker_name).body
        return TopicConfigAndQueueMapping.decode(body).mapping_detail


def _leaders(route: TopicRouteData, mapping: QueueMapping) -> dict[int, str]:
    """Return the broker that leads each logical queue: the one with the newest epoch, as for clients.

    (Apache RocketMQ 5.3.3, ClientMetadata.topicRouteData2EndpointsForStaticTopic.)
    """
    leaders: dict[int, str] = {}
    infos = [
        info
        for info in (route.topic_queue_mapping_by_broker or {}).values()
        if info.scope == mapping.detail.scope and info.broker_name is not None
    ]
    for info in sorted(infos, key=lambda info: info.epoch):
        leaders.update(dict.fromkeys(info.current_id_map, info.broker_name or ""))
    return leaders


def _leads(
    other: TopicQueueMappingDetail | None,
    broker_name: str,
    logical_id: int,
    own: TopicQueueMappingDetail,
) -> bool:
    """Whether a broker's mapping is as new as the own one, and says that this broker leads a queue."""
    if other is None or (other.total_queues, other.epoch) != (own.total_queues, own.epoch):
        return False
    items = other.hosted_queues.get(logical_id)
    return items is not None and any(
        other.broker_name == leader.broker_name == broker_name for leader in items[-1:]
    )
