"""Routes of sends: decisions that depend on a send's target alone, taken once and cached.

A target is the part of a send's header that does not change from message to message. Whether the topic may be
written to, which queue it is and how its records begin follow from the target, the topic table and a few
settings. A message then costs only its own checks, its record and its answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.send import SendTarget
from rmq_remoting.sys_flags import MessageSysFlag

from ..statistics.broker_statistics import TopicStatistics
from ..store.api import BatchConsumeQueue, ConsumeQueue, RecordTemplate
from ..topics.names import RETRY_PREFIX
from .kinds import SendKind
from .properties import batch_in_transaction

if TYPE_CHECKING:
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from ..topics.queue_mapping import QueueMapping
    from .redirection import Redirection
    from .target_check import TargetChecker

# A batch as one record, which clients take apart.
_UNIT_FLAGS: Final = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
# The broker alone says how long the addresses in a record are.
_HOST_BITS: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
_MAX_ROUTES: Final = 65_536
_MAX_CACHE_BYTES: Final = 128 * 1024 * 1024
# A route without its texts: the target, the route and its two templates.
_ROUTE_BYTES: Final = 4 * ENTRY_OVERHEAD_BYTES
# No producer sends a target with longer texts.
_MAX_ROUTE_BYTES: Final = _ROUTE_BYTES + 4096

RouteKey = tuple[SendTarget, int]


@dataclass(slots=True)
class Route:
    """The decisions about a send's target, as of one version of the topic table."""

    table_version: int
    kind: SendKind  # PLAIN where a message's properties may still make it DELAYED, TIMED or HALF
    topic: str  # as the producer named it
    answered_queue_id: int  # the queue that the answer tells the producer
    queue: ConsumeQueue
    template: RecordTemplate  # of records from IPv4 producers
    template_v6: RecordTemplate
    sys_flag: int
    statistics: TopicStatistics  # of the queue's topic
    required_type: str | None  # the type that each message must have, if that is to be checked
    item: LogicQueueMappingItem | None  # of a static topic: how its offsets are counted for clients


