"""Policies: which user may do what on which resource, from where.

A resource is `Topic:orders` (literal), `Topic:orders*` (prefixed), `Topic:*` (any topic) or `*`. Of the rules
that match a request, the most specific decides: a resource type before `*`, a literal name before a prefix, a
longer prefix before a shorter one, a prefix before any. Of two rules that are equally specific, `Deny`
decides. Rules of type `Custom` come before those of type `Default`. Without a matching rule a request is
denied.

Source: Apache RocketMQ 5.3.3, AclAuthorizationHandler, Resource, PolicyEntry and
AuthorizationMetadataManagerImpl. Its comparison of rules contradicts its documentation: a shorter prefix
decides there, and `Allow` before `Deny`. This module does what the documentation says.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from ...bodies.access_control import AclInfo, PolicyEntryInfo, PolicyInfo, member_named
from ...errors import shown
from ...peer_address import Address, Network
from .refusal import PolicyProblem

_ANY: Final = "*"
_USER: Final = "User"
# More rules than this would be slow to compare.
MAX_ENTRIES: Final = 1000

_EnumT = TypeVar("_EnumT", bound=enum.StrEnum)


class ResourceType(enum.StrEnum):
    """Kinds of resources."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(enum.StrEnum):
    """What a request does with a resource."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(enum.StrEnum):
    """The outcome of a rule."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.StrEnum):
    """Kinds of policies; the first kind with a matching rule decides."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class _Pattern(enum.IntEnum):
    """How a rule names its resource, the most specific first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a request, or of a rule with a pattern."""

    type: ResourceType
    name: str
    pattern: _Pattern = _Pattern.LITERAL

    @classmethod
    def parse(cls, key: str) -> Resource:
        """Return the resource of a rule. Raises PolicyProblem."""
        text = key.strip()
        if text == _ANY:
            return cls(ResourceType.ANY, "", _Pattern.ANY)
        kind, separator, name = text.partition(":")
        if not separator or not name:
            raise PolicyProblem(f"resource {shown(key)}: must be TYPE:NAME, TYPE:PREFIX*, TYPE:* or *")
        type_ = _by_name(ResourceType, kind, "resource type")
        if type_ is ResourceType.NAMESPACE:
            raise PolicyProblem(f"resource {shown(key)}: namespaces have no rules of their own; use a prefix")
        if name == _ANY:
            return cls(type_, "", _Pattern.ANY)
        if name.endswith(_ANY):
            return cls(type_, name[:-1], _Pattern.PREFIXED)
        return cls(type_, name)

    def matches(self, resource: Resource) -> bool:
        """Whether a rule with this resource is about a request's resource."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not resource.type:
            return False
        if self.pattern is _Pattern.LITERAL:
            return resource.name == self.name
        return self.pattern is _Pattern.ANY or resource.name.startswith(self.name)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sort key: the most specific resource first."""
        return self.type is ResourceType.ANY, self.pattern, -len(self.name)

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return _ANY
        if self.pattern is _Pattern.ANY:
            return f"{self.type}:{_ANY}"
        return f"{self.type}:{self.name}{_ANY if self.pattern is _Pattern.PREFIXED else ''}"


def topic(name: str) -> Resource:
    """Return the resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """Return the resource of a consumer group."""
    return Resource(ResourceType.GROUP, name)


def cluster(name: str) -> Resource:
    """Return the resource of the whole cluster."""
    return Resource(ResourceType.CLUSTER, name)


