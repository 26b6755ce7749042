"""Where the proxy finds users and their rules.

In the broker's process they are the broker's own. A proxy of a cluster asks one of the brokers, and caches
the answers, as Apache RocketMQ 5.3.3 does (ClusterMetadataService).
"""

from __future__ import annotations

from typing import Final, Protocol

from rmq_client.errors import ClientError, TopicNotFound, readable
from rmq_remoting.bodies.access_control import AclInfo, UserInfo, UserStatus, UserType
from rmq_remoting.codes import RequestCode
from rmq_remoting.daemon.access.policies import Acl, rules_of
from rmq_remoting.daemon.access.refusal import PolicyProblem
from rmq_remoting.daemon.access.tables import AccessTables
from rmq_remoting.daemon.access.users import User
from rmq_remoting.headers.access_control import GetAclRequestHeader, GetUserRequestHeader

from ..access_settings import ProxyAccessSettings
from ..brokers import Brokers
from ..refreshing_cache import RefreshingCache

_NO_PASSWORD: Final = (
    "a broker shows no passwords: innerClientAuthenticationCredentials must be the keys of a super user"
)


class Directory(Protocol):
    """Users and rules by name. Belongs to one loop."""

    async def user(self, name: str) -> User | None:
        """Return a user; None for an unknown name. Raises ClientError."""

    async def acl(self, name: str) -> Acl | None:
        """Return the rules of a user; None without any. Raises ClientError."""

    async def stop(self) -> None:
        """Cancel the requests in flight."""


class OwnDirectory:
    """The users and rules of the broker of this process."""

    def __init__(self, tables: AccessTables) -> None:
        self._tables = tables

    async def user(self, name: str) -> User | None:
        """Return a user; None for an unknown name."""
        return self._tables.users.get(name)

    async def acl(self, name: str) -> Acl | None:
        """Return the rules of a user; None without any."""
        return self._tables.acls.get(name)

    async def stop(self) -> None:
        """Do nothing: there are no requests."""


class ClusterDirectory:
    """The users and rules of a cluster's brokers, which all have the same."""

    def __init__(self, brokers: Brokers, cluster: str, settings: ProxyAccessSettings) -> None:
        self._brokers = brokers
        self._cluster = cluster
        self._users = RefreshingCache(
            "user",
            self._load_user,
            refresh_seconds=settings.user_refresh_seconds,
            expire_seconds=settings.user_expired_seconds,
            most=settings.user_max_num,
        )
        self._acls = RefreshingCache(
            "rules of user",
            self._load_acl,
            refresh_seconds=settings.acl_refresh_seconds,
            expire_seconds=settings.acl_expired_seconds,
            most=settings.acl_max_num,
        )

    async def user(self, name: str) -> User | None:
        """Return a user; None for an unknown name. Raises ClientError."""
        return await self._users.get(name)

    async def acl(self, name: str) -> Acl | None:
        """Return the rules of a user; None without any. Raises ClientError."""
        return await self._acls.get(name)

    async def stop(self) -> None:
        """Cancel the requests in flight."""
        await self._users.stop()
        await self._acls.stop()

    async def _load_user(self, name: str) -> User | None:
        fields = GetUserRequestHeader(username=name).encode()
        address, body = await self._asked(RequestCode.AUTH_GET_USER, fields, f"user {name}")
        if not body:
            return None
        with readable(address, f"user {name}"):
            info = UserInfo.decode(body)
            kind, state = info.type or UserType.NORMAL, info.status or UserStatus.ENABLE
        if not info.password:
            raise ClientError(f"user {name} cannot be checked: {_NO_PASSWORD}")
        return User(name, info.password, kind, state)

    async def _load_acl(self, name: str) -> Acl | None:
        fields = GetAclRequestHeader(subject=f"User:{name}").encode()
        address, body = await self._asked(RequestCode.AUTH_GET_ACL, fields, f"rules of user {name}")
        if not body:
            return None
        acl = Acl(name)
        try:
            with readable(address, f"rules of user {name}"):
                info = AclInfo.decode(body)
            for kind, rules in rules_of(info):
                acl = acl.with_rules(kind, rules)
        except PolicyProblem as error:
            raise ClientError(f"the rules of user {name} cannot be used: {error}") from error
        return acl

    async def _asked(self, code: RequestCode, fields: dict[str, str], about: str) -> tuple[str, bytes]:
        # Each broker registers a topic of its cluster's name.
        address = await self._brokers.any_address(self._cluster)
        if address is None:
            raise TopicNotFound(f"cluster {self._cluster} has no broker (rocketMQClusterName)")
        response = await self._brokers.call(address, code, fields, about=about)
        return address, bytes(response.body)
