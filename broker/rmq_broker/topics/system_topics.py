"""System topics, created at a broker's first start (Apache RocketMQ 5.3.3, TopicConfigManager.init)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmq_remoting.bodies.topic import TopicConfig

from ..settings.topics import TopicSettings
from . import names
from .permissions import INHERIT, READ_WRITE

_SCHEDULE_QUEUE_NUMS: Final = 18
_BENCHMARK_QUEUE_NUMS: Final = 1024
# reviveQueueNum of Apache; a setting as soon as there is POP.
_REVIVE_QUEUE_NUMS: Final = 8
# The default of TopicConfig, which the cluster's topic gets.
_CLUSTER_QUEUE_NUMS: Final = 16


class SystemTopics:
    """The system topics of this broker."""

    def __init__(self, settings: TopicSettings, cluster: str, broker_name: str) -> None:
        self._settings = settings
        self._cluster = cluster
        self._broker_name = broker_name
        self.names = names.ALWAYS_SYSTEM_TOPICS | {config.topic_name for config in self.configs()}

    def __contains__(self, topic: object) -> bool:
        return topic in self.names or (isinstance(topic, str) and topic.startswith(names.SYSTEM_TOPIC_PREFIX))

    def configs(self) -> Iterator[TopicConfig]:
        """Return the required topics by the current settings.

        The topics named after the cluster and the broker exist for their routes: the admin tools create
        topics through them.
        """
        settings = self._settings
        yield _config(names.SELF_TEST_TOPIC, 1)
        if settings.auto_create_topic_enable:
            yield self.auto_create_topic()
        yield _config(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUE_NUMS)
        cluster_perm = READ_WRITE if settings.cluster_topic_enable else 0
        yield _config(self._cluster, _CLUSTER_QUEUE_NUMS, cluster_perm | INHERIT)
        broker_perm = READ_WRITE if settings.broker_topic_enable else 0
        yield _config(self._broker_name, 1, broker_perm | INHERIT)
        yield _config(names.OFFSET_MOVED_EVENT, 1)
        yield _config(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUE_NUMS)
        if settings.trace_topic_enable:
            yield _config(settings.msg_trace_topic_name, 1)
        yield _config(names.reply_topic(self._cluster), 1)
        yield _config(names.revive_topic(self._cluster), _REVIVE_QUEUE_NUMS)
        yield _config(names.member_group_topic(self._broker_name), 1, INHERIT)
        yield _config(names.TRANSACTION_HALF_TOPIC, 1)
        yield _config(names.TRANSACTION_OP_TOPIC, 1)
        yield _config(names.TIMER_TOPIC, 1)

    def auto_create_topic(self) -> TopicConfig:
        """Return the default topic, from which new topics inherit."""
        return _config(names.AUTO_CREATE_TOPIC, self._settings.default_topic_queue_nums, READ_WRITE | INHERIT)


def _config(name: str, queue_nums: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)
