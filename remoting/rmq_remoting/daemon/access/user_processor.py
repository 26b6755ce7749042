"""Administration of users: codes 3001 to 3005.

Passwords are shown to super users only, who need them to copy users to another daemon (`mqadmin copyUser`).
Apache RocketMQ 5.3.3 (AdminBrokerProcessor) shows them to every client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...answers import Result
from ...bodies.access_control import UserInfo, UserType
from ...codes import ResponseCode
from ...errors import CommandError
from ...headers.access_control import (
    CreateUserRequestHeader,
    DeleteUserRequestHeader,
    GetUserRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)
from ...signing import ACCESS_KEY
from ..deferred_answers import Persist, answer_when_persisted
from .acls import AclTable
from .users import UserTable

if TYPE_CHECKING:
    from ...command import RemotingCommand
    from ...connection import Connection


class UserAdminProcessor:
    """Creates, changes, deletes and shows users."""

    def __init__(self, users: UserTable, acls: AclTable, save: Persist, *, is_authenticated: bool) -> None:
        """`is_authenticated`: whether requests come from users with a checked signature."""
        self._users = users
        self._acls = acls
        self._save = save
        self._is_authenticated = is_authenticated

    def create(self, connection: Connection, request: RemotingCommand) -> Result:
        """3001: create a user."""
        header = CreateUserRequestHeader.decode(request.ext_fields)
        user = _user(request, header.username)
        self._check_may_touch(request, user.type is UserType.SUPER)
        self._users.create(user)
        return self._persisted(request)

    def update(self, connection: Connection, request: RemotingCommand) -> Result:
        """3002: change password, type or status of a user."""
        header = UpdateUserRequestHeader.decode(request.ext_fields)
        user = _user(request, header.username)
        self._check_may_touch(request, user.type is UserType.SUPER or self._is_super(user.username))
        self._users.update(user)
        return self._persisted(request)

    def delete(self, connection: Connection, request: RemotingCommand) -> Result:
        """3003: delete a user and the user's rules; one that does not exist is no error."""
        name = _name(DeleteUserRequestHeader.decode(request.ext_fields).username)
        self._check_may_touch(request, self._is_super(name))
        if self._users.delete(name):
            self._acls.user_deleted(name)
        return self._persisted(request)

    def get(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """3004: one user; no body if there is none."""
        name = _name(GetUserRequestHeader.decode(request.ext_fields).username)
        user = self._users.get(name)
        body = b"" if user is None else user.info(with_password=self._sees_passwords(request)).encode()
        return request.response(ResponseCode.SUCCESS, body=body)

    def list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """3005: the users whose names contain the filter; no body if there are none."""
        text = ListUsersRequestHeader.decode(request.ext_fields).filter or ""
        with_password = self._sees_passwords(request)
        found = [user.info(with_password=with_password).encode() for user in self._users.named_like(text)]
        return request.response(ResponseCode.SUCCESS, body=b"[%b]" % b",".join(found) if found else b"")

    def _check_may_touch(self, request: RemotingCommand, is_super: bool) -> None:
        """Let only super users create, change and delete super users."""
        if is_super and self._is_authenticated and not self._is_super(request.ext_fields.get(ACCESS_KEY)):
            raise CommandError(
                ResponseCode.NO_PERMISSION, "only a super user may create, update or delete a super user"
            )

    def _sees_passwords(self, request: RemotingCommand) -> bool:
        return self._is_authenticated and self._is_super(request.ext_fields.get(ACCESS_KEY))

    def _is_super(self, name: str | None) -> bool:
        user = self._users.get(name or "")
        return user is not None and user.is_super

    def _persisted(self, request: RemotingCommand) -> Result:
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._save)


def _user(request: RemotingCommand, name: str | None) -> UserInfo:
    user = UserInfo.decode_request(request.body)
    user.username = _name(name)
    return user


def _name(name: str | None) -> str:
    if not name or not name.strip():
        raise CommandError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name
