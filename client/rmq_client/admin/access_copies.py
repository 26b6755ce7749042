"""Copies of users and rules from one broker to another (Apache RocketMQ 5.3.3, CopyUsersSubCommand)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmq_remoting.bodies.access_control import AclInfo, UserInfo
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.access_control import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)

from ..errors import UsageError
from .access import AccessAdmin, acl_of, decode_list, rules_of, subject_of
from .arguments import checked


class AccessCopyAdmin(AccessAdmin):
    """Copies of users and rules between the masters of two broker names."""

    @checked
    async def copy_users(self, source: str, target: str, names: Sequence[str] | None = None) -> list[str]:
        """Copy users with their passwords from one broker to another; return their names.

        `source` and `target` are names of brokers. Without `names` all users are copied. A user that the
        target has gets password, type and status of the source's. A super user has to ask, since brokers tell
        passwords to nobody else. Raises ClientError, before a user is copied, for one that cannot be.
        """
        address = await self._broker(target)
        found = {user.username or "": user for user in await self._listed_users(await self._broker(source))}
        wanted = _chosen(found, names, f"broker {source} has no user")
        hidden = [name for name in wanted if not found[name].password]
        if hidden:
            raise UsageError(
                f"broker {source} does not tell the passwords of {', '.join(hidden)}: copy them with the "
                "credentials of a super user, on brokers with access control"
            )
        there = {user.username for user in await self._listed_users(address)}
        for name in wanted:
            user = found[name]
            body = UserInfo(
                username=name,
                password=user.password,
                user_type=user.user_type,
                user_status=user.user_status,
            ).encode()
            code, header = (
                (RequestCode.AUTH_UPDATE_USER, UpdateUserRequestHeader(username=name))
                if name in there
                else (RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username=name))
            )
            await self._api.call(address, code, header, body, about=f"user {name} on broker {target}")
        return wanted

    @checked
    async def copy_rules(self, source: str, target: str, names: Sequence[str] | None = None) -> list[str]:
        """Copy the rules of users from one broker to another; return the names of the users.

        `source` and `target` are names of brokers. Without `names` the rules of all users are copied. A rule
        replaces the target's rule for the same resource; the target's other rules stay. The target must have
        the users. Raises ClientError.
        """
        address = await self._broker(target)
        found = {each.user: each for each in map(rules_of, await self._listed_rules(source))}
        wanted = _chosen(found, names, f"broker {source} has no rules of")
        for name in wanted:
            header = CreateAclRequestHeader(subject=subject_of(name))
            body = acl_of(name, found[name].rules).encode()
            about = f"rules of {name} on broker {target}"
            await self._api.call(address, RequestCode.AUTH_CREATE_ACL, header, body, about=about)
        return wanted

    async def _listed_users(self, address: str) -> list[UserInfo]:
        code, header = RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter="")
        return await self._body(
            address, code, header, "list of users", lambda body: decode_list(UserInfo, body)
        )

    async def _listed_rules(self, broker_name: str) -> list[AclInfo]:
        code, header = RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader(subject_filter="", resource_filter="")
        address = await self._broker(broker_name)
        return await self._body(
            address, code, header, "list of rules", lambda body: decode_list(AclInfo, body)
        )


def _chosen(found: Iterable[str], names: Sequence[str] | None, problem: str) -> list[str]:
    """Return the names to copy, all without `names`. Raises UsageError for one that is not there."""
    known = sorted(found)
    if names is None:
        return known
    missing = [name for name in names if name not in known]
    if missing:
        raise UsageError(f"{problem} {', '.join(missing)}; there are: {', '.join(known) or 'none'}")
    return list(names)
