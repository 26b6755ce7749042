"""The build of the metadata's replication out of the broker's domains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.config_file import ConfigFile

from .deliveries import DelayPart, TimerCountPart, TimerPart
from .followed_versions import FollowedVersions
from .groups import GroupPart
from .log_barrier import LogBarrier
from .new_topics import FILE_NAME, NewTopics
from .offsets import OffsetPart
from .request_modes import RequestModePart
from .sync import MetadataSync
from .table_age import TableAge
from .topics import TopicPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq_remoting.client import RemotingClient

    from ...clients.consumers import ConsumerTable
    from ...clock import ClockMs
    from ...delivery.service import DeliveryService
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...pop.service import PopService
    from ...store.api import MessageStore
    from ...timers.service import TimerService
    from ...topics.deletion import TopicDeletion
    from ...topics.table import TopicTable


_TOPICS: Final = "topics"
_GROUPS: Final = "groups"


@dataclass(frozen=True, slots=True)
class MetadataDependencies:
    """Parts of other domains whose state follows the master. `config_dir`: the folder of their files."""

    topics: TopicTable
    deletion: TopicDeletion
    groups: SubscriptionGroupTable
    consumers: ConsumerTable
    offsets: ConsumerOffsetTable
    delivery: DeliveryService
    timers: TimerService
    pops: PopService
    store: MessageStore
    config_dir: Path


class MetadataReplication:
    """The metadata's replication with its files. Everything except `load` belongs to the loop."""

    def __init__(
        self,
        dependencies: MetadataDependencies,
        client: RemotingClient,
        master_address: Callable[[], str | None],
        steady_ms: ClockMs,
        is_paused: Callable[[], bool],
    ) -> None:
        """Arguments as of `MetadataSync`."""
        parts, store = dependencies, dependencies.store
        self._dependencies = dependencies
        versions = self._versions = FollowedVersions()
        self.file = ConfigFile(dependencies.config_dir / FILE_NAME, versions)
        new_topics = NewTopics(parts.topics, store, versions, self.file.changed)
        barrier = LogBarrier(lambda: min(store.flushed_offset, store.entries_end))

        def age_of(table: str) -> TableAge:
            return TableAge(table, versions, self.file.changed)

        def groups_in_use() -> set[str]:
            """Return the groups with members, or with commits that the master does not have."""
            with_members = {group.name for group in parts.consumers.groups()}
            return with_members | parts.offsets.groups_with_own_commits()

        self.sync = MetadataSync(
            client,
            master_address,
            (
                TopicPart(parts.topics, parts.deletion, age_of(_TOPICS), barrier, groups_in_use, new_topics),
                GroupPart(parts.groups, age_of(_GROUPS), groups_in_use),
                RequestModePart(parts.pops.modes, parts.pops.modes_file.changed),
                OffsetPart(parts.offsets, parts.topics, parts.groups, store.max_offset, barrier),
                DelayPart(parts.delivery, barrier),
                TimerPart(parts.timers, barrier),
                TimerCountPart(parts.timers),
            ),
            barrier,
            steady_ms,
            new_topics.create,
            is_paused,
        )

    def load(self) -> None:
        """Read the file. Raises ConfigFileError; blocks.

        To be called when topics and groups are loaded, before clients can connect.
        """
        self.file.load()
        self._versions.begin_with(_TOPICS, self._dependencies.topics.data_version)
        self._versions.begin_with(_GROUPS, self._dependencies.groups.data_version)

    async def close(self) -> None:
        """Write the file; `sync.run` has ended. Raises OSError."""
        await self.file.close()
