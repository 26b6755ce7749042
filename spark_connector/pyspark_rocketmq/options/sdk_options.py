"""Settings of the SDK as options: `rocketmq.*`. All that a driver and its executors know of the cluster."""

from __future__ import annotations

from typing import Annotated, Final

from rmq_client import ClientSettings, Credentials, TlsSettings
from rmq_remoting.command import Serialization

from ..errors import OptionError
from .option_types import (
    DurationMs,
    Flag,
    MaybeKey,
    MaybeText,
    NameServers,
    SerializationOption,
    VerificationOption,
    whole_number,
)
from .parsing import Mode, OptionGroup, option

_DEFAULTS: Final = ClientSettings()
_MAX_INT: Final = 2**31 - 1


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


class SdkOptions(OptionGroup):
    """The cluster"""

    name_servers: NameServers = option(
        "rocketmq.namesrv.addr",
        "Name servers of the cluster; everything else is found out from them, on the driver and in tasks.",
    )
    serialization: SerializationOption = option(
        "rocketmq.serialize.type",
        "How headers of requests are written; JSON for servers that know nothing else.",
        Serialization.BINARY,
        default_text="ROCKETMQ",
    )
    request_timeout_ms: DurationMs = option(
        "rocketmq.requestTimeout",
        "How long one request other than a pull may take.",
        _ms(_DEFAULTS.request_timeout_seconds),
        default_text=f"{_DEFAULTS.request_timeout_seconds:g}s",
    )
    connect_timeout_ms: DurationMs = option(
        "rocketmq.connectTimeout",
        "How long connecting may take.",
        _ms(_DEFAULTS.connect_timeout_seconds),
        default_text=f"{_DEFAULTS.connect_timeout_seconds:g}s",
    )
    heartbeat_ms: DurationMs = option(
        "rocketmq.heartbeatInterval",
        "Time between heartbeats to brokers.",
        _ms(_DEFAULTS.heartbeat_seconds),
        default_text=f"{_DEFAULTS.heartbeat_seconds:g}s",
    )
    route_refresh_ms: DurationMs = option(
        "rocketmq.routeRefreshInterval",
        "How old what is known of brokers and their queues may become.",
        _ms(_DEFAULTS.route_refresh_seconds),
        default_text=f"{_DEFAULTS.route_refresh_seconds:g}s",
    )
    max_unpacked_body_bytes: Annotated[int, whole_number(1, _MAX_INT, "bytes")] = option(
        "rocketmq.maxUnpackedBodyBytes",
        "A compressed body that would become larger is an error.",
        _DEFAULTS.max_unpacked_body_bytes,
    )

    access_key: MaybeKey = option(
        "rocketmq.accessKey",
        "The access key (the user's name) for servers with access control; every request is signed.",
        None,
    )
    secret_key: MaybeKey = option(
        "rocketmq.secretKey", "The secret key (the user's password) to sign with.", None, secret=True
    )
    security_token: MaybeKey = option(
        "rocketmq.securityToken", "The token that goes with temporary keys.", None, secret=True
    )
    tls: Flag = option("rocketmq.tls.enable", "Encrypt the connections to name servers and brokers.", False)
    tls_ca_file: MaybeText = option(
        "rocketmq.tls.caFile",
        "A PEM file, on the driver and on every worker: certificates to trust, in place of the system's.",
        None,
    )
    tls_cert_file: MaybeText = option(
        "rocketmq.tls.certFile",
        "A PEM file there with the certificate of this client, for servers that ask for one.",
        None,
    )
    tls_key_file: MaybeText = option(
        "rocketmq.tls.keyFile", "A PEM file there with its key; without it, the key is in `certFile`.", None
    )
    tls_key_password: MaybeText = option(
        "rocketmq.tls.keyPassword", "The password of that key.", None, secret=True
    )
    tls_server_name: MaybeText = option(
        "rocketmq.tls.serverName",
        "Whom the servers' certificates are for, where that is not the host of their addresses.",
        None,
    )
    tls_verify: VerificationOption = option(
        "rocketmq.tls.verify",
        "What is checked of servers: certificate and host name, the certificate only, or nothing.",
        "full",
    )

    def check(self, mode: Mode) -> None:
        """Refuse half a pair of keys, and settings of TLS without TLS: nothing must be sent in the open
        by mistake.
        """
        super().check(mode)
        if (self.access_key is None) != (self.secret_key is None):
            missing, given = ("access", "secret") if self.access_key is None else ("secret", "access")
            raise OptionError(f"rocketmq.{missing}Key", None, f"given, as rocketmq.{given}Key is")
        if self.security_token is not None and self.access_key is None:
            raise OptionError("rocketmq.accessKey", None, "given, as rocketmq.securityToken is")
        if not self.tls:
            for name, field in type(self).model_fields.items():
                if name.startswith("tls_") and getattr(self, name) != field.default:
                    raise OptionError("rocketmq.tls.enable", None, f"true, as {field.alias} is given")
        elif self.tls_ca_file is not None and self.tls_verify == "none":
            raise OptionError("rocketmq.tls.caFile", None, "left out, as rocketmq.tls.verify is none")
        elif self.tls_cert_file is None and (self.tls_key_file or self.tls_key_password):
            raise OptionError("rocketmq.tls.certFile", None, "given, as its key is")

    @property
    def client_settings(self) -> ClientSettings:
        """The SDK's own settings object."""
        return ClientSettings(
            serialization=self.serialization,
            request_timeout_seconds=self.request_timeout_ms / 1000,
            connect_timeout_seconds=self.connect_timeout_ms / 1000,
            heartbeat_seconds=self.heartbeat_ms / 1000,
            route_refresh_seconds=self.route_refresh_ms / 1000,
            max_unpacked_body_bytes=self.max_unpacked_body_bytes,
            credentials=self._credentials,
            tls=self._tls_settings if self.tls else False,
        )

    @property
    def _credentials(self) -> Credentials | None:
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)

    @property
    def _tls_settings(self) -> TlsSettings:
        return TlsSettings(
            ca_file=self.tls_ca_file,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            server_name=self.tls_server_name,
            verify=self.tls_verify,
        )
