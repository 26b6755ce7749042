"""The check of rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from rmq_remoting.bodies.access_control import AclInfo, UserType
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.access.acls import AclTable
from rmq_remoting.daemon.access.authorization import Authorization
from rmq_remoting.daemon.access.broker_requests import RequestNeeds
from rmq_remoting.daemon.access.needs import Need
from rmq_remoting.daemon.access.policies import Action, PolicyType, topic
from rmq_remoting.daemon.access.users import User
from rmq_remoting.errors import CommandError


class _Peer:
    peer = "10.0.0.1:5000"
    remote_address = ("10.0.0.1", 5000)


_CONNECTION = cast(Connection, _Peer())
_ANNA = User("anna", "secret")
_ROOT = User("root", "secret", UserType.SUPER)
_HEARTBEAT = RequestCode.HEART_BEAT
_REFUSED = "has no permission to access Topic:T from 10.0.0.1 (Pub),"

Problem = Callable[[User | None, str], str]


def _rule(resource: str, decision: str = "Allow", source: str = "10.0.0.0/8") -> AclInfo:
    entry = {"resource": resource, "actions": ["Pub"], "decision": decision, "sourceIps": [source]}
    return AclInfo.from_wire({"policies": [{"policyType": "Custom", "entries": [entry]}]})


@pytest.fixture
def acls() -> AclTable:
    return AclTable()


@pytest.fixture
def authorization(acls: AclTable) -> Authorization:
    return Authorization(acls, RequestNeeds("C"), frozenset({_HEARTBEAT}))


@pytest.fixture(params=["check", "demand"])
def problem(authorization: Authorization, request: pytest.FixtureRequest) -> Problem:
    """Returns why a user may not send to a topic; an empty text if the user may."""

    def problem(user: User | None, name: str) -> str:
        sent = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, {"a": "P", "b": name})
        try:
            if request.param == "check":
                authorization.check(_CONNECTION, sent, user)
            else:
                authorization.demand(_CONNECTION, sent, user, Need(topic(name), (Action.PUB,)))
        except CommandError as refusal:
            assert refusal.code == ResponseCode.NO_PERMISSION
            return refusal.remark
        return ""

    return problem


def test_a_user_may_do_what_the_rules_allow(acls: AclTable, problem: Problem) -> None:
    assert problem(_ANNA, "T") == f"User:anna {_REFUSED} no matched policies."
    acls.add("anna", _rule("Topic:T"))
    assert problem(_ANNA, "T") == ""
    assert "Topic:U" in problem(_ANNA, "U")
    assert problem(User("bert", "secret"), "T") == f"User:bert {_REFUSED} no matched policies."
    acls.add("anna", _rule("Topic:T", "Deny"))
    assert problem(_ANNA, "T") == f"User:anna {_REFUSED} the decision is deny."
    acls.add("anna", _rule("Topic:T", source="192.168.0.0/16"))
    assert problem(_ANNA, "T") == f"User:anna {_REFUSED} no matched policies."


def test_a_super_user_needs_no_rule(problem: Problem) -> None:
    assert problem(_ROOT, "T") == ""


def test_a_client_without_a_user_has_no_rights(acls: AclTable, problem: Problem) -> None:
    """Codes of `authenticationWhitelist` arrive without a signature."""
    acls.add("anna", _rule("*"))
    assert problem(None, "T") == f"User: {_REFUSED} no matched policies."


def test_a_deleted_rule_counts_no_longer(acls: AclTable, problem: Problem) -> None:
    acls.add("anna", _rule("Topic:T"))
    assert problem(_ANNA, "T") == ""
    acls.delete("anna", PolicyType.CUSTOM, None)
    assert problem(_ANNA, "T") != ""


def test_codes_of_the_white_list_need_no_rights(authorization: Authorization) -> None:
    heartbeat = RemotingCommand.request(_HEARTBEAT)
    for user in (None, _ANNA):
        authorization.check(_CONNECTION, heartbeat, user)


def test_an_unreadable_request_is_refused(authorization: Authorization) -> None:
    unreadable = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=b"{")
    with pytest.raises(CommandError, match="the request cannot be read") as refused:
        authorization.check(_CONNECTION, unreadable, _ANNA)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