# The resource of requests about all clusters: only rules for `Cluster:*` and `*` are about it.
EVERY_CLUSTER: Final = Resource(ResourceType.CLUSTER, "", _Pattern.ANY)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a policy; without `sources` it counts for all addresses."""

    resource: Resource
    actions: frozenset[Action]
    decision: Decision
    sources: tuple[Network, ...] = ()
    source_texts: tuple[str, ...] = ()

    def matches(self, resource: Resource, actions: Iterable[Action], source: Address | None) -> bool:
        """Whether the rule is about a request with any of these actions on a resource, from an address."""
        if not self.resource.matches(resource):
            return False
        if Action.ALL not in self.actions and not any(action in self.actions for action in actions):
            return False
        return not self.sources or (source is not None and any(source in net for net in self.sources))

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """Sort key: the rule that decides first."""
        return *self.resource.rank, self.decision is Decision.ALLOW

    def info(self) -> PolicyEntryInfo:
        """Return the rule as responses and the file have it."""
        return PolicyEntryInfo(
            resource=str(self.resource),
            actions=[action.value for action in Action if action in self.actions],
            decision=self.decision.value,
            source_ips=list(self.source_texts) or None,
        )


@dataclass(frozen=True, slots=True)
class Acl:
    """The rules of a user by type of policy; replaced, never changed in place."""

    user: str
    custom: tuple[Rule, ...] = ()
    default: tuple[Rule, ...] = ()

    def decide(
        self, resource: Resource, actions: Iterable[Action], source: Address | None
    ) -> Decision | None:
        """Return the decision about a request; None if no rule is about it."""
        for rules in (self.custom, self.default):
            matching = [rule for rule in rules if rule.matches(resource, actions, source)]
            if matching:
                return min(matching, key=_rank).decision
        return None

    def with_rules(self, kind: PolicyType, rules: Iterable[Rule]) -> Acl:
        """Return the list with more rules of a type; each replaces an older one for the same resource."""
        by_resource = {rule.resource: rule for rule in self.rules(kind)}
        by_resource.update((rule.resource, rule) for rule in rules)
        return self._replaced(kind, tuple(by_resource.values()))

    def without(self, kind: PolicyType, resource: Resource) -> Acl:
        """Return the list without the rule of a type for a resource."""
        return self._replaced(kind, tuple(rule for rule in self.rules(kind) if rule.resource != resource))

    def rules(self, kind: PolicyType) -> tuple[Rule, ...]:
        """Return the rules of a type."""
        return self.custom if kind is PolicyType.CUSTOM else self.default

    @property
    def size(self) -> int:
        """Number of rules."""
        return len(self.custom) + len(self.default)

    def info(self, resource_filter: str = "") -> AclInfo:
        """Return the list as responses and the file have it; only resources that contain the filter."""
        policies = []
        for kind in PolicyType:
            entries = [rule.info() for rule in self.rules(kind) if resource_filter in str(rule.resource)]
            if entries:
                policies.append(PolicyInfo(policy_type=kind.value, entries=entries))
        return AclInfo(subject=f"{_USER}:{self.user}", policies=policies)

    def _replaced(self, kind: PolicyType, rules: tuple[Rule, ...]) -> Acl:
        if kind is PolicyType.CUSTOM:
            return Acl(self.user, rules, self.default)
        return Acl(self.user, self.custom, rules)


def user_of(subject: str | None) -> str:
    """Return the name of a subject `User:name`. Raises PolicyProblem."""
    kind, _, name = (subject or "").partition(":")
    if kind.lower() != _USER.lower() or not name.strip():
        raise PolicyProblem(f"subject {shown(subject or '')}: must be User:NAME")
    return name


def policy_type_of(name: str | None) -> PolicyType:
    """Return the type of a policy; `Custom` without a name. Raises PolicyProblem."""
    return _by_name(PolicyType, name, "policy type") if name else PolicyType.CUSTOM


def rules_of(acl: AclInfo) -> Iterator[tuple[PolicyType, list[Rule]]]:
    """Yield the rules of each policy. Raises PolicyProblem for what Apache's broker refuses, too."""
    if not acl.policies:
        raise PolicyProblem("policies are missing")
    for policy in acl.policies:
        if not policy.entries:
            raise PolicyProblem("a policy has no entries")
        yield policy_type_of(policy.policy_type), [_rule(entry) for entry in policy.entries]


def _rule(entry: PolicyEntryInfo) -> Rule:
    resource = Resource.parse(entry.resource or "")
    actions = frozenset(_by_name(Action, name, "action") for name in entry.actions)
    if not actions:
        raise PolicyProblem(f"{resource}: actions are missing")
    sources = tuple(text.strip() for text in entry.source_ips or ())
    return Rule(
        resource,
        actions,
        _by_name(Decision, entry.decision, "decision"),
        tuple(_network(text) for text in sources),
        sources,
    )


def _network(text: str) -> Network:
    """Return an address or range. Raises PolicyProblem."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise PolicyProblem(
            f"source {shown(text)}: must be an IP address or a range such as 10.0.0.0/8 or 2001:db8::/32"
        ) from None


def _by_name(kind: type[_EnumT], name: str | None, meaning: str) -> _EnumT:
    """Return the member of a name, in any case of letters. Raises PolicyProblem."""
    member = member_named(kind, name or "")
    if member is None:
        allowed = ", ".join(each.value for each in kind)
        raise PolicyProblem(f"{meaning} {shown(name or '')}: must be one of {allowed}")
    return member


def _rank(rule: Rule) -> tuple[bool, int, int, bool]:
    return rule.rank
