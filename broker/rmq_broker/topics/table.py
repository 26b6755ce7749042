"""The table of topic configurations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.static_topic import TopicQueueMappingDetail
from rmq_remoting.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_remoting.repeated_event import RepeatedEvent

from ..clock import ClockMs
from ..settings.topics import TopicSettings
from .attributes import CLEANUP_POLICY, COMPACTION, TOPIC_ATTRIBUTES, altered_attributes
from .names import AUTO_CREATE_TOPIC
from .permissions import INHERIT, READ_WRITE, is_inherited, perm_text
from .queue_mappings import QueueMappings
from .system_topics import SystemTopics

log = logging.getLogger("rmq.broker.topics")

# Topics that are encoded in one step.
_SLICE: Final = 128
# At most one line per interval about names that clients may not create.
_LOG_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Created or updated configurations, and removed names, of one change."""

    updated: tuple[TopicConfig, ...] = ()
    removed: tuple[str, ...] = ()


class TopicTable:
    """Topics by name, with their persistent form (`topics.json`), and the mappings of the static ones.

    A configuration is replaced, never changed in place, so readers hold immutable values. `version` grows
    with every change, so that caches derived from the table can detect it. `data_version` is Apache's, which
    name servers compare.
    """

    def __init__(self, settings: TopicSettings, cluster: str, broker_name: str, now_ms: ClockMs) -> None:
        self.system_topics = SystemTopics(settings, cluster, broker_name)
        self.mappings = QueueMappings(broker_name, now_ms)
        self.version = 0
        self.data_version = DataVersion(timestamp=now_ms())
        self.state_version = 0  # the epoch of a master that a controller has elected
        self._settings = settings
        self._now_ms = now_ms
        self._listeners: list[Callable[[TopicsChanged], None]] = []
        self._not_created = RepeatedEvent(_LOG_SECONDS)
        self._table = {config.topic_name: config for config in self.system_topics.configs()}
        # Encoded entries, cached: the cost of a snapshot depends on the changes since the last one.
        self._entries: dict[str, bytes] = {}

    # --- looking up ---

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's configuration; None for an unknown topic."""
        return self._table.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def __len__(self) -> int:
        return len(self._table)

    @property
    def is_full(self) -> bool:
        """Whether there are as many topics as sends may create."""
        return len(self._table) >= self._settings.max_auto_create_topic_nums

    def configs(self) -> list[TopicConfig]:
        """Return a new list of all configurations."""
        return list(self._table.values())

    def is_order(self, name: str) -> bool:
        """Whether name servers have an order configuration for the topic."""
        config = self._table.get(name)
        return config is not None and config.order

    def stores_batches(self, name: str) -> bool:
        """Whether batches sent to the topic are stored as one record each."""
        config = self._table.get(name)
        return config is not None and config.attributes.get("queue.type") == "BatchCQ"

    def on_change(self, listener: Callable[[TopicsChanged], None]) -> None:
        """Register `listener`, called after each change."""
        self._listeners.append(listener)

    # --- changes ---

    def update(self, config: TopicConfig, attribute_changes: Mapping[str, str] | None = None) -> bool:
        """Create or update a topic; False if it is already the same. Only `attribute_changes` set attributes.

        `attribute_changes` is by signed name. Raises AttributeProblem without any change.
        """
        return self.update_all([(config, attribute_changes or {})])

    def update_all(self, changes: Iterable[tuple[TopicConfig, Mapping[str, str]]]) -> bool:
        """Create or update several topics, all or none; False if all are already the same."""
        wanted = [self._with_attributes(config, attributes) for config, attributes in changes]
        changed = [config for config in wanted if self._table.get(config.topic_name) != config]
        for config in changed:
            log.info("topic %s: %s", config.topic_name, _text(config))
        self._replace(changed)
        return bool(changed)

    def update_static(
        self, config: TopicConfig, mapping: TopicQueueMappingDetail, *, force: bool = False
    ) -> None:
        """Create or update a static topic and its mapping; `force`: even if the mapping does not fit.

        Raises MappingProblem without any change.
        """
        accepted = self.mappings.accepted(config.topic_name, mapping, force=force)
        self.mappings.put(accepted)
        # Published even if only the mapping changed, since routes and plans depend on both.
        self._replace([self._with_attributes(config, {})])

    def drop_mappings_without_topics(self) -> None:
        """Remove mappings whose topics do not exist: one of the two files is older after a crash."""
        self.mappings.delete([each.topic for each in self.mappings.all() if each.topic not in self._table])

    def delete(self, names: Collection[str]) -> list[str]:
        """Remove topics with their mappings; return the removed ones."""
        self.mappings.delete(names)
        removed = [name for name in names if self._table.pop(name, None) is not None]
        if removed:
            log.info("topics deleted topics=%s", ", ".join(removed))
            self._forget_entries(removed)
            self._publish(TopicsChanged(removed=tuple(removed)))
        return removed

    def create_for_send(
        self,
        topic: str,
        default_topic: str,
        client_queue_nums: int,
        system_flag: int,
        producer: str,
    ) -> TopicConfig | None:
        """Return the topic of a sent message; an unknown topic is created from the default topic.

        None if it cannot be created: there are too many topics, or the default topic is unknown, or does not
        allow inheritance (TopicConfigManager.createTopicInSendMessageMethod). `client_queue_nums` bounds the
        queues; `producer` is an address for the log.
        """
        existing = self._table.get(topic)
        if existing is not None:
            return existing
        model = self._table.get(default_topic)
        obstacle = self._obstacle_to_inheriting(model)
        if model is None or obstacle is not None:
            if count := self._not_created.occurred():
                log.warning(
                    "topic not created topic=%s peer=%s default_topic=%s refused=%d: %s",
                    topic,
                    producer,
                    default_topic,
                    count,
                    obstacle,
                )
            return None
        queue_nums = max(0, min(client_queue_nums, model.write_queue_nums))
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=model.perm & ~INHERIT,
            topic_sys_flag=system_flag,
            topic_filter_type=model.topic_filter_type,
        )
        log.info(
            "topic created by a send topic=%s peer=%s default_topic=%s: %s",
            topic,
            producer,
            default_topic,
            _text(config),
        )
        self._replace([config])
        return config

    def create_for_group(
        self,
        topic: str,
        queue_nums: int,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        system_flag: int = 0,
    ) -> TopicConfig:
        """Return a group's retry or dead letter topic, created if unknown.

        (TopicConfigManager.createTopicInSendMessageBackMethod.) An existing one only follows `order`.
        """
        existing = self._table.get(topic)
        if existing is not None:
            if existing.order == order:
                return existing
            config = existing.model_copy(update={"order": order})
        else:
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=system_flag,
                order=order,
            )
        log.info("topic %s: %s", topic, _text(config))
        self._replace([config])
        return config

    def mark_order_topics(self, names: Iterable[str]) -> None:
        """Set the topics for which name servers have an order configuration."""
        configs = [self._table[name] for name in names if name in self._table]
        self._replace([config.model_copy(update={"order": True}) for config in configs if not config.order])

    def ensure_system_topics(self) -> None:
        """Create missing system topics by the current settings."""
        self._replace(
            [config for config in self.system_topics.configs() if config.topic_name not in self._table]
        )
        self._repair_auto_create_topic()

    def follow(self, configs: Iterable[TopicConfig], version: DataVersion | None) -> int:
        """Take over the topics of a master, on its replica; return how many differed.

        Topics that it lacks stay. `version`: the master's data version, which becomes that of this table.
        None: the master's is older.
        """
        changed = [config for config in configs if self._table.get(config.topic_name) != config]
        if changed or version not in (None, self.data_version):
            _tell_uncompacted(changed)
            self._table.update((config.topic_name, config) for config in changed)
            self._forget_entries(config.topic_name for config in changed)
            self._publish(TopicsChanged(updated=tuple(changed)), version)
        return len(changed)

    def elected(self, epoch: int) -> None:
        """Note that this broker is the master of an epoch: name servers prefer it to older masters."""
        self.state_version = epoch
        self.next_data_version()

    def next_data_version(self) -> None:
        """Increase the data version, so that name servers treat the table as changed."""
        self._publish(TopicsChanged())

    # --- persistence ---

    def prepare(self) -> Iterator[None]:
        """Encode new and changed topics ahead of `encode`, a slice in each step."""
        configs = [config for name, config in self._table.items() if name not in self._entries]
        for first in range(0, len(configs), _SLICE):
            for config in configs[first : first + _SLICE]:
                if self._table.get(config.topic_name) is config:
                    self._entry(config)
            yield

    def encode(self) -> bytes:
        """Return the content of `topics.json`."""
        entries = b",".join([self._entry(config) for config in self._table.values()])
        return b'{"dataVersion":%b,"topicConfigTable":{%b}}' % (self.data_version.encode(), entries)

    def decode(self, content: bytes) -> None:
        """Add the topics of `topics.json` to the system topics; raises BodyError.

        A topic of Apache's broker with compaction is kept and served, but nothing compacts its messages.
        """
        wrapper = TopicConfigSerializeWrapper.decode(content)
        _tell_uncompacted(wrapper.topic_config_table.values())
        self._table.update(wrapper.topic_config_table)
        self._entries.clear()
        self.data_version = wrapper.data_version
        self.version += 1
        self._repair_auto_create_topic()

    # --- internals ---

    def _obstacle_to_inheriting(self, model: TopicConfig | None) -> str | None:
        """Return the reason why no topic may inherit from this one; None if it may."""
        if model is None:
            return "there is no such topic"
        if self.is_full:
            return f"there are {len(self)} topics, sends create no more (maxAutoCreateTopicNums)"
        if model.topic_name == AUTO_CREATE_TOPIC and not self._settings.auto_create_topic_enable:
            return "autoCreateTopicEnable is off"
        return None if is_inherited(model.perm) else f"its permissions are {perm_text(model.perm)}"

    def _repair_auto_create_topic(self) -> None:
        """If sends may create topics, let the default topic allow inheritance.

        Apache removes this permission for good once auto-creation was disabled.
        """
        model = self._table.get(AUTO_CREATE_TOPIC)
        if model is not None and self._settings.auto_create_topic_enable and not is_inherited(model.perm):
            self._replace([model.model_copy(update={"perm": model.perm | INHERIT})])

    def _with_attributes(self, config: TopicConfig, changes: Mapping[str, str]) -> TopicConfig:
        current = self._table.get(config.topic_name)
        attributes = altered_attributes(
            None if current is None else current.attributes, changes, TOPIC_ATTRIBUTES
        )
        return config.model_copy(update={"attributes": attributes})

    def _replace(self, configs: Collection[TopicConfig]) -> None:
        if configs:
            self._table.update((config.topic_name, config) for config in configs)
            self._forget_entries(config.topic_name for config in configs)
            self._publish(TopicsChanged(updated=tuple(configs)))

    def _entry(self, config: TopicConfig) -> bytes:
        entry = self._entries.get(config.topic_name)
        if entry is None:
            entry = b"%b:%b" % (fastjson.dumps(config.topic_name), config.encode())
            self._entries[config.topic_name] = entry
        return entry

    def _forget_entries(self, names: Iterable[str]) -> None:
        for name in names:
            self._entries.pop(name, None)

    def _publish(self, change: TopicsChanged, version: DataVersion | None = None) -> None:
        self.version += 1
        self.data_version = version or self.data_version.next(self._now_ms(), self.state_version)
        for listener in self._listeners:
            listener(change)


def _tell_uncompacted(configs: Iterable[TopicConfig]) -> None:
    for config in configs:
        if config.attributes.get(CLEANUP_POLICY) == COMPACTION:
            log.error(
                "topic is not compacted topic=%s %s=%s: this version deletes its messages after "
                "fileReservedTime, the newest of each key too; raise fileReservedTime or move the topic",
                *(config.topic_name, CLEANUP_POLICY, COMPACTION),
            )


def _text(config: TopicConfig) -> str:
    order = ", order" if config.order else ""
    return (
        f"{config.read_queue_nums} read and {config.write_queue_nums} write queues, "
        f"{perm_text(config.perm)}{order}{f', {config.attributes}' if config.attributes else ''}"
    )
