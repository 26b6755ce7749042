"""The access service: users and their rules with files of their own, and the guard of all requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...bodies.access_control import UserInfo, UserType
from ..admin_allowlist import AdminAllowlist
from ..config_file import ConfigFile
from ..lifecycle import StartError
from .acls import AclTable
from .authentication import Authentication
from .authorization import Authorization
from .guard import AccessGuard
from .needs import NeedsTable
from .users import UserProblem, UserTable

if TYPE_CHECKING:
    from ...bounded_cache import BoundedCache
    from ..common_settings import DaemonSettings
    from .settings import AccessSettings

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
        folder: Path,
        texts: DaemonTexts,
    ) -> None:
        """Keep users and rules in `folder`; `needs` are those of the daemon's requests."""
        self.users = UserTable()
        self.acls = AclTable()
        self.users_file = ConfigFile(folder / "users.json", self.users, is_private=True)
        self.acls_file = ConfigFile(folder / "acls.json", self.acls, is_private=True)
        self._settings = settings
        self._daemon_settings = daemon_settings
        self._texts = texts
        self._authorization: Authorization | None = None
        authentication: Authentication | None = None
        allowlist: AdminAllowlist | None = None
        if settings.authentication_enabled:
            authentication = Authentication(self.users, settings.authentication_whitelist_codes)
        if settings.authorization_enabled:
            whitelist = settings.authorization_whitelist_codes
            self._authorization = Authorization(self.acls, needs, whitelist)
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
        self.users_file.load()
        self.acls_file.load()

    def start(self) -> None:
        """Create the users of the settings, and write the files after each change from now on.

        Raises StartError if nobody could connect.
        """
        self.users.on_change(self.users_file.changed)
        self.acls.on_change(self.acls_file.changed)
        user, keys = self._settings.init_user, self._settings.own_keys
        if user is not None:
            user.user_type = UserType.SUPER.value
            self._create_missing(user, "initAuthenticationUser")
        if keys is not None:
            own = UserInfo(username=keys.access_key, password=keys.secret_key, user_type=UserType.SUPER.value)
            self._create_missing(own, "innerClientAuthenticationCredentials")
        self._announce()

    async def save(self) -> None:
        """Wait until all changes so far are on disk. Raises OSError."""
        await self.users_file.save()
        await self.acls_file.save()

    def _create_missing(self, user: UserInfo, key: str) -> None:
        if self.users.get(user.username or "") is not None:
            return
        try:
            self.users.create(user)
        except UserProblem as error:
            raise StartError(f"{key}: {error}") from error

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
        elif not len(self.users):
            raise StartError(
                "authenticationEnabled=true, and there is no user: nobody could connect. Set "
                "initAuthenticationUser"
            )
        else:
            log.info(
                "access needs signatures of known users users=%d rights=%s administration_from=%s "
                "codes_without_signature=%s codes_without_rights=%s",
                len(self.users),
                "by rules, super users everything" if settings.authorization_enabled else "everything",
                allowlist or "everywhere",
                _text(settings.authentication_whitelist_codes),
                _text(settings.authorization_whitelist_codes),
            )


def _text(codes: frozenset[int]) -> str:
    return ",".join(map(str, sorted(codes))) or "none"
