"""The table of static topics with their mappings, and its persistent form."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.static_topic import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingSerializeWrapper,
)
from rmq_remoting.bodies.topic import DataVersion

from ..clock import ClockMs
from .mapping_rules import MAX_ITEMS_OF_BROKER, MappingProblem, check_mapping, check_successor
from .queue_mapping import QueueMapping

log = logging.getLogger("rmq.broker.topics")


class QueueMappings:
    """Mappings by topic (`topicQueueMapping.json`; Apache RocketMQ 5.3.3, TopicQueueMappingManager).

    A mapping is replaced, never changed in place. The topic table announces changes.
    """

    def __init__(self, broker_name: str, now_ms: ClockMs) -> None:
        self.data_version = DataVersion(timestamp=now_ms())
        self._broker_name = broker_name
        self._now_ms = now_ms
        self._table: dict[str, QueueMapping] = {}
        self._listeners: list[Callable[[], None]] = []
        # Encoded entries, cached: the cost of a snapshot depends on the changes since the last one.
        self._entries: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    def get(self, topic: str) -> QueueMapping | None:
        """Return the mapping of a static topic; None for other topics."""
        return self._table.get(topic)

    def all(self) -> list[QueueMapping]:
        """Return a new list of all mappings."""
        return list(self._table.values())

    def details(self) -> dict[str, TopicQueueMappingDetail]:
        """Return all mappings by topic, as other brokers get them. Thread-safe."""
        return {topic: mapping.detail for topic, mapping in list(self._table.items())}

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register `listener`, called after each change."""
        self._listeners.append(listener)

    # --- changes ---

    def accepted(self, topic: str, new: TopicQueueMappingDetail, *, force: bool = False) -> QueueMapping:
        """Check a mapping, and complete it with the logical queues of the current one that it lacks.

        `force` replaces a mapping whose epoch or items do not fit. Raises MappingProblem.
        """
        check_mapping(new, topic, self._broker_name)
        current = self._table.get(topic)
        hosted = dict(new.hosted_queues)
        if current is not None:
            if not force:
                check_successor(current.detail, new)
            for logical_id, items in current.detail.hosted_queues.items():
                hosted.setdefault(logical_id, items)
        mapping = QueueMapping(new.model_copy(update={"hosted_queues": hosted}))
        others = sum(each.item_count for each in self._table.values() if each is not current)
        if others + mapping.item_count > MAX_ITEMS_OF_BROKER:
            raise MappingProblem(
                f"topic {topic}: {mapping.item_count} items of logical queues; with those of other static "
                f"topics, this broker would have more than {MAX_ITEMS_OF_BROKER}"
            )
        return mapping

    def put(self, mapping: QueueMapping) -> None:
        """Set a topic's mapping."""
        self._set(mapping)
        log.info(
            "static topic mapped topic=%s epoch=%d queues=%d led=%s",
            mapping.topic,
            mapping.detail.epoch,
            mapping.detail.total_queues,
            sorted(mapping.leaders),
        )
        self._changed()

    def replace_queues(
        self, mapping: QueueMapping, hosted: dict[int, list[LogicQueueMappingItem]]
    ) -> QueueMapping | None:
        """Replace the items of a mapping's logical queues; None if the mapping was changed meanwhile."""
        if self._table.get(mapping.topic) is not mapping:
            return None
        replaced = QueueMapping(mapping.detail.model_copy(update={"hosted_queues": hosted}))
        self._set(replaced)
        self._changed()
        return replaced

    def follow(
        self,
        details: Mapping[str, TopicQueueMappingDetail],
        version: DataVersion,
        topics: Collection[str],
    ) -> int:
        """Take over the mappings of a master, on its replica; return how many differed.

        `version` is the data version of the master's mappings. Of its `topics`, those without a mapping are
        not static any more. The mapping of a topic that the master lacks stays until that is deleted here.
        """
        usable = self._usable(details)
        gone = [topic for topic in self._table if topic in topics and topic not in usable]
        changed = [detail for topic, detail in usable.items() if self._differs(topic, detail)]
        for topic in gone:
            del self._table[topic]
            self._entries.pop(topic, None)
        for detail in changed:
            self._set(QueueMapping(detail))
        if gone or changed or version != self.data_version:
            self._changed(version)
        return len(gone) + len(changed)

    def delete(self, topics: Iterable[str]) -> None:
        """Remove the mappings of topics."""
        removed = [topic for topic in topics if self._table.pop(topic, None) is not None]
        if removed:
            for topic in removed:
                self._entries.pop(topic, None)
            log.info("mappings of static topics deleted topics=%s", ", ".join(removed))
            self._changed()

    # --- persistence ---

    def prepare(self) -> Iterator[None]:
        """Encode new and changed mappings ahead of `encode`, one in each step."""
        for mapping in self.all():
            if self._table.get(mapping.topic) is mapping:
                self._entry(mapping)
            yield

    def encode(self) -> bytes:
        """Return the content of `topicQueueMapping.json`."""
        entries = b",".join([self._entry(mapping) for mapping in self._table.values()])
        return b'{"dataVersion":%b,"topicQueueMappingInfoMap":{%b}}' % (self.data_version.encode(), entries)

    def decode(self, content: bytes) -> None:
        """Take the mappings of `topicQueueMapping.json`; raises BodyError."""
        wrapper = TopicQueueMappingSerializeWrapper.decode(content)
        self._entries.clear()
        self._table.clear()
        for detail in self._usable(wrapper.topic_queue_mapping_info_map).values():
            self._set(QueueMapping(detail))
        self.data_version = wrapper.data_version

    # --- internals ---

    def _usable(self, details: Mapping[str, TopicQueueMappingDetail]) -> dict[str, TopicQueueMappingDetail]:
        """Return the mappings that are of this broker name, and log the others."""
        usable = {}
        for topic, detail in details.items():
            if detail.topic == topic and detail.broker_name == self._broker_name:
                usable[topic] = detail
            else:
                log.error(
                    "mapping of a static topic ignored topic=%s mapped_topic=%s broker=%s: it is not one of "
                    "broker %s; set brokerName back, or map the topic again",
                    *(topic, detail.topic, detail.broker_name, self._broker_name),
                )
        return usable

    def _differs(self, topic: str, detail: TopicQueueMappingDetail) -> bool:
        current = self._table.get(topic)
        return current is None or current.detail != detail

    def _set(self, mapping: QueueMapping) -> None:
        self._table[mapping.topic] = mapping
        self._entries.pop(mapping.topic, None)

    def _entry(self, mapping: QueueMapping) -> bytes:
        entry = self._entries.get(mapping.topic)
        if entry is None:
            entry = b"%b:%b" % (fastjson.dumps(mapping.topic), mapping.detail.encode())
            self._entries[mapping.topic] = entry
        return entry

    def _changed(self, version: DataVersion | None = None) -> None:
        self.data_version = version or self.data_version.next(self._now_ms())
        for listener in self._listeners:
            listener()
