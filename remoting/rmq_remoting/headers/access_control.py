"""Headers of users and access control lists (codes 3001 to 3010); users and policies are in the bodies."""

from __future__ import annotations

from .base import Header


class CreateUserRequestHeader(Header):
    """3001."""

    username: str | None = None


class UpdateUserRequestHeader(Header):
    """3002."""

    username: str | None = None


class DeleteUserRequestHeader(Header):
    """3003."""

    username: str | None = None


class GetUserRequestHeader(Header):
    """3004."""

    username: str | None = None


class ListUsersRequestHeader(Header):
    """3005."""

    filter: str | None = None


class CreateAclRequestHeader(Header):
    """3006."""

    subject: str | None = None


class UpdateAclRequestHeader(Header):
    """3007."""

    subject: str | None = None


class DeleteAclRequestHeader(Header):
    """3008."""

    policy_type: str | None = None
    resource: str | None = None
    subject: str | None = None


class GetAclRequestHeader(Header):
    """3009."""

    subject: str | None = None


class ListAclsRequestHeader(Header):
    """3010."""

    resource_filter: str | None = None
    subject_filter: str | None = None
