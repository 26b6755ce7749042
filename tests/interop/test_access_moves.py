"""Users and rules that move from Apache's broker to one of this project."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from tests.interop.foreign import JavaClient
from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.apache_security import ACCESS_CONTROL, SUPER_USER
from tests.support.own_servers import OwnBroker
from tests.support.raw_client import raw_client
from tests.support.signed_requests import ask_as
from tests.support.toolchain import JavaProgram

pytestmark = pytest.mark.java

_PLAIN_ACL = """\
accounts:
- accessKey: orders
  secretKey: 12345678
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [T=PUB|SUB, "U = SUB", Secret=DENY, W=SUB|PUB, X=PUB]
  groupPerms: ["%RETRY%G=SUB", H=DENY]
- accessKey: boss
  secretKey: "a-secret"
  admin: true
- accessKey: keeper
  secretKey: another-secret
"""
_MORE = "accounts:\n- {accessKey: nobody, secretKey: a-secret, defaultTopicPerm: PUB}\n"
_Brokers = tuple[ApacheBroker, OwnBroker]


@pytest.fixture
async def brokers(apache_program: JavaProgram, tmp_path: Path) -> AsyncIterator[_Brokers]:
    """Apache's broker and one of this project, with the same settings and files of version 1."""
    home = tmp_path / "home"
    (home / "conf" / "acl").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(_PLAIN_ACL)
    (home / "conf" / "acl" / "more.yml").write_text(_MORE)
    settings = {**ACCESS_CONTROL, "migrateAuthFromV1Enabled": "true", "rocketmqHome": str(home)}
    async with (
        ApacheNamesrv(apache_program) as namesrv,
        ApacheBroker(apache_program, namesrv.address, home=home, settings=settings) as apache,
        OwnBroker(namesrv.address, broker_name="broker-b", settings=settings) as own,
    ):
        yield apache, own


async def _listed(broker: ApacheBroker | OwnBroker, code: int) -> dict[str, Any]:
    """All users or lists of rules of a broker, in an order that both have."""
    async with raw_client(broker.port) as client:
        answer = await ask_as(client, code, keys=SUPER_USER)
    assert answer.code == ResponseCode.SUCCESS
    entries = json.loads(answer.body)
    for entry in entries:
        for policy in entry.get("policies", ()):
            policy["entries"].sort(key=lambda each: each["resource"])
            for rule in policy["entries"]:
                rule["actions"] = sorted(map(str.lower, rule["actions"]))
                rule["decision"] = rule["decision"].lower()
    return {entry.get("username") or entry["subject"]: entry for entry in entries}


async def test_accounts_of_version_1_become_the_same_users_and_rules(brokers: _Brokers) -> None:
    apache, own = brokers
    users = await _listed(own, Code.AUTH_LIST_USER)
    assert users == await _listed(apache, Code.AUTH_LIST_USER)
    assert {"orders", "boss", "keeper", "nobody"} <= users.keys()
    rules = await _listed(own, Code.AUTH_LIST_ACL)
    assert rules == await _listed(apache, Code.AUTH_LIST_ACL)
    assert len(rules["User:orders"]["policies"]) == 2


@pytest.mark.long
async def test_mqadmin_copies_users_and_rules(
    brokers: _Brokers, java_program: JavaProgram, tmp_path: Path
) -> None:
    apache, own = brokers
    rule = {"resource": "Topic:T*", "actions": ["Pub"], "decision": "Allow", "sourceIps": ["10.0.0.0/8"]}
    acl = {"subject": "User:new", "policies": [{"policyType": "Custom", "entries": [rule]}]}
    user = {"password": "a-secret", "userType": "Normal"}
    async with raw_client(apache.port) as client:
        for code, fields, body in (
            (Code.AUTH_CREATE_USER, {"username": "new"}, user),
            (Code.AUTH_CREATE_ACL, {"subject": "User:new"}, acl),
        ):
            made = await ask_as(client, code, fields, body, keys=SUPER_USER)
            assert made.code == ResponseCode.SUCCESS
    home = tmp_path / "mqadmin"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(
        f"accessKey: {SUPER_USER.access_key}\nsecretKey: {SUPER_USER.secret_key}\n"
    )
    both = ["-f", apache.address, "-t", own.address]
    with JavaClient(java_program, "127.0.0.1:9", home).shell() as shell:
        (await shell.mqadmin("copyUser", *both)).check()
        (await shell.mqadmin("copyAcl", *both)).check()
    for code, name in ((Code.AUTH_LIST_USER, "new"), (Code.AUTH_LIST_ACL, "User:new")):
        copied = await _listed(own, code)
        assert copied == await _listed(apache, code)
        assert name in copied
