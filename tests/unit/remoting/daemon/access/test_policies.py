"""Rules of access: parsing, matching, and which of several rules decides."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from rmq_remoting.bodies.access_control import AclInfo
from rmq_remoting.daemon.access.policies import (
    Acl,
    Action,
    Decision,
    PolicyType,
    Resource,
    group,
    rules_of,
    topic,
    user_of,
)
from rmq_remoting.daemon.access.refusal import PolicyProblem
from tests.support.rows import each_row

_ALLOW, _DENY = Decision.ALLOW, Decision.DENY


def _info(*entries: dict[str, Any], policy: str | None = None) -> AclInfo:
    filled = [{"actions": ["Pub"], "decision": "Allow", **entry} for entry in entries]
    return AclInfo.from_wire({"policies": [{"policyType": policy, "entries": filled}]})


def _acl(*entries: dict[str, Any], policy: str | None = None) -> Acl:
    acl = Acl("anna")
    for kind, rules in rules_of(_info(*entries, policy=policy)):
        acl = acl.with_rules(kind, rules)
    return acl


def _decide(acl: Acl, resource: Resource, *actions: Action, source: str = "10.1.2.3") -> Decision | None:
    return acl.decide(resource, actions or (Action.PUB,), ipaddress.ip_address(source))


@pytest.mark.parametrize(
    ("pattern", "matched", "other"),
    [
        ("Topic:orders", [topic("orders")], [topic("orders2"), group("orders")]),
        ("topic:orders*", [topic("orders"), topic("orders2")], [topic("order"), group("orders")]),
        ("Topic:*", [topic("orders"), topic("x")], [group("orders")]),
        ("*", [topic("orders"), group("g")], []),
    ],
)
def test_resources(pattern: str, matched: list[Resource], other: list[Resource]) -> None:
    acl = _acl({"resource": pattern})
    assert [_decide(acl, resource) for resource in matched] == [_ALLOW] * len(matched)
    assert [_decide(acl, resource) for resource in other] == [None] * len(other)
    (rule,) = acl.custom
    assert str(rule.resource).lower() == pattern.lower()


@pytest.mark.parametrize(
    ("allowed", "asked", "decision"),
    [
        (["Pub"], [Action.PUB], _ALLOW),
        (["Pub"], [Action.SUB], None),
        (["Sub"], [Action.PUB, Action.SUB], _ALLOW),
        (["ALL"], [Action.DELETE], _ALLOW),
    ],
)
def test_actions(allowed: list[str], asked: list[Action], decision: Decision | None) -> None:
    assert _decide(_acl({"resource": "*", "actions": allowed}), topic("T"), *asked) is decision


@pytest.mark.parametrize(
    ("sources", "source", "is_matched"),
    [
        (["10.1.2.3"], "10.1.2.3", True),
        (["10.1.2.3"], "10.1.2.4", False),
        (["192.168.0.0/16", "10.0.0.0/8"], "10.1.2.4", True),
        (["2001:db8::/32"], "2001:db8::1", True),
        (["2001:db8::/32"], "10.1.2.3", False),
    ],
)
def test_sources(sources: list[str], source: str, is_matched: bool) -> None:
    acl = _acl({"resource": "*", "sourceIps": sources})
    assert (_decide(acl, topic("T"), source=source) is _ALLOW) is is_matched
    assert acl.decide(topic("T"), [Action.PUB], None) is None


def test_the_most_specific_rule_decides() -> None:
    """Whatever the order in which rules were given."""
    ranked = ["Topic:orders", "Topic:order*", "Topic:o*", "Topic:*", "*"]
    for position, pattern in enumerate(ranked):
        others = [{"resource": other, "decision": "Deny"} for other in ranked[position + 1 :]]
        rule = {"resource": pattern, "decision": "Allow"}
        for entries in ([rule, *others], [*others, rule]):
            assert _decide(_acl(*entries), topic("orders")) is _ALLOW, pattern


def test_of_equally_specific_rules_deny_decides() -> None:
    acl = _acl({"resource": "Topic:a*"})
    acl = acl.with_rules(PolicyType.DEFAULT, _acl({"resource": "Topic:a*", "decision": "Deny"}).custom)
    assert _decide(acl, topic("abc")) is _ALLOW, "rules of type Custom come first"
    twice = Acl("anna", (*acl.custom, *acl.default))
    assert _decide(twice, topic("abc")) is _DENY


def test_a_rule_replaces_that_of_the_same_resource() -> None:
    acl = _acl({"resource": "Topic:T"}, {"resource": "Topic:U"})
    changed = acl.with_rules(PolicyType.CUSTOM, _acl({"resource": "Topic:T", "actions": ["Sub"]}).custom)
    assert (changed.size, _decide(changed, topic("T")), _decide(changed, topic("U"))) == (2, None, _ALLOW)
    rest = changed.without(PolicyType.CUSTOM, Resource.parse("Topic:U"))
    assert [str(rule.resource) for rule in rest.custom] == ["Topic:T"]


def test_the_wire_form() -> None:
    acl = _acl({"resource": "Topic:a*", "actions": ["SUB", "pub"], "sourceIps": ["10.0.0.0/8"]})
    assert acl.info().encode() == (
        b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:a*",'
        b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:anna"}'
    )
    assert acl.info("b").policies == []


@each_row(
    ("entry", "problem"),
    [
        ({"resource": "orders"}, "must be TYPE:NAME, TYPE:PREFIX*, TYPE:* or *"),
        ({"resource": "Queue:a"}, "must be one of Any, Cluster"),
        ({"resource": "Topic:"}, "must be TYPE:NAME"),
        ({"resource": None}, "must be TYPE:NAME"),
        ({"resource": "Namespace:n"}, "use a prefix"),
        ({"resource": "*", "actions": []}, "actions are missing"),
        ({"resource": "*", "actions": ["Write"]}, "must be one of All, Pub, Sub"),
        ({"resource": "*", "actions": ["Any"]}, "must be one of All, Pub, Sub"),
        ({"resource": "*", "decision": "Maybe"}, "must be one of Allow, Deny"),
        ({"resource": "*", "decision": None}, "must be one of Allow, Deny"),
        ({"resource": "*", "sourceIps": ["10.0.0.0/33"]}, "must be an IP address or a range"),
        ({"resource": "*", "sourceIps": [""]}, "must be an IP address or a range"),
    ],
)
def test_rules_that_are_refused(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolicyProblem) as refused:
        _acl(entry)
    assert problem in str(refused.value)


def test_empty_policies_and_other_subjects_are_refused() -> None:
    for info in (AclInfo(), _info(policy="Custom")):
        with pytest.raises(PolicyProblem):
            list(rules_of(info))
    with pytest.raises(PolicyProblem, match="must be one of Custom, Default"):
        _acl({"resource": "*"}, policy="Other")
    assert user_of("user:anna") == "anna"
    for subject in (None, "anna", "Role:anna", "User: "):
        with pytest.raises(PolicyProblem, match="must be User:NAME"):
            user_of(subject)
