"""Consumer groups follow the master."""

from __future__ import annotations

import json

import pytest

from rmq_broker.groups.names import SYSTEM_GROUPS
from rmq_broker.replication.metadata.followed_versions import FollowedVersions
from rmq_broker.replication.metadata.groups import GroupPart
from rmq_broker.replication.metadata.master import Master, MetadataError
from rmq_broker.replication.metadata.table_age import TableAge
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.codes import RequestCode
from tests.support.broker_tables import BrokerTables
from tests.support.fake_master import ADDRESS, FakeMaster
from tests.support.golden import json_file

_CODE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


class _Replica:
    """The groups of a replica, and a master whose groups tests change."""

    def __init__(self) -> None:
        self.groups = BrokerTables().groups
        self.masters = BrokerTables().groups
        self.used: set[str] = set()
        self.client = FakeMaster()
        self.client.answers[_CODE] = self._answer
        self.versions = FollowedVersions()
        self.saved = self.versions.encode()
        self.part = self._part()

    def _part(self) -> GroupPart:
        age = TableAge("groups", self.versions, self._version_changed)
        return GroupPart(self.groups, age, lambda: self.used)

    def _version_changed(self) -> None:
        self.saved = self.versions.encode()

    def _answer(self) -> bytes:
        return self.masters.encode()

    def restart(self) -> None:
        self.versions = FollowedVersions()
        self.versions.decode(self.saved)
        self.part = self._part()

    async def sync(self) -> None:
        await self.part.sync(Master(self.client, ADDRESS))

    @property
    def names(self) -> set[str]:
        return {config.group_name for config in self.groups.configs()} - set(SYSTEM_GROUPS)


def _group(name: str, retries: int = 16) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(group_name=name, retry_max_times=retries)


async def test_groups_permissions_and_the_data_version_are_taken_over() -> None:
    replica = _Replica()
    replica.masters.update_all([_group("A", 3), _group("B")])
    replica.masters.permit_reading("A", "T", readable=False)
    await replica.sync()
    assert replica.groups.encode() == replica.masters.encode()

    replica.masters.update(_group("A", 5))
    replica.masters.permit_reading("A", "T", readable=True)
    replica.masters.delete("B")
    await replica.sync()
    assert replica.groups.encode() == replica.masters.encode()
    assert replica.names == {"A"}
    version = replica.groups.version
    await replica.sync()
    assert replica.groups.version == version


async def test_the_answer_of_apaches_master_is_taken_over() -> None:
    replica = _Replica()
    apaches = json_file("protocol/config/subscriptionGroup.json")
    replica.client.answers[_CODE] = json.dumps(apaches).encode()
    await replica.sync()
    for name, config in apaches["subscriptionGroupTable"].items():
        assert replica.groups.get(name) == SubscriptionGroupConfig.from_wire(config)
    assert replica.groups.data_version == DataVersion.from_wire(apaches["dataVersion"])


async def test_groups_in_use_here_stay() -> None:
    replica = _Replica()
    replica.groups.update_all([_group("used"), _group("unused")])
    replica.masters.update(_group("A"))
    replica.masters.update(_group("B"))
    replica.used = {"used"}
    await replica.sync()
    assert replica.names == {"A", "B", "used"}
    replica.used = set()
    await replica.sync()
    assert replica.names == {"A", "B"}


@pytest.mark.parametrize("answer", [b"{}", b'{"subscriptionGroupTable":{}}'])
async def test_nothing_is_deleted_because_of_an_answer_that_is_no_whole_table(answer: bytes) -> None:
    replica = _Replica()
    replica.masters.update(_group("A"))
    await replica.sync()
    replica.client.answers[_CODE] = answer
    with pytest.raises(MetadataError, match=r"lacks the (member|groups)"):
        await replica.sync()
    assert replica.names == {"A"}


@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_is_deleted_if_the_master_lost_its_groups(
    restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    replica = _Replica()
    replica.masters.update(_group("A"))
    replica.masters.update(_group("B"))
    await replica.sync()
    replica.masters = BrokerTables().groups
    replica.masters.update(_group("New"))
    for _ in range(2):
        if restarts:
            replica.restart()
        await replica.sync()
    assert replica.names == {"A", "B", "New"}
    times = caplog.text.count("groups not deleted although the master lacks them names=A, B")
    assert times == (2 if restarts else 1)
