"""Users and policies, as the requests 3001 to 3010 carry them.

Source: Apache RocketMQ 5.3.3, UserInfo, UserConverter, AclInfo, AclConverter.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from pydantic import Field

from ..errors import BodyError
from .base import Body, WireEnum

_EnumT = TypeVar("_EnumT", bound=StrEnum)


class UserType(WireEnum):
    """What a user may do: a super user everything, others what policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(WireEnum):
    """Whether a user may connect."""

    ENABLE = "enable"
    DISABLE = "disable"


class UserInfo(Body):
    """A user. Absent members stay as they are in an update."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    @property
    def type(self) -> UserType | None:
        """The type; None if it is absent. Raises BodyError for an unknown one."""
        return _member(UserType, "userType", self.user_type)

    @property
    def status(self) -> UserStatus | None:
        """The status; None if it is absent. Raises BodyError for an unknown one."""
        return _member(UserStatus, "userStatus", self.user_status)

    def __repr__(self) -> str:
        """Show the user without the password."""
        return f"<user {self.username!r} {self.user_type} {self.user_status}>"

    __str__ = __repr__


class AccessKeys(Body):
    """The access key (a user's name) and secret key (the password) of a daemon's own connections.

    (Apache RocketMQ 5.3.3, SessionCredentials.)
    """

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        """Show the access key alone."""
        return f"<access key {self.access_key!r}>"

    __str__ = __repr__


class PolicyEntryInfo(Body):
    """One rule: actions that are allowed or denied on a resource. Without addresses it counts for all."""

    actions: list[str] = Field(default_factory=list)
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Body):
    """Rules of one type, `Custom` or `Default`."""

    entries: list[PolicyEntryInfo] = Field(default_factory=list)
    policy_type: str | None = None


class AclInfo(Body):
    """All rules of a subject, `User:name`."""

    policies: list[PolicyInfo] = Field(default_factory=list)
    subject: str | None = None


def member_named(kind: type[_EnumT], text: str) -> _EnumT | None:
    """Return the member with this value, in any case of letters; None if there is none."""
    wanted = text.strip().lower()
    return next((member for member in kind if member.value.lower() == wanted), None)


def _member(kind: type[_EnumT], name: str, text: str | None) -> _EnumT | None:
    """Return the member; None if it is absent. Apache takes unknown ones for absent, too."""
    if not text:
        return None
    member = member_named(kind, text)
    if member is None:
        allowed = ", ".join(each.value for each in kind)
        raise BodyError(f"{name}={text!r:.100}: must be one of {allowed}")
    return member
