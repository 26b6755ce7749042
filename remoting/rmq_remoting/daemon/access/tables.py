"""Users and their rules, each with a file of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ...bodies.access_control import UserInfo, UserType
from ..config_file import ConfigFile
from ..lifecycle import StartError
from .acls import AclTable
from .refusal import UserProblem
from .users import UserTable

if TYPE_CHECKING:
    from .settings import AccessSettings


class AccessTables:
    """Users and rules of one daemon, or of all daemons in one process. Only `load` may leave the loop."""

    def __init__(self, folder: Path) -> None:
        """Keep `users.json` and `acls.json` in `folder`."""
        self.users = UserTable()
        self.acls = AclTable()
        self.users_file = ConfigFile(folder / "users.json", self.users, is_private=True)
        self.acls_file = ConfigFile(folder / "acls.json", self.acls, is_private=True)

    def load(self) -> None:
        """Read the files. Raises ConfigFileError; blocks."""
        self.users_file.load()
        self.acls_file.load()

    def start(self, settings: AccessSettings) -> None:
        """Create the users of the settings, and write the files after each change from now on.

        Raises StartError for a user that cannot be created.
        """
        self.users.on_change(self.users_file.changed)
        self.acls.on_change(self.acls_file.changed)
        user, keys = settings.init_user, settings.own_keys
        if user is not None:
            user.user_type = UserType.SUPER.value
            self._create_missing(user, "initAuthenticationUser")
        if keys is not None:
            own = UserInfo(username=keys.access_key, password=keys.secret_key, user_type=UserType.SUPER.value)
            self._create_missing(own, "innerClientAuthenticationCredentials")

    async def save(self) -> None:
        """Wait until all changes so far are on disk. Raises OSError."""
        await self.users_file.save()
        await self.acls_file.save()

    async def close(self) -> None:
        """Write the changes that are not on disk yet, and stop. Raises OSError if a write fails."""
        files = (self.users_file, self.acls_file)
        for problem in await asyncio.gather(*[file.close() for file in files], return_exceptions=True):
            if problem is not None:
                raise problem

    def _create_missing(self, user: UserInfo, key: str) -> None:
        if self.users.get(user.username or "") is not None:
            return
        try:
            self.users.create(user)
        except UserProblem as error:
            raise StartError(f"{key}: {error}") from error
