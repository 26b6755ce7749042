"""The guard of a daemon's dispatchers: the address of administration first, then signature, then rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin_allowlist import AdminAllowlist
from .authentication import Authentication
from .authorization import Authorization
from .needs import Need

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

    @property
    def knows_rights(self) -> bool:
        """Whether users may do only what rules allow."""
        return self._authorization is not None

    def demand(self, connection: Connection, request: RemotingCommand, need: Need) -> None:
        """Raise CommandError (NO_PERMISSION) unless the request's user has a right that serving it needs.

        For requests that `check` has admitted; for any thread.
        """
        if self._authentication is not None and self._authorization is not None:
            user = self._authentication.user_of(request)
            self._authorization.demand(connection, request, user, need)

    def check(self, connection: Connection, request: RemotingCommand) -> None:
        """Raise CommandError (NO_PERMISSION) unless the request's user may make it from there."""
        if self._allowlist is not None:
            self._allowlist.check(connection, request)
        if self._authentication is not None:
            user = self._authentication.check(connection, request)
            if self._authorization is not None:
                self._authorization.check(connection, request, user)