class SendRoutes:
    """Finds the routes of targets; belongs to the loop's thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        checker: TargetChecker,
        store: MessageStore,
        statistics: BrokerStatistics,
        redirection: Redirection,
        store_host: bytes,
    ) -> None:
        """`store_host`: this broker's address, packed as in records."""
        self._settings = settings
        self._checker = checker
        self._queues = store.queues
        self._statistics = statistics
        self._redirection = redirection
        self._store_host = store_host
        self.cache: BoundedCache[RouteKey, Route] = BoundedCache(
            "send_routes",
            max_entries=_MAX_ROUTES,
            max_bytes=_MAX_CACHE_BYTES,
            size_of=_size_of,
            max_entry_bytes=_MAX_ROUTE_BYTES,
        )

    def find(self, target: SendTarget, peer: str, client_version: int) -> Route:
        """Return the route to the target's queue, or to a random one if its queue id is negative.

        `peer` is the producer's address, for the log. Raises CommandError if the target may not be sent to.
        """
        mapping = self._checker.topics.mappings.get(target.topic)
        if mapping is not None:
            return self._find_logical(target, mapping, peer, client_version)
        if target.queue_id >= 0:
            return self._resolve(target, target.queue_id, peer, client_version)
        topic = self._checker.check(target, peer)
        if topic.write_queue_nums <= 0:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"topic {target.topic} has no queues to write to"
            )
        queue_id = random.randrange(topic.write_queue_nums)
        route = self.cache.get((target, queue_id))
        if route is not None and route.table_version == self._checker.version:
            return route
        return self._resolve(target, queue_id, peer, client_version)

    def _find_logical(
        self, target: SendTarget, mapping: QueueMapping, peer: str, client_version: int
    ) -> Route:
        """Return the route to a logical queue, or to a random one of those that this broker leads.

        Raises CommandError. Apache takes the first queue of the mapping instead, which may be led elsewhere
        (5.3.3, TopicQueueMappingManager.buildTopicQueueMappingContext).
        """
        logical_id = target.queue_id
        if logical_id < 0 and mapping.leaders:
            logical_id = random.choice(list(mapping.leaders))
        return self._resolve(target, logical_id, peer, client_version, mapping.leader(logical_id))

    def _resolve(
        self,
        target: SendTarget,
        queue_id: int,
        peer: str,
        client_version: int,
        item: LogicQueueMappingItem | None = None,
    ) -> Route:
        """Decide about a target and cache its route. Raises CommandError.

        With an `item`, `queue_id` is a logical queue, which the item maps to a queue of this broker.
        """
        if item is None:
            topic = self._checker.check(target, peer)
        else:
            topic = self._checker.check(target, peer, item.queue_id)
        if target.batch and target.topic.startswith(RETRY_PREFIX):
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot be sent to the retry topic {target.topic}"
            )
        sys_flag = _checked_sys_flag(target)
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= MessageSysFlag.MULTI_TAGS
        dead_letter = self._redirection.dead_letter_queue(target, client_version)
        physical_id = queue_id if item is None else item.queue_id
        topic_name, stored_queue_id = dead_letter or (target.topic, physical_id)
        queue = self._queues.get_or_create(topic_name, stored_queue_id)
        kind = _kind(target, queue, is_dead_letter=dead_letter is not None)
        record_flag = sys_flag | _UNIT_FLAGS if kind is SendKind.UNIT else sys_flag
        answered_id = stored_queue_id if item is None else queue_id
        route = Route(
            self._checker.version,
            kind,
            target.topic,
            answered_id if target.queue_id < 0 else target.queue_id,
            queue,
            self._template(target, queue, record_flag, 8),
            self._template(target, queue, record_flag, 20),
            sys_flag,
            self._statistics.of_topic(topic_name),
            self._checker.required_type(topic),
            item,
        )
        # A retry topic's route also depends on its group and on the locks of the group's members.
        if not target.topic.startswith(RETRY_PREFIX):
            self.cache.put((target, queue_id), route)
        return route

    def _template(
        self, target: SendTarget, queue: ConsumeQueue, sys_flag: int, born_host_bytes: int
    ) -> RecordTemplate:
        return RecordTemplate(
            queue.topic,
            queue.queue_id,
            flag=target.flag,
            sys_flag=sys_flag,
            reconsume_times=target.reconsume_times,
            born_host_bytes=born_host_bytes,
            store_host=self._store_host,
            append_crc=self._settings.append_properties_crc,
        )


def _kind(target: SendTarget, queue: ConsumeQueue, *, is_dead_letter: bool) -> SendKind:
    if target.batch:
        return SendKind.UNIT if isinstance(queue, BatchConsumeQueue) else SendKind.BATCH
    if is_dead_letter:
        return SendKind.DEAD_LETTER
    if MessageSysFlag.transaction_type(target.sys_flag) == MessageSysFlag.TRANSACTION_PREPARED:
        return SendKind.HALF
    return SendKind.PLAIN


def _checked_sys_flag(target: SendTarget) -> int:
    """Return the system flag without the bits that only the broker sets. Raises CommandError."""
    sys_flag = target.sys_flag
    transaction = MessageSysFlag.transaction_type(sys_flag)
    if transaction == MessageSysFlag.TRANSACTION_ROLLBACK:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL, "a message cannot be sent as one that was rolled back"
        )
    if transaction and target.batch:
        raise batch_in_transaction()
    if sys_flag & MessageSysFlag.INNER_BATCH:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL,
            "a batch that is stored as one message (system flag bit 7) is not supported by this broker",
        )
    return sys_flag & ~_HOST_BITS


def _size_of(key: RouteKey, route: Route) -> int:
    """Estimate the bytes of a key and its route; a text takes up to four bytes a character."""
    target, _ = key
    texts = (target.producer_group, target.topic, target.default_topic, target.broker_name or "")
    return _ROUTE_BYTES + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
