"""The group table: system groups, creation, persistence in Apache's format."""

from __future__ import annotations

import json

import pytest

from rmq_broker.groups.names import SYSTEM_GROUPS, group_name_problem
from rmq_broker.groups.table import GroupsChanged, SubscriptionGroupTable
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.topics.attributes import AttributeProblem
from rmq_remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_remoting.errors import BodyError
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.support.golden import DATA

_APACHES_FILE = DATA / "protocol" / "config" / "subscriptionGroup.json"


def _table(settings: BrokerSettings | None = None) -> SubscriptionGroupTable:
    return SubscriptionGroupTable(settings or broker_settings(), Clock())


def test_system_groups_are_those_of_apaches_broker() -> None:
    apaches = json.loads(_APACHES_FILE.read_text())["subscriptionGroupTable"]
    table = _table()
    assert len(table) == len(SYSTEM_GROUPS)
    for config in table.configs():
        assert config == SubscriptionGroupConfig.from_wire(apaches[config.group_name])


def test_unknown_groups_are_created_and_listeners_notified() -> None:
    table = _table()
    told: list[GroupsChanged] = []
    table.on_change(told.append)
    assert table.get("CG") is None
    config = table.find("CG")
    assert config is not None and config is table.get("CG") and "CG" in table
    assert table.find("CG") is config
    assert told == [GroupsChanged(updated=(config,))] and table.data_version.counter == 1


def test_unknown_group_without_auto_creation() -> None:
    table = _table(broker_settings(autoCreateSubscriptionGroup="false"))
    assert table.find("CG") is None
    assert table.find("CID_RMQ_SYS_MORE") is not None
    for name in ("", " ", "a b", "a@b", "x" * 256, "组"):
        assert _table().find(name) is None
        assert group_name_problem(name) is not None
    assert group_name_problem("x" * 255) is None


def test_clients_create_groups_up_to_a_number(caplog: pytest.LogCaptureFixture) -> None:
    settings = broker_settings()
    table = _table(settings)
    settings.max_auto_create_group_nums = len(table) + 1
    assert table.find("A") is not None
    assert [table.find(name) for name in ("B", "C")] == [None, None]
    assert table.find("A") is table.get("A")
    refusals = [record.message for record in caplog.records if "not created" in record.message]
    assert len(refusals) == 1 and "maxAutoCreateGroupNums" in refusals[0]
    assert table.find("CID_RMQ_SYS_MORE") is not None
    table.update(SubscriptionGroupConfig(group_name="B"))
    assert "B" in table, "administration creates more"


def test_update_and_deletion_of_groups() -> None:
    table = _table()
    table.update_all([SubscriptionGroupConfig(group_name="A"), SubscriptionGroupConfig(group_name="B")])
    before = table.get("A")
    table.update(SubscriptionGroupConfig(group_name="A", retry_max_times=3))
    assert before is not None and before.retry_max_times == 16
    assert table.get("A").retry_max_times == 3  # type: ignore[union-attr]
    assert table.delete("A") and not table.delete("A")
    assert "A" not in table and "B" in table


def test_unknown_attributes_are_refused() -> None:
    table = _table()
    with pytest.raises(AttributeProblem):
        table.update_all(
            [
                SubscriptionGroupConfig(group_name="A"),
                SubscriptionGroupConfig(group_name="B", attributes={"+a": "b"}),
            ]
        )
    assert "A" not in table


def test_apaches_file_round_trip() -> None:
    content = _APACHES_FILE.read_bytes()
    table = _table()
    table.decode(content)
    assert json.loads(table.encode()) == json.loads(content)


def test_forbidden_permissions_are_persisted() -> None:
    table = _table()
    table.decode(b'{"forbiddenTable":{"CG":{"T":2}},"subscriptionGroupTable":{"CG":{"groupName":"CG"}}}')
    assert (table.forbidden("CG", "T"), table.forbidden("CG", "U"), table.forbidden("X", "T")) == (2, 0, 0)
    assert json.loads(table.encode())["forbiddenTable"] == {"CG": {"T": 2}}
    table.delete("CG")
    assert table.forbidden("CG", "T") == 0


def test_reading_is_forbidden_by_topic_and_permitted_again() -> None:
    table = _table()
    told: list[int] = []
    table.on_change(lambda _: told.append(table.version))
    for topic in ("T", "U"):
        table.permit_reading("CG", topic, readable=False)
    table.permit_reading("CG", "T", readable=False)
    assert (table.forbidden("CG", "T"), table.forbidden("CG", "U")) == (4, 4)
    table.permit_reading("CG", "T", readable=True)
    assert (table.forbidden("CG", "T"), table.forbidden("CG", "U")) == (0, 4)
    table.permit_reading("CG", "U", readable=True)
    assert json.loads(table.encode())["forbiddenTable"] == {}
    table.permit_reading("CG", "U", readable=True)
    assert len(told) == 4, "what changes nothing is not written"


def test_damaged_file_changes_nothing() -> None:
    table = _table()
    before = table.encode()
    for content in (b"{", b'{"subscriptionGroupTable":{"A":{"brokerId":[]}}}'):
        with pytest.raises(BodyError):
            table.decode(content)
    assert table.encode() == before


def _encoded_again(table: SubscriptionGroupTable) -> bytes:
    """The whole table, encoded as one body."""
    body = SubscriptionGroupWrapper.decode(table.encode())
    assert body.subscription_group_table == {config.group_name: config for config in table.configs()}
    return body.encode()


def test_the_file_can_be_prepared_in_steps() -> None:
    table, directly = _table(), _table()
    for each in (table, directly):
        each.update_all([SubscriptionGroupConfig(group_name=f"G{number}") for number in range(1000)])
        each.permit_reading("G1", "T", readable=False)
    assert len(list(table.prepare())) >= 7
    assert table.encode() == directly.encode() == _encoded_again(table)
    for each in (table, directly):
        each.update(SubscriptionGroupConfig(group_name="G1", consume_enable=False))
        each.delete("G2")
    assert table.encode() == directly.encode() == _encoded_again(table)
    assert b'"G2"' not in table.encode()


def test_a_change_while_the_file_is_prepared_is_in_it() -> None:
    table = _table()
    table.update_all([SubscriptionGroupConfig(group_name=f"G{number}") for number in range(1000)])
    steps = table.prepare()
    next(steps)
    table.update(SubscriptionGroupConfig(group_name="G999", consume_enable=False))
    table.delete("G998")
    for _ in steps:
        pass
    assert table.encode() == _encoded_again(table)
