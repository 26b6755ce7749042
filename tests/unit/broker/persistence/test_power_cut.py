"""Power cuts of the tables of topics, groups and offsets: an answered change is final, no table is mixed."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.offsets.table import ConsumerOffsetTable
from rmq_broker.processors.admin.build import AdminProcessors
from rmq_broker.topics.table import TopicTable
from rmq_remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.atomic_file import make_folder
from rmq_remoting.daemon.config_file import ConfigFile, Persistent
from rmq_remoting.dispatch import Processor
from rmq_remoting.errors import CommandError
from tests.support.broker_requests import create_topic, request
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer
from tests.support.rows import each_seed
from tests.unit.broker.powered_disk import PoweredDisk
from tests.unit.broker.processors.parts import answer_of

_CUTS: Final = 8
_STEPS: Final = 6
_MOST_FLUSHES: Final = 30
_NAMES: Final = ("N0", "N1", "N2")
_SEEDS: Final = 8
_LONG_SEEDS: Final = 300

# The content of a table, as a value that can be compared.
_Content = Any


class _Table:
    """One table with its file, and the contents that a restart may find in the file."""

    def __init__(self, name: str, empty: Callable[[], Persistent]) -> None:
        """`empty` returns a new table without content."""
        self.name = name
        self.empty = empty
        self.ever: list[_Content] = []
        self._possible: list[_Content] = []

    def note(self, content: _Content) -> _Content:
        """Note a content that may be written from now on."""
        if not self._possible or self._possible[-1] != content:
            self._possible.append(content)
            self.ever.append(content)
        return self._possible[-1]

    def persisted(self, content: _Content) -> None:
        """Note that a noted content is on the disk: a restart may find no earlier one."""
        at = next((index for index, each in enumerate(self._possible) if each is content), 0)
        del self._possible[:at]

    def found(self, content: _Content) -> None:
        """Check what a restart has found."""
        assert not self.ever or content in self._possible, f"{self.name}: {content}"
        self._possible.clear()
        self.note(content)


def _content(table: object) -> _Content:
    if isinstance(table, TopicTable):
        return {config.topic_name: config for config in table.configs()}
    if isinstance(table, SubscriptionGroupTable):
        wrapper = SubscriptionGroupWrapper.decode(table.encode())
        return wrapper.subscription_group_table, wrapper.forbidden_table
    assert isinstance(table, ConsumerOffsetTable)
    return {(group, topic): dict(offsets) for group, topic, offsets in table.entries()}


class _Administration:
    """The administrators of a broker that is restarted after each power cut."""

    def __init__(self, disk: PoweredDisk, chance: random.Random, *, failure_share: float) -> None:
        """`failure_share`: the share of the steps in which flushes fail with EIO."""
        self._failure_share = failure_share
        self._disk = disk
        self._chance = chance
        self._clock = Clock()
        settings = broker_settings()
        cluster, name = settings.broker_cluster_name, settings.broker_name
        self._topics = _Table("topics.json", lambda: TopicTable(settings, cluster, name, self._clock))
        self._groups = _Table("subscriptionGroup.json", lambda: SubscriptionGroupTable(settings, self._clock))
        self._offsets = _Table("consumerOffset.json", lambda: ConsumerOffsetTable(self._clock))
        self.broker: LocalBroker

    # --- life ---

    def open(self) -> None:
        """Start on the contents of the disk, and check them."""
        self.broker = LocalBroker(self._disk.root, self._clock, mappedFileSizeCommitLog=64 * 1024)
        make_folder(self.broker.settings.config_dir)
        services = self.broker.services
        for service in (services.topics, services.groups, services.offsets):
            service.load()
        for table, content in self._contents().items():
            table.found(content)
            self._check_backup(table)
        services.topics.start()
        services.groups.start()
        self._note()

    async def close(self) -> None:
        services = self.broker.services
        files = (services.topics.file, services.groups.file, services.offsets.file, services.pops.orders_file)
        # A write that failed before the power went may end now.
        ended = await asyncio.gather(*[file.close() for file in files], return_exceptions=True)
        assert all(error is None or isinstance(error, OSError) for error in ended)
        self.broker.close()

    async def run_until_power_is_lost(self) -> None:
        """Start and do random steps; one of the first flushes finds the power gone."""
        self._disk.lose_power_after(self._chance.randrange(_MOST_FLUSHES))
        self.open()
        for _ in range(_STEPS):
            if self._chance.random() < self._failure_share:
                self._disk.fail_flushes(self._chance.randrange(1, 4))
            await asyncio.gather(*[self._step() for _ in range(self._chance.choice([1, 1, 3]))])
            if not self._disk.is_on:
                break
        self._disk.lose_power()
        await self.close()
        self._disk.turn_on()

    # --- steps ---

    def _step(self) -> Coroutine[Any, Any, None]:
        steps = [
            self.create_topic,
            self.delete_topic,
            self.create_group,
            self.delete_group,
            self.forbid,
            self.commit,
            self.commit,
        ]
        return self._chance.choice(steps)(self._chance.choice(_NAMES))

    async def create_topic(self, name: str) -> None:
        """Create or update a topic."""
        asked = create_topic(name, self._chance.randrange(1, 20))
        await self._ask(self._admin.topics.topics.create, asked, self._topics)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, which may have a queue, with its offsets."""
        if self._chance.random() < 0.5:
            self.broker.put(topic=name)
        asked = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)
        await self._ask(self._admin.topics.topics.delete, asked, self._topics, self._offsets)

    async def create_group(self, name: str) -> None:
        """Create or update a group."""
        config = SubscriptionGroupConfig(group_name=name, retry_max_times=self._chance.randrange(20))
        asked = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config.encode())
        await self._ask(self._admin.groups.groups.update, asked, self._groups)

    async def delete_group(self, name: str) -> None:
        """Delete a group, with its offsets or without them."""
        with_offsets = self._chance.random() < 0.7
        asked = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=name, cleanOffset=with_offsets)
        concerned = [self._groups, self._offsets] if with_offsets else [self._groups]
        await self._ask(self._admin.groups.groups.delete, asked, *concerned)

    async def forbid(self, name: str) -> None:
        """Allow or forbid a group to read a topic."""
        if name in self.broker.groups:
            fields = {"group": name, "topic": "T", "readable": self._chance.random() < 0.5}
            asked = request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
            await self._ask(self._admin.groups.groups.forbid, asked, self._groups)

    async def commit(self, name: str) -> None:
        """Commit offsets, and let them be written as every few seconds."""
        for queue_id in range(self._chance.randrange(1, 4)):
            offset = self._chance.randrange(1000)
            self.broker.offsets.put(name, self._chance.choice(_NAMES), queue_id, offset)
        noted = self._note()[self._offsets]
        if self._chance.random() < 0.5:
            try:
                await self.broker.services.offsets.flusher.save()
            except OSError as error:
                assert _is_named(str(error))
            else:
                if self._disk.is_on:
                    self._offsets.persisted(noted)

    # --- inside ---

    @property
    def _admin(self) -> AdminProcessors:
        return self.broker.processors.admin

    def _contents(self) -> dict[_Table, _Content]:
        broker = self.broker
        tables = {self._topics: broker.topics, self._groups: broker.groups, self._offsets: broker.offsets}
        return {table: _content(state) for table, state in tables.items()}

    def _note(self) -> dict[_Table, _Content]:
        return {table: table.note(content) for table, content in self._contents().items()}

    async def _ask(self, processor: Processor, asked: RemotingCommand, *concerned: _Table) -> None:
        """Send a request. If it is answered while the power is on, its change of these tables is final.

        After an error the change may be undone.
        """
        try:
            result = processor(Peer().connection, asked)
            noted = self._note()
            assert (await answer_of(result)).code == ResponseCode.SUCCESS
        except (CommandError, OSError) as error:
            self._note()
            assert _is_named(str(error))
            return
        if self._disk.is_on:
            for table in concerned:
                table.persisted(noted[table])

    def _check_backup(self, table: _Table) -> None:
        """Check that a backup is a whole table of earlier, and has its file beside it."""
        path = self.broker.settings.config_dir / f"{table.name}.bak"
        if path.exists():
            state = table.empty()
            assert path.with_name(table.name).exists()
            assert ConfigFile(path, state).load()
            assert _content(state) in table.ever


