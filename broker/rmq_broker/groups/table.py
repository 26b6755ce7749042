"""The table of consumer group configurations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.repeated_event import RepeatedEvent

from ..clock import ClockMs
from ..settings.topics import TopicSettings
from ..topics.attributes import GROUP_ATTRIBUTES, altered_attributes
from ..topics.permissions import READ
from .names import SYSTEM_GROUPS, group_name_problem, is_system_group

log = logging.getLogger("rmq.broker.groups")

# Groups that are encoded in one step.
_SLICE: Final = 128
# At most one line per interval about names that clients may not create.
_LOG_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class GroupsChanged:
    """Created or updated configurations, and removed names, of one change.

    Both are empty for a change of forbidden permissions.
    """

    updated: tuple[SubscriptionGroupConfig, ...] = ()
    removed: tuple[str, ...] = ()


class SubscriptionGroupTable:
    """Consumer groups by name, with their persistent form (`subscriptionGroup.json`).

    A configuration is replaced, never changed in place. `version` grows with every change; `data_version`
    is Apache's, which slaves compare.
    """

    def __init__(self, settings: TopicSettings, now_ms: ClockMs) -> None:
        self.version = 0
        self.data_version = DataVersion(timestamp=now_ms())
        self._settings = settings
        self._now_ms = now_ms
        self._listeners: list[Callable[[GroupsChanged], None]] = []
        self._not_created = RepeatedEvent(_LOG_SECONDS)
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        # By group and topic: forbidden permissions, as bits.
        self._forbidden: dict[str, dict[str, int]] = {}
        # Encoded entries with their configurations. An entry of another configuration is outdated.
        self._entries: dict[str, tuple[SubscriptionGroupConfig, bytes]] = {}

    # --- looking up ---

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group's configuration; None for an unknown group."""
        return self._table.get(name)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group's configuration; an unknown group is created if auto-creation is enabled.

        None for an unknown group otherwise, and if there are too many groups.
        (SubscriptionGroupManager.findSubscriptionGroupConfig.)
        """
        config = self._table.get(name)
        if config is None and self._may_create(name):
            most = self._settings.max_auto_create_group_nums
            if len(self._table) >= most and not is_system_group(name):
                if count := self._not_created.occurred():
                    log.warning(
                        "consumer group not created group=%s refused=%d cause=there are %d groups, the limit "
                        "is %d (maxAutoCreateGroupNums); create it, or raise the limit",
                        name,
                        count,
                        len(self._table),
                        most,
                    )
                return None
            config = SubscriptionGroupConfig(group_name=name)
            log.info("consumer group created by a client group=%s", name)
            self._replace([config])
        return config

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def __len__(self) -> int:
        return len(self._table)

    def configs(self) -> list[SubscriptionGroupConfig]:
        """Return a new list of all configurations."""
        return list(self._table.values())

    def forbidden(self, group: str, topic: str) -> int:
        """Return the group's forbidden permissions for the topic, as bits."""
        return max(0, self._forbidden.get(group, {}).get(topic, 0))

    def on_change(self, listener: Callable[[GroupsChanged], None]) -> None:
        """Register `listener`, called after each change."""
        self._listeners.append(listener)

    # --- changes ---

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create or update a group; `config.attributes` holds changes by signed name.

        Raises AttributeProblem without any change.
        """
        self.update_all([config])

    def update_all(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or update several groups, all or none."""
        wanted = [self._with_attributes(config) for config in configs]
        for config in wanted:
            log.info("consumer group set group=%s config=%s", config.group_name, config.encode().decode())
        self._replace(wanted)

    def delete(self, name: str) -> bool:
        """Remove a group; whether it existed."""
        forbidden = self._forbidden.pop(name, None)
        config = self._table.pop(name, None)
        self._entries.pop(name, None)
        if config is None and forbidden is None:
            return False
        log.info("consumer group deleted group=%s", name)
        self._publish(GroupsChanged(removed=(name,)))
        return config is not None

    def permit_reading(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to read a topic (SubscriptionGroupManager.updateForbidden)."""
        before = self.forbidden(group, topic)
        bits = before & ~READ if readable else before | READ
        if bits == before:
            return
        log.info(
            "consumer group permission set group=%s may=%s topic=%s",
            group,
            "read" if readable else "not read",
            topic,
        )
        topics = self._forbidden.get(group, {})
        others = {name: value for name, value in topics.items() if name != topic}
        # Replaced, not changed in place, because other threads may read it.
        remaining = {**others, topic: bits} if bits else others
        if remaining:
            self._forbidden[group] = remaining
        else:
            del self._forbidden[group]
        self._publish(GroupsChanged())

    def follow(
        self,
        configs: Iterable[SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        removed: Collection[str],
        version: DataVersion | None,
    ) -> int:
        """Take over the groups of a master, on its replica; return how many differed.

        `removed`: groups that the master has deleted. `version`: the master's data version, which becomes
        that of this table. None: the master's is older.
        """
        changed = [config for config in configs if self._table.get(config.group_name) != config]
        bits = {group: dict(topics) for group, topics in forbidden.items() if topics}
        if changed or removed or bits != self._forbidden or version not in (None, self.data_version):
            self._table.update((config.group_name, config) for config in changed)
            self._forbidden = bits
            for name in removed:
                self._table.pop(name, None)
                self._entries.pop(name, None)
            self._publish(GroupsChanged(tuple(changed), tuple(removed)), version)
        return len(changed)

    # --- persistence ---

    def encode(self) -> bytes:
        """Return the content of `subscriptionGroup.json`, also sent to slaves; safe in other threads."""
        entries = b",".join([self._entry(config) for config in self.configs()])
        forbidden = fastjson.dumps(dict(self._forbidden))
        return b'{"dataVersion":%b,"forbiddenTable":%b,"subscriptionGroupTable":{%b}}' % (
            self.data_version.encode(),
            forbidden,
            entries,
        )

    def prepare(self) -> Iterator[None]:
        """Encode new and changed groups ahead of `encode`, a slice in each step."""
        configs = self.configs()
        for first in range(0, len(configs), _SLICE):
            for config in configs[first : first + _SLICE]:
                self._entry(config)
            yield

    def decode(self, content: bytes) -> None:
        """Load the content of `subscriptionGroup.json`, beside the system groups; raises BodyError."""
        wrapper = SubscriptionGroupWrapper.decode(content)
        self._table.update(wrapper.subscription_group_table)
        self._forbidden.update(wrapper.forbidden_table or {})
        self.data_version = wrapper.data_version
        self.version += 1

    # --- internals ---

    def _entry(self, config: SubscriptionGroupConfig) -> bytes:
        known = self._entries.get(config.group_name)
        if known is not None and known[0] is config:
            return known[1]
        entry = b"%b:%b" % (fastjson.dumps(config.group_name), config.encode())
        self._entries[config.group_name] = (config, entry)
        return entry

    def _may_create(self, name: str) -> bool:
        allowed = self._settings.auto_create_subscription_group or is_system_group(name)
        return allowed and group_name_problem(name) is None

    def _with_attributes(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        current = self._table.get(config.group_name)
        attributes = altered_attributes(
            None if current is None else current.attributes, config.attributes, GROUP_ATTRIBUTES
        )
        return config.model_copy(update={"attributes": attributes})

    def _replace(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        updated = {config.group_name: config for config in configs}
        if updated:
            self._table.update(updated)
            self._publish(GroupsChanged(updated=tuple(updated.values())))

    def _publish(self, change: GroupsChanged, version: DataVersion | None = None) -> None:
        self.version += 1
        self.data_version = version or self.data_version.next(self._now_ms())
        for listener in self._listeners:
            listener(change)
