"""The table of users.

Apache RocketMQ 5.3.3 keeps users in RocksDB (LocalAuthenticationMetadataProvider). Here they are in
`users.json`, which the process's own user alone may read: signatures are checked with the passwords.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import Field

from ...bodies.access_control import UserInfo, UserStatus, UserType
from ...bodies.base import Body
from .refusal import UserProblem

log = logging.getLogger("rmq.audit")

MAX_USERS: Final = 10_000
_MAX_CHARACTERS: Final = 255


@dataclass(frozen=True, slots=True)
class User:
    """One user; replaced, never changed in place."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether the user may do everything."""
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether the user may connect."""
        return self.status is UserStatus.ENABLE

    def info(self, *, with_password: bool) -> UserInfo:
        """Return the user as responses and the file have it."""
        return UserInfo(
            username=self.name,
            password=self.password if with_password else None,
            user_type=self.type.value,
            user_status=self.status.value,
        )


class _File(Body):
    """The content of `users.json`."""

    users: list[UserInfo] = Field(default_factory=list)


class UserTable:
    """Users by name, with their persistent form."""

    def __init__(self) -> None:
        self._table: dict[str, User] = {}
        self._listeners: list[Callable[[], None]] = []

    def get(self, name: str) -> User | None:
        """Return a user; None for an unknown name."""
        return self._table.get(name)

    def __len__(self) -> int:
        return len(self._table)

    def named_like(self, text: str) -> list[User]:
        """Return the users whose names contain a text, sorted by name."""
        return [user for name, user in sorted(self._table.items()) if text in name]

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register `listener`, called after each change."""
        self._listeners.append(listener)

    # --- changes ---

    def create(self, info: UserInfo) -> None:
        """Add a user. Raises UserProblem, BodyError."""
        name, password = info.username or "", info.password or ""
        _check("username", name)
        _check("password", password)
        if name in self._table:
            raise UserProblem(f"the user {name} exists already: update it")
        if len(self._table) >= MAX_USERS:
            raise UserProblem(f"there are {MAX_USERS} users already, which is the limit: delete some")
        user = User(name, password, info.type or UserType.NORMAL, info.status or UserStatus.ENABLE)
        log.info("user created user=%s type=%s status=%s", name, user.type, user.status)
        self._set(user)

    def update(self, info: UserInfo) -> None:
        """Change the members of a user that `info` has. Raises UserProblem, BodyError."""
        old = self._table.get(info.username or "")
        if old is None:
            raise UserProblem(f"the user {info.username!r:.100} does not exist")
        if info.password:
            _check("password", info.password)
        new = replace(
            old,
            password=info.password or old.password,
            type=info.type or old.type,
            status=info.status or old.status,
        )
        if old.is_super and not (new.is_super and new.is_enabled):
            self._check_not_last(old)
        log.info(
            "user updated user=%s type=%s status=%s password=%s",
            new.name,
            new.type,
            new.status,
            "unchanged" if new.password == old.password else "changed",
        )
        self._set(new)

    def delete(self, name: str) -> bool:
        """Remove a user; return whether there was one. Raises UserProblem."""
        user = self._table.get(name)
        if user is None:
            return False
        if user.is_super:
            self._check_not_last(user)
        del self._table[name]
        log.info("user deleted user=%s", name)
        self._changed()
        return True

    def _check_not_last(self, user: User) -> None:
        """Refuse a change that would leave nobody who may administrate the daemon."""
        if not any(other.is_super and other.is_enabled and other != user for other in self._table.values()):
            raise UserProblem(
                f"{user.name} is the last enabled super user: create another one first, or nobody could "
                "administrate this daemon"
            )

    def _set(self, user: User) -> None:
        self._table[user.name] = user
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    # --- persistence ---

    def encode(self) -> bytes:
        """Return the content of `users.json`."""
        return _File(users=[user.info(with_password=True) for user in self._table.values()]).encode_pretty()

    def decode(self, content: bytes) -> None:
        """Load the content of `users.json`. Raises BodyError."""
        infos = _File.decode(content).users
        users = [
            User(
                info.username or "",
                info.password or "",
                info.type or UserType.NORMAL,
                info.status or UserStatus.ENABLE,
            )
            for info in infos
        ]
        self._table = {user.name: user for user in users if user.name and user.password}


def _check(name: str, value: str) -> None:
    """Refuse a name or password that clients could not send. The message does not contain the value."""
    if not value.strip():
        raise UserProblem(f"the {name} is blank")
    if len(value) > _MAX_CHARACTERS or not value.isprintable() or value != value.strip():
        raise UserProblem(
            f"the {name} must have at most {_MAX_CHARACTERS} printable characters, without spaces at its ends"
        )
