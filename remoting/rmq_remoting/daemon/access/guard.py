"""The guard of a daemon's dispatchers: the address of administration first, then signature, then rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin_allowlist import AdminAllowlist
from .authentication import Authentication
from .authorization import Authorization

if TYPE_CHECKING:
    from ...command import RemotingCommand
    from ...connection import Connection


class AccessGuard:
    """Admits or refuses each request; a part that is None refuses nothing."""

    def __init__(
        self,
        allowlist: AdminAllowlist | None,
        authentication: Authentication | None,
        authorization: Authorization | None,
    ) -> None:
        self._allowlist = allowlist
        self._authentication = authentication
        self._authorization = authorization

    def check(self, connection: Connection, request: RemotingCommand) -> None:
        """Raise CommandError (NO_PERMISSION) unless the request's user may make it from there."""
        if self._allowlist is not None:
            self._allowlist.check(connection, request)
        if self._authentication is not None:
            user = self._authentication.check(connection, request)
            if self._authorization is not None:
                self._authorization.check(connection, request, user)
