"""The access service of a daemon: its users and their rules, and the guard of all requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..admin_allowlist import AdminAllowlist
from ..lifecycle import StartError
from .authentication import Authentication
from .authorization import Authorization
from .guard import AccessGuard
from .needs import NeedsTable

if TYPE_CHECKING:
    from ...bounded_cache import BoundedCache
    from ..common_settings import DaemonSettings
    from .settings import AccessSettings
    from .tables import AccessTables

log = logging.getLogger("rmq.audit")


@dataclass(frozen=True, slots=True)
class DaemonTexts:
    """What log lines say about a daemon: its kind, and what its clients do with it."""

    daemon: str
    clients_may: str


class AccessService:
    """Access control of one daemon. Everything except `load` belongs to the loop."""

    def __init__(
        self,
        settings: AccessSettings,
        daemon_settings: DaemonSettings,
        needs: NeedsTable,
        texts: DaemonTexts,
        tables: AccessTables,
        *,
        owns_tables: bool = True,
    ) -> None:
        """`needs` are those of the daemon's requests.

        A daemon that does not own its tables shares those of another daemon in this process, which loads and
        closes them.
        """
        self.tables = tables
        self._owns_tables = owns_tables
        self._settings = settings
        self._daemon_settings = daemon_settings
        self._texts = texts
        self._authorization: Authorization | None = None
        authentication: Authentication | None = None
        allowlist: AdminAllowlist | None = None
        if settings.authentication_enabled:
            authentication = Authentication(tables.users, settings.authentication_whitelist_codes)
        if settings.authorization_enabled:
            whitelist = settings.authorization_whitelist_codes
            self._authorization = Authorization(tables.acls, needs, whitelist)
        if daemon_settings.admin_networks:
            allowlist = AdminAllowlist(daemon_settings.admin_networks, needs.is_administration)
        # None while every request is served.
        self.guard: AccessGuard | None = None
        if authentication is not None or allowlist is not None:
            self.guard = AccessGuard(allowlist, authentication, self._authorization)

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches, for their metrics."""
        return () if self._authorization is None else self._authorization.caches

    def load(self) -> None:
        """Read the files. Raises ConfigFileError; blocks."""
        if self._owns_tables:
            self.tables.load()

    def start(self, create_users: Callable[[], None] | None = None) -> None:
        """Create the users of the settings, and write the files after each change from now on.

        `create_users` creates further ones. Raises StartError if nobody could connect.
        """
        if self._owns_tables:
            self.tables.start(self._settings)
        if create_users is not None:
            create_users()
        self._announce()

    async def close(self) -> None:
        """Write the changes that are not on disk yet, and stop. Raises OSError if a write fails."""
        if self._owns_tables:
            await self.tables.close()

    def _announce(self) -> None:
        """Say once who may do what. Raises StartError if nobody could connect."""
        settings, texts = self._settings, self._texts
        allowlist = self._daemon_settings.admin_allowlist
        if not settings.authentication_enabled:
            log.warning(
                "access is open: whoever reaches this %s's ports may %s administration_from=%s; set "
                "authenticationEnabled=true, or let only trusted hosts reach them (docs/security.md)",
                texts.daemon,
                texts.clients_may if allowlist else "do everything",
                allowlist or "everywhere",
            )
        elif not len(self.tables.users):
            raise StartError(
                "authenticationEnabled=true, and there is no user: nobody could connect. Set "
                "initAuthenticationUser"
            )
        else:
            log.info(
                "access needs signatures of known users users=%d rights=%s administration_from=%s "
                "codes_without_signature=%s codes_without_rights=%s",
                len(self.tables.users),
                "by rules, super users everything" if settings.authorization_enabled else "everything",
                allowlist or "everywhere",
                _text(settings.authentication_whitelist_codes),
                _text(settings.authorization_whitelist_codes),
            )


def _text(codes: frozenset[int]) -> str:
    return ",".join(map(str, sorted(codes))) or "none"
