"""Settings of TLS that are the gRPC port's own: Apache RocketMQ 5.3.3's keys (ProxyConfig)."""

from __future__ import annotations

import os
from pathlib import Path

from rmq_remoting.daemon.settings import JavaBoolean, OptionalPath, SettingsGroup, setting
from rmq_remoting.daemon.tls_settings import ClientAuthentication, TlsSettings
from rmq_remoting.protocol_detection import TlsMode


class ProxyTlsSettings(SettingsGroup):
    """TLS of the gRPC port"""

    tls_test_mode_enable: JavaBoolean = setting(
        True,
        "tlsTestModeEnable",
        "Make a self-signed certificate in memory if tls.server.mode asks for TLS and tlsCertPath is not "
        "set. false needs a certificate.",
    )
    tls_key_path: OptionalPath = setting(
        None,
        "tlsKeyPath",
        "Key of the certificate, in PEM. Its default counts with tlsTestModeEnable=false; otherwise "
        "tls.server.keyPath is used.",
        default_text="${ROCKETMQ_HOME}/conf/tls/rocketmq.key",
    )
    tls_cert_path: OptionalPath = setting(
        None,
        "tlsCertPath",
        "Certificate of the gRPC port with its chain, in PEM. Its default counts with "
        "tlsTestModeEnable=false; otherwise tls.server.certPath is used.",
        default_text="${ROCKETMQ_HOME}/conf/tls/rocketmq.crt",
    )


def effective_tls(daemon: TlsSettings, own: ProxyTlsSettings) -> TlsSettings:
    """Return the settings of TLS of the gRPC port: the daemon's, with those that are the port's own.

    Without a certificate and an explicit `tls.server.mode`, the port serves plain text alone. Raises
    ValueError for settings that gRPC cannot follow.
    """
    values = {name: getattr(daemon, name) for name in TlsSettings.model_fields}
    certificate, key = own.tls_cert_path, own.tls_key_path
    if certificate is None and not own.tls_test_mode_enable and daemon.tls_server_cert_path is None:
        home = os.environ.get("ROCKETMQ_HOME", "")
        if home:
            folder = Path(home) / "conf" / "tls"
            certificate, key = folder / "rocketmq.crt", key or folder / "rocketmq.key"
    if certificate is not None:
        values["tls_server_cert_path"], values["tls_server_key_path"] = certificate, key
        if key is None:
            values["tls_server_key_path"] = daemon.tls_server_key_path
    elif key is not None:
        raise ValueError(f"tlsKeyPath={key} is set without tlsCertPath: set both")
    values["tls_test_mode"] = daemon.tls_test_mode and own.tls_test_mode_enable
    mode = daemon.tls_server_mode
    has_certificate = values["tls_server_cert_path"] is not None
    if mode is not TlsMode.DISABLED and not has_certificate and not values["tls_test_mode"]:
        if mode is TlsMode.ENFORCING or not own.tls_test_mode_enable:
            raise ValueError(
                "tlsTestModeEnable=false needs a certificate: set tlsCertPath and tlsKeyPath, or "
                "tls.server.mode=disabled for plain text alone"
            )
        mode = TlsMode.DISABLED
    is_chosen = has_certificate or "tls_server_mode" in daemon.model_fields_set
    if mode is TlsMode.PERMISSIVE and not is_chosen:
        mode = TlsMode.DISABLED
    values["tls_server_mode"] = mode
    effective = TlsSettings.model_construct(**values)
    if mode is not TlsMode.DISABLED:
        _check(effective)
    return effective


def _check(settings: TlsSettings) -> None:
    """Refuse protection that gRPC's library cannot give. Raises ValueError."""
    defaults = TlsSettings.model_fields
    if settings.tls_ciphers or settings.tls_protocols != defaults["tls_protocols"].default:
        raise ValueError(
            "the gRPC port cannot follow tls.ciphers and tls.protocols, since its library chooses among TLS "
            "1.2 and 1.3: remove them"
        )
    if settings.client_authentication is ClientAuthentication.OPTIONAL:
        raise ValueError(
            "the gRPC port cannot follow tls.server.need.client.auth=optional: set none or require"
        )
    if settings.client_authentication is ClientAuthentication.REQUIRE and not (
        settings.tls_server_trust_cert_path and settings.tls_server_cert_path
    ):
        raise ValueError(
            "certificates of clients need tls.server.trustCertPath, and a certificate of the gRPC port: set "
            "tlsCertPath"
        )
