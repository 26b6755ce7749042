"""Settings of the SDK as options `rocketmq.*`, shared by reading and writing."""

from __future__ import annotations

from dataclasses import fields
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
from .parsing import Mode, OptionGroup, option, option_name

_DEFAULTS: Final = ClientSettings()
_MAX_INT: Final = 2**31 - 1


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


class SdkOptions(OptionGroup):
    """Cluster"""

    name_servers: NameServers = option(
        "rocketmq.namesrv.addr",
        "Name servers of the cluster. Driver and tasks find the brokers through them.",
    )
    serialization: SerializationOption = option(
        "rocketmq.serialize.type",
        "Serialization of request headers. JSON is for servers that support nothing else.",
        Serialization.BINARY,
        default_text="ROCKETMQ",
    )
    request_timeout_ms: DurationMs = option(
        "rocketmq.requestTimeout",
        "Timeout of a request other than a pull.",
        _ms(_DEFAULTS.request_timeout_seconds),
        default_text=f"{_DEFAULTS.request_timeout_seconds:g}s",
    )
    connect_timeout_ms: DurationMs = option(
        "rocketmq.connectTimeout",
        "Timeout of opening a connection.",
        _ms(_DEFAULTS.connect_timeout_seconds),
        default_text=f"{_DEFAULTS.connect_timeout_seconds:g}s",
    )
    heartbeat_ms: DurationMs = option(
        "rocketmq.heartbeatInterval",
        "Interval of heartbeats to brokers.",
        _ms(_DEFAULTS.heartbeat_seconds),
        default_text=f"{_DEFAULTS.heartbeat_seconds:g}s",
    )
    route_refresh_ms: DurationMs = option(
        "rocketmq.routeRefreshInterval",
        "Interval at which the routes of topics (brokers and queues) are refreshed.",
        _ms(_DEFAULTS.route_refresh_seconds),
        default_text=f"{_DEFAULTS.route_refresh_seconds:g}s",
    )
    max_unpacked_body_bytes: Annotated[int, whole_number(1, _MAX_INT, "bytes")] = option(
        "rocketmq.maxUnpackedBodyBytes",
        "Maximum size of a body after decompression; a larger one is an error.",
        _DEFAULTS.max_unpacked_body_bytes,
    )

    access_key: MaybeKey = option(
        "rocketmq.accessKey",
        "Access key (user name) for servers with access control. Every request is signed.",
        None,
    )
    secret_key: MaybeKey = option(
        "rocketmq.secretKey", "Secret key (password) that signs requests.", None, secret=True
    )
    security_token: MaybeKey = option(
        "rocketmq.securityToken", "Security token of temporary keys.", None, secret=True
    )
    tls: Flag = option("rocketmq.tls.enable", "Encrypts the connections to name servers and brokers.", False)
    tls_ca_file: MaybeText = option(
        "rocketmq.tls.caFile",
        "PEM file with trusted certificates, used instead of the system's. As the other files, it "
        "must exist on the driver and on every worker.",
        None,
    )
    tls_cert_file: MaybeText = option(
        "rocketmq.tls.certFile",
        "PEM file with the client certificate, for servers that require one.",
        None,
    )
    tls_key_file: MaybeText = option(
        "rocketmq.tls.keyFile",
        "PEM file with the key of that certificate. Without it, the key is in `certFile`.",
        None,
    )
    tls_key_password: MaybeText = option(
        "rocketmq.tls.keyPassword", "Password of that key.", None, secret=True
    )
    tls_server_name: MaybeText = option(
        "rocketmq.tls.serverName",
        "Host name in the servers' certificates, if it differs from the host of their addresses.",
        None,
    )
    tls_verify: VerificationOption = option(
        "rocketmq.tls.verify",
        "Verification of servers: `full` checks certificate and host name, `certificate` the certificate "
        "only, `none` nothing.",
        "full",
    )

    def check(self, mode: Mode) -> None:
        """Reject an incomplete pair of keys, and TLS settings without TLS.

        Otherwise, requests could be sent unsigned or unencrypted by mistake.
        """
        super().check(mode)
        if (self.access_key is None) != (self.secret_key is None):
            missing, given = ("access", "secret") if self.access_key is None else ("secret", "access")
            raise OptionError(f"rocketmq.{missing}Key", None, f"given, because rocketmq.{given}Key is")
        if self.security_token is not None and self.access_key is None:
            raise OptionError("rocketmq.accessKey", None, "given, because rocketmq.securityToken is")
        if not self.tls:
            for declared in fields(self):
                name = declared.name
                if name.startswith("tls_") and getattr(self, name) != declared.default:
                    given = option_name(type(self), name)
                    raise OptionError("rocketmq.tls.enable", None, f"true, because {given} is given")
        elif self.tls_ca_file is not None and self.tls_verify == "none":
            raise OptionError("rocketmq.tls.caFile", None, "left out, because rocketmq.tls.verify is none")
        elif self.tls_cert_file is None and (self.tls_key_file or self.tls_key_password):
            raise OptionError("rocketmq.tls.certFile", None, "given, because its key is")

    @property
    def client_settings(self) -> ClientSettings:
        """The options as settings of the SDK."""
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
