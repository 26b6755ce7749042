"""The table of access control lists, with its persistent form `acls.json`.

Apache RocketMQ 5.3.3 keeps them in RocksDB (LocalAuthorizationMetadataProvider).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pydantic import Field

from ...bodies.access_control import AclInfo
from ...bodies.base import Body
from ...errors import BodyError
from .policies import MAX_ENTRIES, Acl, PolicyType, Resource, rules_of, user_of
from .refusal import PolicyProblem

log = logging.getLogger("rmq.audit")

_NO_RULES: Final = "no rules"


class _File(Body):
    """The content of `acls.json`."""

    acls: list[AclInfo] = Field(default_factory=list)


class AclTable:
    """Access control lists by user."""

    def __init__(self) -> None:
        self._table: dict[str, Acl] = {}
        self._listeners: list[Callable[[], None]] = []

    def get(self, user: str) -> Acl | None:
        """Return the list of a user; None without one."""
        return self._table.get(user)

    def matching(self, subject_filter: str, resource_filter: str) -> list[AclInfo]:
        """Return the lists whose subjects contain a text, with the resources that contain another."""
        found = [
            acl.info(resource_filter)
            for user, acl in sorted(self._table.items())
            if subject_filter in f"User:{user}"
        ]
        return [info for info in found if info.policies]

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register `listener`, called after each change."""
        self._listeners.append(listener)

    # --- changes ---

    def add(self, user: str, info: AclInfo) -> None:
        """Add rules to a user's list; each replaces an older one for the same resource.

        Raises PolicyProblem, with nothing changed.
        """
        acl = self._table.get(user, Acl(user))
        for kind, rules in rules_of(info):
            acl = acl.with_rules(kind, rules)
        if acl.size > MAX_ENTRIES:
            raise PolicyProblem(f"the user {user} would have {acl.size} rules, the limit is {MAX_ENTRIES}")
        self._table[user] = acl
        self._changed("set", user)

    def delete(self, user: str, kind: PolicyType, resource: Resource | None) -> None:
        """Remove the rule for a resource, or all rules of a user. Raises PolicyProblem if there are none."""
        acl = self._table.get(user)
        if acl is None:
            raise PolicyProblem(f"the user {user} has {_NO_RULES}")
        rest = replace(acl, custom=(), default=()) if resource is None else acl.without(kind, resource)
        if rest.size:
            self._table[user] = rest
        else:
            del self._table[user]
        self._changed("deleted", user)

    def user_deleted(self, user: str) -> None:
        """Forget the rules of a deleted user."""
        if self._table.pop(user, None) is not None:
            self._changed("deleted", user)

    def _changed(self, event: str, user: str) -> None:
        acl = self._table.get(user)
        rules = _NO_RULES if acl is None else acl.info().encode().decode()
        log.info("access control list %s user=%s rules=%s", event, user, rules)
        for listener in self._listeners:
            listener()

    # --- persistence ---

    def encode(self) -> bytes:
        """Return the content of `acls.json`."""
        return _File(acls=[acl.info() for acl in self._table.values()]).encode_pretty()

    def decode(self, content: bytes) -> None:
        """Load the content of `acls.json`. Raises BodyError."""
        table: dict[str, Acl] = {}
        try:
            for info in _File.decode(content).acls:
                acl = Acl(user_of(info.subject))
                for kind, rules in rules_of(info):
                    acl = acl.with_rules(kind, rules)
                table[acl.user] = acl
        except PolicyProblem as error:
            raise BodyError(str(error)) from error
        self._table = table
