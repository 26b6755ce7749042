"""Settings of access control in the proxy: Apache RocketMQ 5.3.3's keys (AuthConfig and ProxyConfig).

Apache's proxy reads AuthConfig from its rmq-proxy.json, too. The users and their rules are the brokers'.
"""

from __future__ import annotations

from typing import Final

from rmq_remoting.bodies.access_control import AccessKeys
from rmq_remoting.daemon.settings import Count, JavaBoolean, JavaString, Seconds, SettingsGroup, setting
from rmq_remoting.errors import BodyError

from .protocol import service_pb2 as rpc

_AUTH: Final = "org.apache.rocketmq.auth"
_PROXY_AUTH: Final = "org.apache.rocketmq.proxy.auth"
# The classes of Apache's that do what this proxy does; each key may also be empty.
_CLASSES: Final = {
    "authenticationProvider": (f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (f"{_PROXY_AUTH}.ProxyAuthenticationMetadataProvider",),
    "authenticationStrategy": (
        f"{_AUTH}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_AUTH}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (f"{_PROXY_AUTH}.ProxyAuthorizationMetadataProvider",),
    "authorizationStrategy": (
        f"{_AUTH}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_AUTH}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}
_REQUESTS: Final = frozenset(
    method.input_type.full_name for method in rpc.DESCRIPTOR.services_by_name["MessagingService"].methods
)


class ProxyAccessSettings(SettingsGroup):
    """Access control

    Users and their rules are those of the brokers. In the broker's process its own settings decide.
    """

    authentication_enabled: JavaBoolean = setting(
        False,
        "authenticationEnabled",
        "Serve only clients that sign their calls with the name and password of a known user.",
    )
    authentication_provider: JavaString = setting(
        "", "authenticationProvider", "Apache's class, DefaultAuthenticationProvider, or empty."
    )
    authentication_metadata_provider: JavaString = setting(
        "",
        "authenticationMetadataProvider",
        "Apache's class, ProxyAuthenticationMetadataProvider, or empty: the brokers have the users.",
    )
    authentication_strategy: JavaString = setting(
        "",
        "authenticationStrategy",
        "Apache's classes, StatelessAuthenticationStrategy or StatefulAuthenticationStrategy, or empty. With "
        "all of them every signature is checked.",
    )
    authentication_whitelist: JavaString = setting(
        "",
        "authenticationWhitelist",
        "Requests that need no signature, separated by commas: `apache.rocketmq.v2.QueryRouteRequest`.",
    )
    inner_client_authentication_credentials: JavaString = setting(
        "",
        "innerClientAuthenticationCredentials",
        "Access keys of the proxy's requests to brokers and name servers: "
        '{"accessKey":"…","secretKey":"…"}. With access control in the brokers these are a super user\'s.',
        secret=True,
    )
    enable_acl_rpc_hook_for_cluster_mode: JavaBoolean = setting(
        False,
        "enableAclRpcHookForClusterMode",
        "Sign the requests to brokers. They are signed whenever innerClientAuthenticationCredentials is set; "
        "true without them is refused.",
    )
    authorization_enabled: JavaBoolean = setting(
        False,
        "authorizationEnabled",
        "Let users do only what their rules allow; super users may do everything. Needs "
        "authenticationEnabled.",
    )
    authorization_provider: JavaString = setting(
        "", "authorizationProvider", "Apache's class, DefaultAuthorizationProvider, or empty."
    )
    authorization_metadata_provider: JavaString = setting(
        "",
        "authorizationMetadataProvider",
        "Apache's class, ProxyAuthorizationMetadataProvider, or empty: the brokers have the rules.",
    )
    authorization_strategy: JavaString = setting(
        "",
        "authorizationStrategy",
        "Apache's classes, StatelessAuthorizationStrategy or StatefulAuthorizationStrategy, or empty. With "
        "all of them every call is checked.",
    )
    authorization_whitelist: JavaString = setting(
        "", "authorizationWhitelist", "Requests that need no rights, separated by commas."
    )
    init_authentication_user: JavaString = setting(
        "",
        "initAuthenticationUser",
        "Accepted without effect: brokers create users, a proxy does not.",
        secret=True,
    )
    user_expired_seconds: Seconds = setting(
        300, "userCacheExpiredSeconds", "Time after its last use until a user is forgotten."
    )
    user_refresh_seconds: Seconds = setting(
        20, "userCacheRefreshSeconds", "Age at which a user is asked for again."
    )
    user_max_num: Count = setting(20000, "userCacheMaxNum", "Most users in the cache.")
    acl_expired_seconds: Seconds = setting(
        300, "aclCacheExpiredSeconds", "Time after its last use until the rules of a user are forgotten."
    )
    acl_refresh_seconds: Seconds = setting(
        20, "aclCacheRefreshSeconds", "Age at which the rules of a user are asked for again."
    )
    acl_max_num: Count = setting(20000, "aclCacheMaxNum", "Most users whose rules are in the cache.")

    @property
    def authentication_whitelist_names(self) -> frozenset[str]:
        """The requests that need no signature."""
        return frozenset(_items(self.authentication_whitelist))

    @property
    def authorization_whitelist_names(self) -> frozenset[str]:
        """The requests that need no rights."""
        return frozenset(_items(self.authorization_whitelist))

    @property
    def own_keys(self) -> AccessKeys | None:
        """The access keys of `innerClientAuthenticationCredentials`; None without any."""
        text = self.inner_client_authentication_credentials
        return AccessKeys.decode(text.encode()) if text else None

    def resolve(self) -> list[str]:
        """Check classes, white lists and keys. Messages contain no passwords. Raises ValueError."""
        values = {info.alias: getattr(self, name) for name, info in type(self).model_fields.items()}
        for key, accepted in _CLASSES.items():
            if values[key] and values[key] not in accepted:
                raise ValueError(f"{key}={values[key]}: must be empty or {' or '.join(accepted)}")
        for key in ("authenticationWhitelist", "authorizationWhitelist"):
            _check_requests(key, values[key])
        self._check_keys()
        if self.authorization_enabled and not self.authentication_enabled:
            raise ValueError(
                "authorizationEnabled=true needs to know the users: set authenticationEnabled=true, too"
            )
        notes = super().resolve()
        if self.init_authentication_user:
            notes.append("initAuthenticationUser has no effect in a proxy: the brokers have the users")
        return notes

    def _check_keys(self) -> None:
        try:
            keys = self.own_keys
            if keys is not None and not (keys.access_key and keys.secret_key):
                raise BodyError("access key and secret key are needed")
        except BodyError as error:
            raise ValueError(
                'innerClientAuthenticationCredentials must be {"accessKey":"…","secretKey":"…"} in JSON'
            ) from error


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_requests(key: str, text: str) -> None:
    for item in _items(text):
        if item not in _REQUESTS and not item.isdigit():  # the codes are those of 4.x clients
            raise ValueError(
                f"{key}: {item!r:.100} is no request of {rpc.DESCRIPTOR.package}: "
                f"name one such as {rpc.QueryRouteRequest.DESCRIPTOR.full_name}"
            )