def _is_named(error: str) -> bool:
    """Whether an error names the file or the folder that could not be flushed."""
    return re.search(r"Input/output error: '/.*/store(/|')", error) is not None


async def _run(home: Path, seed: int, *, failure_share: float = 0.0) -> None:
    chance = random.Random(seed)
    disk = PoweredDisk(home, chance, strict_names=seed % 2 == 1)
    with disk.watched():
        administration = _Administration(disk, chance, failure_share=failure_share)
        for _ in range(_CUTS):
            await administration.run_until_power_is_lost()
        administration.open()
        await administration.close()


@each_seed(_SEEDS)
async def test_answered_changes_are_final(tmp_path: Path, seed: int) -> None:
    await _run(tmp_path, seed)


@each_seed(_SEEDS)
async def test_answered_changes_are_final_on_a_failing_disk(tmp_path: Path, seed: int) -> None:
    """A change whose write fails is answered with an error. Later changes are persisted again."""
    await _run(tmp_path, seed, failure_share=0.3)


@pytest.mark.long
@pytest.mark.parametrize("failure_share", [0.0, 0.3])
async def test_answered_changes_are_final_in_many_runs(tmp_path: Path, failure_share: float) -> None:
    for seed in range(_SEEDS, _LONG_SEEDS):
        (tmp_path / str(seed)).mkdir()
        await _run(tmp_path / str(seed), seed, failure_share=failure_share)
