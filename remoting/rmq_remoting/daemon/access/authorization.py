"""The check of each request's rights, after its signature was checked.

Source: Apache RocketMQ 5.3.3, DefaultAuthorizationProvider, UserAuthorizationHandler and
AclAuthorizationHandler.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from ...codes import ResponseCode
from ...errors import BodyError, CommandError, HeaderError, shown
from ...peer_address import address_of
from ...repeated_event import RepeatedEvent
from .acls import AclTable
from .needs import Need, NeedsTable
from .policies import Decision
from .users import User

if TYPE_CHECKING:
    from ...command import RemotingCommand
    from ...connection import Connection

log = logging.getLogger("rmq.audit")

_LOG_SECONDS: Final = 1.0
_MAX_DECISIONS: Final = 10_000
_MAX_DECISIONS_BYTES: Final = 16 * 1024 * 1024

# User, need, host.
_Key = tuple[str, Need, str]


class Authorization:
    """Admits the requests of super users, and those that a user's rules allow."""

    def __init__(self, acls: AclTable, needs: NeedsTable, whitelist: frozenset[int]) -> None:
        self._acls = acls
        self._needs = needs
        self._whitelist = whitelist
        # The reason of a refusal, or an empty text for an allowed need. Emptied at each change of rules.
        self._decisions: BoundedCache[_Key, str] = BoundedCache(
            "access_decisions",
            max_entries=_MAX_DECISIONS,
            max_bytes=_MAX_DECISIONS_BYTES,
            size_of=_size_of,
        )
        self.caches = (self._decisions,)
        self._refusal = RepeatedEvent(_LOG_SECONDS)
        acls.on_change(self._decisions.clear)

    def check(self, connection: Connection, request: RemotingCommand, user: User | None) -> None:
        """Raise CommandError (NO_PERMISSION) unless a user, or a client without one, may make a request."""
        if self._is_exempt(request, user):
            return
        name = "" if user is None else user.name
        try:
            needs = self._needs.of(request)
        except (BodyError, HeaderError) as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the request cannot be read: {error}") from error
        host = connection.remote_address[0]
        for need in needs:
            problem = self._problem(name, need, host)
            if problem:
                self._refuse(name, need, request.code, connection, problem)

    def demand(self, connection: Connection, request: RemotingCommand, user: User | None, need: Need) -> None:
        """Raise CommandError (NO_PERMISSION) unless the user of an admitted request has one more right.

        For any thread, so the decision is not cached.
        """
        if not self._is_exempt(request, user):
            name = "" if user is None else user.name
            problem = self._decide(name, need, connection.remote_address[0])
            if problem:
                self._refuse(name, need, request.code, connection, problem)

    def _is_exempt(self, request: RemotingCommand, user: User | None) -> bool:
        return request.code in self._whitelist or (user is not None and user.is_super)

    def _problem(self, name: str, need: Need, host: str) -> str:
        key = (name, need, host)
        known = self._decisions.get(key)
        if known is not None:
            return known
        return self._decisions.put(key, self._decide(name, need, host))

    def _decide(self, name: str, need: Need, host: str) -> str:
        acl = self._acls.get(name)
        decision = None if acl is None else acl.decide(need.resource, need.actions, address_of(host))
        if decision is Decision.ALLOW:
            return ""
        detail = "no matched policies." if decision is None else "the decision is deny."
        wanted = " or ".join(need.actions)
        return f"User:{name} has no permission to access {need.resource} from {host} ({wanted}), {detail}"

    def _refuse(self, name: str, need: Need, code: int, connection: Connection, problem: str) -> None:
        """Log and raise the refusal."""
        if count := self._refusal.occurred():
            log.warning(
                "access denied user=%s code=%d resource=%s action=%s peer=%s denied=%d",
                shown(name),
                code,
                shown(str(need.resource)),
                "/".join(need.actions),
                connection.peer,
                count,
            )
        raise CommandError(ResponseCode.NO_PERMISSION, problem)


def _size_of(key: _Key, value: str) -> int:
    return ENTRY_OVERHEAD_BYTES + len(key[0]) + len(key[1].resource.name) + len(value)
