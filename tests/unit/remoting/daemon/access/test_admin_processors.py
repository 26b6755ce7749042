"""The administration of users and rules."""

from __future__ import annotations

from typing import cast

import pytest

from rmq_remoting.bodies.access_control import AclInfo, UserInfo
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.access.acl_processor import AclAdminProcessor
from rmq_remoting.daemon.access.acls import AclTable
from rmq_remoting.daemon.access.refusal import PolicyProblem
from rmq_remoting.daemon.access.user_processor import UserAdminProcessor
from rmq_remoting.daemon.access.users import UserTable
from tests.support.rows import each_row

_CONNECTION = cast(Connection, None)


async def _persist() -> None:
    pass


@each_row(
    ("asking", "is_authenticated", "password"),
    [("root", True, "secret"), ("anna", True, None), ("gone", True, None), ("root", False, None)],
)
def test_only_super_users_see_passwords(asking: str, is_authenticated: bool, password: str | None) -> None:
    users = UserTable()
    users.create(UserInfo(username="root", password="secret", user_type="Super"))
    users.create(UserInfo(username="anna", password="secret"))
    processor = UserAdminProcessor(users, AclTable(), _persist, is_authenticated=is_authenticated)
    request = RemotingCommand.request(RequestCode.AUTH_GET_USER, {"username": "anna", "AccessKey": asking})
    shown = UserInfo(username="anna", password=password, user_type="Normal", user_status="enable")
    assert UserInfo.decode(processor.get(_CONNECTION, request).body) == shown
    request = RemotingCommand.request(RequestCode.AUTH_LIST_USER, {"filter": "nn", "AccessKey": asking})
    assert processor.list(_CONNECTION, request).body == b"[%b]" % shown.encode()


def test_an_unknown_user_has_no_body() -> None:
    processor = UserAdminProcessor(UserTable(), AclTable(), _persist, is_authenticated=True)
    named = RemotingCommand.request(RequestCode.AUTH_GET_USER, {"username": "anna"})
    assert processor.get(_CONNECTION, named).body == b""
    assert processor.list(_CONNECTION, RemotingCommand.request(RequestCode.AUTH_LIST_USER)).body == b""


def test_rules_are_shown() -> None:
    users, acls = UserTable(), AclTable()
    processor = AclAdminProcessor(users, acls, _persist)
    named = RemotingCommand.request(RequestCode.AUTH_GET_ACL, {"subject": "User:anna"})
    every = RemotingCommand.request(RequestCode.AUTH_LIST_ACL)
    with pytest.raises(PolicyProblem, match="User:anna is not exist"):
        processor.get(_CONNECTION, named)
    users.create(UserInfo(username="anna", password="secret"))
    assert processor.get(_CONNECTION, named).body == processor.list(_CONNECTION, every).body == b""
    entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}
    policies = [{"policyType": "Custom", "entries": [entry]}]
    acls.add("anna", AclInfo.from_wire({"policies": policies}))
    shown = AclInfo.from_wire({"subject": "User:anna", "policies": policies})
    assert AclInfo.decode(processor.get(_CONNECTION, named).body) == shown
    assert processor.list(_CONNECTION, every).body == b"[%b]" % shown.encode()
