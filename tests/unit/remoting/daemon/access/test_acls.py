"""The table of access control lists."""

from __future__ import annotations

import logging

import pytest

from rmq_remoting.bodies.access_control import AclInfo
from rmq_remoting.daemon.access import acls as module
from rmq_remoting.daemon.access.acls import AclTable
from rmq_remoting.daemon.access.policies import PolicyType, Resource
from rmq_remoting.daemon.access.refusal import PolicyProblem
from rmq_remoting.errors import BodyError


def _info(*resources: str) -> AclInfo:
    entries = [{"resource": name, "actions": ["Pub"], "decision": "Allow"} for name in resources]
    return AclInfo.from_wire({"policies": [{"policyType": "Custom", "entries": entries}]})


def _resources(table: AclTable, user: str) -> list[str]:
    acl = table.get(user)
    return [] if acl is None else [str(rule.resource) for rule in acl.custom]


@pytest.fixture
def table() -> AclTable:
    lists = AclTable()
    lists.add("anna", _info("Topic:T", "Group:G"))
    return lists


def test_rules_are_added_and_deleted(table: AclTable) -> None:
    table.add("anna", _info("Topic:T", "Topic:U"))
    assert _resources(table, "anna") == ["Topic:T", "Group:G", "Topic:U"]
    table.delete("anna", PolicyType.CUSTOM, Resource.parse("Topic:T"))
    assert _resources(table, "anna") == ["Group:G", "Topic:U"]
    table.delete("anna", PolicyType.CUSTOM, None)
    assert table.get("anna") is None
    with pytest.raises(PolicyProblem, match="anna has no rules"):
        table.delete("anna", PolicyType.CUSTOM, None)


def test_rules_of_a_deleted_user_are_forgotten(table: AclTable) -> None:
    changes: list[int] = []
    table.on_change(lambda: changes.append(1))
    table.user_deleted("bert")
    table.user_deleted("anna")
    assert (table.get("anna"), changes) == (None, [1])


def test_lists_are_searched(table: AclTable) -> None:
    table.add("bert", _info("Topic:orders"))
    assert [info.subject for info in table.matching("", "")] == ["User:anna", "User:bert"]
    assert [info.subject for info in table.matching("ann", "")] == ["User:anna"]
    assert [info.subject for info in table.matching("", "orders")] == ["User:bert"]


def test_the_number_of_rules_is_bounded(table: AclTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    with pytest.raises(PolicyProblem, match="would have 4 rules, the limit is 3"):
        table.add("anna", _info("Topic:a", "Topic:b"))
    assert _resources(table, "anna") == ["Topic:T", "Group:G"]


def test_the_persistent_form(table: AclTable) -> None:
    copy = AclTable()
    copy.decode(table.encode())
    assert copy.get("anna") == table.get("anna")
    for damaged in (
        b"{",
        b'{"acls":[{"subject":"anna"}]}',
        b'{"acls":[{"subject":"User:a","policies":[{}]}]}',
    ):
        with pytest.raises(BodyError):
            copy.decode(damaged)
    assert copy.get("anna") == table.get("anna")


def test_changes_are_logged(table: AclTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        table.add("anna", _info("Topic:U"))
        table.user_deleted("anna")
    assert "access control list set user=anna rules={" in caplog.text
    assert "access control list deleted user=anna rules=no rules" in caplog.text
