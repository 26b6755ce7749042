"""Settings of TLS, on a daemon's port and on its own connections: Apache RocketMQ 5.3.3's keys.

Source: TlsSystemConfig, TlsHelper, TlsMode and NettyClientConfig. Apache's servers read the keys `tls.…` from
system properties of the JVM and from the file `tls.config.file`. Here they may also stand in the daemon's own
file (`tls_sources.py`).
"""

from __future__ import annotations

import enum
import ssl
from pathlib import Path
from typing import Final

from ..protocol_detection import TlsMode
from .settings import JavaBoolean, JavaString, OptionalBoolean, OptionalPath, SettingsGroup, setting

DEFAULT_TLS_FILE: Final = "/etc/rocketmq/tls.properties"

_PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class ClientAuthentication(enum.StrEnum):
    """Whether a server asks its clients for a certificate (Netty's ClientAuth)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsSettings(SettingsGroup):
    """TLS"""

    tls_server_mode: TlsMode = setting(
        TlsMode.PERMISSIVE,
        "tls.server.mode",
        "permissive: TLS and plain text on the same port. enforcing: TLS only. disabled: plain text only.",
    )
    tls_test_mode: JavaBoolean = setting(
        True,
        "tls.test.mode.enable",
        "Serve TLS with a self-signed certificate, made in memory, unless tls.server.certPath is set. "
        "Such a certificate protects nothing against an attacker on the network path.",
    )
    tls_config_file: JavaString = setting(
        DEFAULT_TLS_FILE,
        "tls.config.file",
        "File with settings of TLS; read at start if it exists. Settings of the daemon's own file and of the "
        "command line take precedence over it.",
    )
    tls_server_cert_path: OptionalPath = setting(
        None, "tls.server.certPath", "Certificate of the daemon with its chain, in PEM."
    )
    tls_server_key_path: OptionalPath = setting(
        None,
        "tls.server.keyPath",
        "Key of this certificate, in PEM; empty: the certificate's file has the key.",
    )
    tls_server_key_password: JavaString = setting(
        "", "tls.server.keyPassword", "Password of this key.", secret=True
    )
    tls_server_need_client_auth: ClientAuthentication = setting(
        ClientAuthentication.NONE,
        "tls.server.need.client.auth",
        "Ask clients for a certificate: none, optional (one that is shown must be valid) or require.",
    )
    tls_server_auth_client: JavaBoolean = setting(
        False,
        "tls.server.authClient",
        "Verify the certificates of clients. With tls.server.need.client.auth=none a certificate is then "
        "required, while Apache's servers would not ask for any.",
    )
    tls_server_trust_cert_path: OptionalPath = setting(
        None, "tls.server.trustCertPath", "Authorities that sign the certificates of clients, in PEM."
    )
    tls_protocols: JavaString = setting(
        "TLSv1.2,TLSv1.3",
        "tls.protocols",
        "Versions of TLS, separated by commas, on the daemon's port and its own connections.",
        ours=True,
    )
    tls_ciphers: JavaString = setting(
        "",
        "tls.ciphers",
        "Cipher suites of TLS 1.2 by OpenSSL's names, separated by colons; empty: those of Python. Suites of "
        "TLS 1.3 are fixed.",
        ours=True,
    )
    use_tls: JavaBoolean = setting(
        False,
        "tls.enable",
        "Connect to other daemons with TLS; on if tls.server.mode is enforcing, unless useTLS is set.",
    )
    use_tls_of_client: OptionalBoolean = setting(
        None,
        "useTLS",
        "Connect to other daemons with TLS; overrides tls.enable.",
        default_text="false",
    )
    tls_client_cert_path: OptionalPath = setting(
        None, "tls.client.certPath", "Certificate that the daemon shows to other daemons, in PEM."
    )
    tls_client_key_path: OptionalPath = setting(
        None,
        "tls.client.keyPath",
        "Key of this certificate, in PEM; empty: the certificate's file has the key.",
    )
    tls_client_key_password: JavaString = setting(
        "", "tls.client.keyPassword", "Password of this key.", secret=True
    )
    tls_client_auth_server: JavaBoolean = setting(
        False,
        "tls.client.authServer",
        "Verify the certificates of other daemons (not their names, as Apache's servers).",
    )
    tls_client_trust_cert_path: OptionalPath = setting(
        None,
        "tls.client.trustCertPath",
        "Authorities that sign the certificates of other daemons, in PEM; empty: those of the system.",
    )

    @property
    def client_authentication(self) -> ClientAuthentication:
        """The certificates of clients that the daemon asks for."""
        if self.tls_server_auth_client and self.tls_server_need_client_auth is ClientAuthentication.NONE:
            return ClientAuthentication.REQUIRE
        return self.tls_server_need_client_auth

    @property
    def connects_with_tls(self) -> bool:
        """Whether the daemon's own connections use TLS (Apache RocketMQ 5.3.3, NettyClientConfig.useTLS)."""
        if self.use_tls_of_client is not None:
            return self.use_tls_of_client
        return self.use_tls or self.tls_server_mode is TlsMode.ENFORCING

    @property
    def tls_versions(self) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
        """The lowest and the highest version of TLS."""
        versions = sorted(_PROTOCOLS[name] for name in _names(self.tls_protocols))
        return versions[0], versions[-1]

    @property
    def tls_files(self) -> list[Path]:
        """The files of the daemon's port, which may change while it runs."""
        paths = self.tls_server_cert_path, self.tls_server_key_path, self.tls_server_trust_cert_path
        return [path for path in paths if path is not None]

    def resolve(self) -> list[str]:
        """Check that the settings do not contradict each other."""
        unknown = [name for name in _names(self.tls_protocols) if name not in _PROTOCOLS]
        if unknown or not _names(self.tls_protocols):
            raise ValueError(
                f"tls.protocols={self.tls_protocols}: must be one or more of {', '.join(_PROTOCOLS)}, "
                "separated by commas"
            )
        self._check_server()
        self._check_client()
        return [*super().resolve(), *self._server_notes()]

    def _check_server(self) -> None:
        has_certificate = self.tls_server_cert_path is not None
        if not has_certificate and self.tls_server_key_path is not None:
            raise ValueError("tls.server.keyPath is set without tls.server.certPath: set both")
        if self.tls_server_mode is TlsMode.DISABLED:
            return
        if self.tls_server_mode is TlsMode.ENFORCING and not has_certificate and not self.tls_test_mode:
            raise ValueError(
                "tls.server.mode=enforcing needs a certificate: set tls.server.certPath and "
                "tls.server.keyPath"
            )
        if self.client_authentication is ClientAuthentication.NONE:
            return
        wanted = (
            "tls.server.authClient=true"
            if self.tls_server_auth_client
            else f"tls.server.need.client.auth={self.tls_server_need_client_auth}"
        )
        if self.tls_server_trust_cert_path is None:
            raise ValueError(f"{wanted} needs authorities to trust: set tls.server.trustCertPath")
        if not has_certificate:
            raise ValueError(f"{wanted} needs a certificate of the daemon: set tls.server.certPath")

    def _check_client(self) -> None:
        if self.tls_client_cert_path is None and self.tls_client_key_path is not None:
            raise ValueError("tls.client.keyPath is set without tls.client.certPath: set both")
        if not self.connects_with_tls and self.tls_client_auth_server:
            raise ValueError(
                "tls.client.authServer=true has no effect on connections in plain text: set tls.enable=true"
            )

    def _server_notes(self) -> list[str]:
        notes: list[str] = []
        if Path(self.tls_config_file).is_file():
            notes.append(f"settings of TLS are read from {self.tls_config_file}, too (tls.config.file)")
        if self.tls_server_mode is TlsMode.ENFORCING and self.tls_server_cert_path is None:
            notes.append(
                "TLS is enforced with a self-signed certificate, which clients cannot verify: set "
                "tls.server.certPath and tls.server.keyPath"
            )
        return notes


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
