"""Users and their rules, on brokers with access control (ACL 2.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.access_control import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    UserStatus,
    UserType,
)
from rmq_remoting.bodies.base import Body
from rmq_remoting.codes import RequestCode
from rmq_remoting.errors import BodyError
from rmq_remoting.headers.access_control import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)

from ..errors import AlreadyExists, UsageError
from .arguments import checked
from .base import AdminBase
from .results import AccessRule, User, UserRules

BodyT = TypeVar("BodyT", bound=Body)

_SUBJECT = "User:"
_DEFAULT_POLICY = "Default"


class AccessAdmin(AdminBase):
    """Users and rules. Brokers have them each for itself: changes go to all masters.

    Without access control brokers refuse these requests.
    """

    # --- users ---

    @checked
    async def create_user(
        self,
        name: str,
        password: str,
        *,
        is_super: bool = False,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Create a user: `name` is the access key, `password` the secret key.

        A super user may do everything, others what rules allow. Raises AlreadyExists if a master has the
        user, and other ClientErrors.
        """
        masters = await self._masters(cluster, broker_name)
        found = await self._users_named(name, masters)
        there = ", ".join(sorted(broker for broker, user in found.items() if user is not None))
        if there:
            raise AlreadyExists(f"user {name} exists on {there}: call update_user to change it")
        body = UserInfo(
            username=name,
            password=password,
            user_type=(UserType.SUPER if is_super else UserType.NORMAL).value,
            user_status=UserStatus.ENABLE.value,
        ).encode()
        header, code = CreateUserRequestHeader(username=name), RequestCode.AUTH_CREATE_USER
        await self._of_each(
            masters, lambda address: self._api.call(address, code, header, body, about=f"user {name}")
        )

    @checked
    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        is_super: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Change a user; None leaves a property as it is. A disabled user is refused. Raises ClientError."""
        if password is None and is_super is None and enabled is None:
            raise UsageError("nothing to change: give password, is_super or enabled")
        body = UserInfo(
            username=name,
            password=password,
            user_type=None if is_super is None else (UserType.SUPER if is_super else UserType.NORMAL).value,
            user_status=(
                None if enabled is None else (UserStatus.ENABLE if enabled else UserStatus.DISABLE).value
            ),
        ).encode()
        header, code = UpdateUserRequestHeader(username=name), RequestCode.AUTH_UPDATE_USER
        masters = await self._masters(cluster, broker_name)
        await self._of_each(
            masters, lambda address: self._api.call(address, code, header, body, about=f"user {name}")
        )

    @checked
    async def delete_user(
        self, name: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> None:
        """Delete a user and the user's rules; a missing user is no error. Raises ClientError."""
        header, code = DeleteUserRequestHeader(username=name), RequestCode.AUTH_DELETE_USER
        masters = await self._masters(cluster, broker_name)
        await self._of_each(
            masters, lambda address: self._api.call(address, code, header, about=f"user {name}")
        )

    @checked
    async def user(self, name: str) -> dict[str, User]:
        """Return a user by broker name, for the masters that have it. Raises ClientError."""
        found = await self._users_named(name, await self._masters())
        return {broker: _user(info) for broker, info in sorted(found.items()) if info is not None}

    @checked
    async def users(self, filter: str = "") -> dict[str, list[User]]:
        """Return the users whose names contain `filter`, by broker name. Raises ClientError."""
        header, code = ListUsersRequestHeader(filter=filter), RequestCode.AUTH_LIST_USER
        found = await self._of_each(
            await self._masters(),
            lambda address: self._body(
                address, code, header, "list of users", lambda body: decode_list(UserInfo, body)
            ),
        )
        return {broker: [_user(info) for info in infos] for broker, infos in sorted(found.items())}

    # --- rules ---

    @checked
    async def create_rules(
        self,
        user: str,
        rules: Sequence[AccessRule],
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Add rules to a user; each replaces an older one for the same resource. Raises ClientError."""
        header = CreateAclRequestHeader(subject=subject_of(user))
        await self._write_rules(RequestCode.AUTH_CREATE_ACL, header, user, rules, cluster, broker_name)

    @checked
    async def update_rules(
        self,
        user: str,
        rules: Sequence[AccessRule],
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Change rules of a user, each of them the rule for its resource. Raises ClientError."""
        header = UpdateAclRequestHeader(subject=subject_of(user))
        await self._write_rules(RequestCode.AUTH_UPDATE_ACL, header, user, rules, cluster, broker_name)

    async def _write_rules(
        self,
        code: RequestCode,
        header: CreateAclRequestHeader | UpdateAclRequestHeader,
        user: str,
        rules: Sequence[AccessRule],
        cluster: str | None,
        broker_name: str | None,
    ) -> None:
        if not rules:
            raise UsageError("rules is empty: give at least one AccessRule(...)")
        body = acl_of(user, rules).encode()
        masters = await self._masters(cluster, broker_name)
        await self._of_each(
            masters, lambda address: self._api.call(address, code, header, body, about=f"rules of {user}")
        )

    @checked
    async def delete_rules(
        self,
        user: str,
        resource: str | None = None,
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Delete a user's rule for a resource, or all rules of the user. Raises ClientError."""
        header = DeleteAclRequestHeader(subject=subject_of(user), resource=resource)
        masters, code = await self._masters(cluster, broker_name), RequestCode.AUTH_DELETE_ACL
        await self._of_each(
            masters, lambda address: self._api.call(address, code, header, about=f"rules of {user}")
        )

    @checked
    async def user_rules(self, user: str) -> dict[str, UserRules]:
        """Return the rules of a user by broker name; masters without rules are left out.

        Raises ClientError.
        """
        header, code = GetAclRequestHeader(subject=subject_of(user)), RequestCode.AUTH_GET_ACL
        found = await self._of_each(
            await self._masters(),
            lambda address: self._body(
                address,
                code,
                header,
                f"rules of {user}",
                lambda body: AclInfo.decode(body) if body else None,
            ),
        )
        return {broker: rules_of(info) for broker, info in sorted(found.items()) if info is not None}

    @checked
    async def rules(self, user_filter: str = "", resource_filter: str = "") -> dict[str, list[UserRules]]:
        """Return the rules of all users by broker name.

        The filters are parts of the names of users and resources. Raises ClientError.
        """
        header = ListAclsRequestHeader(subject_filter=user_filter, resource_filter=resource_filter)
        found = await self._of_each(
            await self._masters(),
            lambda address: self._body(
                address,
                RequestCode.AUTH_LIST_ACL,
                header,
                "list of rules",
                lambda body: decode_list(AclInfo, body),
            ),
        )
        return {broker: [rules_of(info) for info in infos] for broker, infos in sorted(found.items())}

    async def _users_named(self, name: str, masters: dict[str, str]) -> dict[str, UserInfo | None]:
        header, code = GetUserRequestHeader(username=name), RequestCode.AUTH_GET_USER
        return await self._of_each(
            masters,
            lambda address: self._body(
                address, code, header, f"user {name}", lambda body: UserInfo.decode(body) if body else None
            ),
        )


def _user(info: UserInfo) -> User:
    return User(
        name=info.username or "",
        is_super=info.type is UserType.SUPER,
        enabled=info.status is not UserStatus.DISABLE,
        password=info.password or None,
    )


def subject_of(user: str) -> str:
    """Return a user as the subject of rules."""
    return user if user.startswith(_SUBJECT) else _SUBJECT + user


def acl_of(user: str, rules: Sequence[AccessRule]) -> AclInfo:
    """Return rules of a user as brokers read them."""
    by_policy: dict[str, list[PolicyEntryInfo]] = {}
    for rule in rules:
        entry = PolicyEntryInfo(
            resource=rule.resource,
            actions=list(rule.actions),
            source_ips=list(rule.source_ips) or None,
            decision="Allow" if rule.allow else "Deny",
        )
        by_policy.setdefault(rule.policy, []).append(entry)
    return AclInfo(
        subject=subject_of(user),
        policies=[PolicyInfo(policy_type=policy, entries=entries) for policy, entries in by_policy.items()],
    )


def rules_of(info: AclInfo) -> UserRules:
    """Return the rules that a broker has of a user."""
    return UserRules(
        user=(info.subject or "").removeprefix(_SUBJECT),
        rules=tuple(
            AccessRule(
                resource=entry.resource or "",
                actions=tuple(entry.actions),
                allow=(entry.decision or "").lower() == "allow",
                source_ips=tuple(entry.source_ips or ()),
                policy=policy.policy_type or _DEFAULT_POLICY,
            )
            for policy in info.policies
            for entry in policy.entries
        ),
    )


def decode_list(kind: type[BodyT], body: bytes) -> list[BodyT]:
    """Return the items of a list; an empty body is an empty list. Raises BodyError, JsonError."""
    if not body:
        return []
    items = fastjson.loads(body)
    if not isinstance(items, list):
        raise BodyError(f"a list of {kind.__name__} is needed, not a {type(items).__name__}")
    return [kind.from_wire(item) for item in items]
