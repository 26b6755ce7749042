"""The check of each request's signature.

A client signs the values of the ext fields, ordered by name, and the body, with HMAC-SHA1 and its password
(Apache RocketMQ 5.3.3, AclClientRPCHook, AclSigner; DefaultAuthenticationContextBuilder,
DefaultAuthenticationHandler).
"""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING, Final

from ...codes import ResponseCode
from ...errors import CommandError, shown
from ...repeated_event import RepeatedEvent
from ...signing import ACCESS_KEY, SIGNATURE, RequestSigner
from .users import User, UserTable

if TYPE_CHECKING:
    from ...command import RemotingCommand
    from ...connection import Connection

log = logging.getLogger("rmq.audit")

# Clients up to this version send a field that they do not sign (MQVersion.V4_9_3).
_VERSION_4_9_3: Final = 399
_UNSIGNED_IN_OLD_CLIENTS: Final = "_UNIQUE_KEY_QUERY"
# At most one line about refused requests per interval, so that nobody can fill the log.
_LOG_SECONDS: Final = 1.0


class Authentication:
    """Admits the requests of known users with a valid signature, and those with a code of the white list."""

    def __init__(self, users: UserTable, whitelist: frozenset[int]) -> None:
        self._users = users
        self._whitelist = whitelist
        # One signer for each password in use: making one costs more than a signature.
        self._signers: dict[str, tuple[User, RequestSigner]] = {}
        self._refusal = RepeatedEvent(_LOG_SECONDS)
        users.on_change(self._signers.clear)

    def check(self, connection: Connection, request: RemotingCommand) -> User | None:
        """Return the user that has signed the request. Raises CommandError (NO_PERMISSION) if none has.

        A request with a code of the white list needs none; its name is removed unless the signature is valid.
        """
        fields = request.ext_fields
        name = fields.get(ACCESS_KEY, "")
        problem = self._problem(name, fields, request)
        if not problem:
            return self._users.get(name)
        if request.code in self._whitelist:
            fields.pop(ACCESS_KEY, None)
            return None
        if count := self._refusal.occurred():
            log.warning(
                "authentication failed user=%s code=%d peer=%s refused=%d cause=%s",
                shown(name),
                request.code,
                connection.peer,
                count,
                problem,
            )
        raise CommandError(ResponseCode.NO_PERMISSION, problem)

    def user_of(self, request: RemotingCommand) -> User | None:
        """Return the user of a request that `check` has admitted; None without one."""
        return self._users.get(request.ext_fields.get(ACCESS_KEY, ""))

    def _problem(self, name: str, fields: dict[str, str], request: RemotingCommand) -> str:
        if not name:
            return "username cannot be null. The request has no access keys: set the client's credentials"
        user = self._users.get(name)
        if user is None:
            return f"User:{name:.100} is not found."
        if not user.is_enabled:
            return f"User:{name} is disabled."
        if request.version <= _VERSION_4_9_3 and _UNSIGNED_IN_OLD_CLIENTS in fields:
            fields = {key: text for key, text in fields.items() if key != _UNSIGNED_IN_OLD_CLIENTS}
        expected = self._signer(user).signature(fields, request.body)
        given = fields.get(SIGNATURE, "")
        if not hmac.compare_digest(expected.encode(), given.encode()):
            return "check signature failed."
        return ""

    def _signer(self, user: User) -> RequestSigner:
        known = self._signers.get(user.name)
        if known is not None and known[0] is user:
            return known[1]
        signer = RequestSigner(user.name, user.password)
        self._signers[user.name] = (user, signer)
        return signer
