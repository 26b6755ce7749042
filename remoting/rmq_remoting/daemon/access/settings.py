"""Settings of access control: Apache RocketMQ 5.3.3's keys (AuthConfig)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...bodies.access_control import AccessKeys, UserInfo
from ...errors import BodyError
from ..settings import JavaBoolean, JavaString, SettingsGroup, setting

# The keys of Apache's AuthConfig (`known_keys.py`).
ACCESS_TABLE: Final = Path(__file__).with_name("apache_access_settings.tsv")

_AUTH: Final = "org.apache.rocketmq.auth"
_CODE_DIGITS: Final = 9
_SHORT_CODE_MASK: Final = 0xFFFF


class AccessSettings(SettingsGroup):
    """Access control"""

    authentication_enabled: JavaBoolean = setting(
        False,
        "authenticationEnabled",
        "Serve only clients that sign their requests with the name and password of a known user.",
    )
    authentication_provider: JavaString = setting(
        "", "authenticationProvider", "Apache's class, DefaultAuthenticationProvider, or empty."
    )
    authentication_metadata_provider: JavaString = setting(
        "",
        "authenticationMetadataProvider",
        "Apache's class, LocalAuthenticationMetadataProvider, or empty: users are in the file `users.json`.",
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
        "Request codes that need no signature, separated by commas.",
    )
    init_authentication_user: JavaString = setting(
        "",
        "initAuthenticationUser",
        'Super user that is created at start if there is none of this name: {"username":"…","password":"…"}.',
        secret=True,
    )
    inner_client_authentication_credentials: JavaString = setting(
        "",
        "innerClientAuthenticationCredentials",
        'Access keys of the daemon\'s own connections: {"accessKey":"…","secretKey":"…"}. A super user of '
        "this name is created at start if there is none.",
        secret=True,
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
        "Apache's class, LocalAuthorizationMetadataProvider, or empty: rules are in the file `acls.json`.",
    )
    authorization_strategy: JavaString = setting(
        "",
        "authorizationStrategy",
        "Apache's classes, StatelessAuthorizationStrategy or StatefulAuthorizationStrategy, or empty: every "
        "request is checked, and decisions are cached until rules change.",
    )
    authorization_whitelist: JavaString = setting(
        "", "authorizationWhitelist", "Request codes that need no rights, separated by commas."
    )

    @property
    def authentication_whitelist_codes(self) -> frozenset[int]:
        """The codes of the white list."""
        return _codes(self.authentication_whitelist)

    @property
    def authorization_whitelist_codes(self) -> frozenset[int]:
        """The codes that need no rights."""
        return _codes(self.authorization_whitelist)

    @property
    def init_user(self) -> UserInfo | None:
        """The user of `initAuthenticationUser`; None without one."""
        text = self.init_authentication_user
        return UserInfo.decode(text.encode()) if text else None

    @property
    def own_keys(self) -> AccessKeys | None:
        """The access keys of `innerClientAuthenticationCredentials`; None without any."""
        text = self.inner_client_authentication_credentials
        return AccessKeys.decode(text.encode()) if text else None

    def resolve(self) -> list[str]:
        """Check providers, white list and users. Messages contain no passwords."""
        self._check_classes()
        _check_codes("authenticationWhitelist", self.authentication_whitelist)
        _check_codes("authorizationWhitelist", self.authorization_whitelist)
        self._check_users()
        if self.authorization_enabled and not self.authentication_enabled:
            raise ValueError(
                "authorizationEnabled=true needs to know the users: set authenticationEnabled=true, too"
            )
        return super().resolve()

    def _check_classes(self) -> None:
        _check_class(
            "authenticationProvider",
            self.authentication_provider,
            "authentication.provider.DefaultAuthenticationProvider",
        )
        _check_class(
            "authenticationMetadataProvider",
            self.authentication_metadata_provider,
            "authentication.provider.LocalAuthenticationMetadataProvider",
        )
        _check_class(
            "authenticationStrategy",
            self.authentication_strategy,
            "authentication.strategy.StatelessAuthenticationStrategy",
            "authentication.strategy.StatefulAuthenticationStrategy",
        )
        _check_class(
            "authorizationProvider",
            self.authorization_provider,
            "authorization.provider.DefaultAuthorizationProvider",
        )
        _check_class(
            "authorizationMetadataProvider",
            self.authorization_metadata_provider,
            "authorization.provider.LocalAuthorizationMetadataProvider",
        )
        _check_class(
            "authorizationStrategy",
            self.authorization_strategy,
            "authorization.strategy.StatelessAuthorizationStrategy",
            "authorization.strategy.StatefulAuthorizationStrategy",
        )

    def _check_users(self) -> None:
        try:
            user = self.init_user
            if user is not None and not (user.username and user.password):
                raise BodyError("username and password are needed")
        except BodyError as error:
            raise ValueError(
                'initAuthenticationUser must be {"username":"…","password":"…"} in JSON'
            ) from error
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


def _codes(text: str) -> frozenset[int]:
    """Return the codes of a list; those over 16 bits also as binary headers have them."""
    codes = [int(item) for item in _items(text)]
    return frozenset(codes) | {code & _SHORT_CODE_MASK for code in codes if code > _SHORT_CODE_MASK}


def _check_codes(key: str, text: str) -> None:
    for item in _items(text):
        if not (item.isascii() and item.isdigit() and len(item) <= _CODE_DIGITS):
            raise ValueError(f"{key}: {item!r:.100} is no request code: separate numbers by commas")


def _check_class(key: str, value: str, *names: str) -> None:
    accepted = [f"{_AUTH}.{name}" for name in names]
    if value and value not in accepted:
        raise ValueError(f"{key}={value}: must be empty or {' or '.join(accepted)}")
