"""Settings of TLS: contradictions are refused, and each has the effect that it promises."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from rmq_remoting.daemon.configuration import Override, SettingsError, load
from rmq_remoting.daemon.settings import MASK
from rmq_remoting.daemon.tls_settings import ClientAuthentication, TlsSettings
from rmq_remoting.daemon.tls_sources import tls_defaults
from tests.support.rows import each_row

_CERTIFICATE = {"tls.server.certPath": "/c.pem"}
_ENFORCING = {"tls.server.mode": "enforcing"}
_TRUST = {"tls.server.trustCertPath": "/ca.pem"}


def _load(**keys: str) -> TlsSettings:
    return load(TlsSettings, overrides=[Override(key, value) for key, value in keys.items()]).settings


@each_row(
    ("keys", "problem"),
    [
        ({"tls.server.mode": "Enforcing"}, "must be one of disabled, permissive, enforcing"),
        ({"tls.server.need.client.auth": "maybe"}, "must be one of none, optional, require"),
        ({"useTLS": "yes"}, "must be true or false"),
        ({"tls.protocols": "TLSv1.1,TLSv1.2"}, "must be one or more of TLSv1.2, TLSv1.3"),
        ({"tls.protocols": ","}, "must be one or more of TLSv1.2, TLSv1.3"),
        ({"tls.server.keyPath": "/k.pem"}, "tls.server.keyPath is set without tls.server.certPath"),
        ({"tls.client.keyPath": "/k.pem"}, "tls.client.keyPath is set without tls.client.certPath"),
        ({**_ENFORCING, "tls.test.mode.enable": "false"}, "enforcing needs a certificate"),
        ({**_CERTIFICATE, "tls.server.authClient": "true"}, "authClient=true needs authorities to trust"),
        (
            {**_CERTIFICATE, "tls.server.need.client.auth": "require"},
            "need.client.auth=require needs authorities to trust",
        ),
        ({**_TRUST, "tls.server.authClient": "true"}, "authClient=true needs a certificate of the daemon"),
        ({"tls.client.authServer": "true"}, "authServer=true has no effect on connections in plain text"),
    ],
)
def test_what_cannot_be_meant_is_refused(keys: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        _load(**keys)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ClientAuthentication.NONE),
        ({**_TRUST}, ClientAuthentication.NONE),
        ({**_TRUST, "tls.server.need.client.auth": "optional"}, ClientAuthentication.OPTIONAL),
        ({**_TRUST, "tls.server.authClient": "true"}, ClientAuthentication.REQUIRE),
        (
            {**_TRUST, "tls.server.authClient": "true", "tls.server.need.client.auth": "optional"},
            ClientAuthentication.OPTIONAL,
        ),
    ],
)
def test_certificates_of_clients(keys: dict[str, str], expected: ClientAuthentication) -> None:
    assert _load(**_CERTIFICATE, **keys).client_authentication is expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, False),
        ({"tls.enable": "true"}, True),
        (_ENFORCING, True),
        ({**_ENFORCING, "useTLS": "false"}, False),
        ({"tls.enable": "true", "useTLS": ""}, True),
        ({"useTLS": "true"}, True),
    ],
)
def test_own_connections_use_tls(keys: dict[str, str], expected: bool) -> None:
    assert _load(**keys).connects_with_tls is expected


def test_versions() -> None:
    assert _load().tls_versions == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    only = ssl.TLSVersion.TLSv1_3
    assert _load(**{"tls.protocols": " TLSv1.3 "}).tls_versions == (only, only)


def test_an_enforced_self_signed_certificate_is_noted() -> None:
    notes = load(TlsSettings, overrides=[Override(*item) for item in _ENFORCING.items()]).notes
    assert notes == [
        "TLS is enforced with a self-signed certificate, which clients cannot verify: set "
        "tls.server.certPath and tls.server.keyPath"
    ]


def test_passwords_are_masked() -> None:
    key = "tls.server.keyPassword"
    configuration = load(TlsSettings, overrides=[Override(key, "opensesame")])
    assert configuration.to_properties()[key] == MASK
    assert load(TlsSettings).to_properties()[key] == ""
    (row,) = [row for row in configuration.describe() if row.info.key == key]
    assert row.current == MASK
    assert not configuration.update({key: MASK})
    with pytest.raises(SettingsError) as refused:
        configuration.update({key: "other"})
    assert str(refused.value).startswith(f"{key}={MASK}: takes effect only at start")
    assert "opensesame" not in str(refused.value)
    assert configuration.settings.tls_server_key_password == "opensesame"


# --- sources ---


def _defaults(given: list[Override], **environment: str) -> dict[str, str]:
    return {key: value for key, value, _ in tls_defaults(given, environment)}


def test_java_options_count_where_nothing_else_sets_the_key() -> None:
    options = "-Xmx1g -Dtls.server.mode=enforcing -Dtls.enable=true -Dtls.of.another.program=1 -DuseTLS=true"
    assert _defaults([], JAVA_OPT_EXT=options) == {"tls.server.mode": "enforcing", "tls.enable": "true"}
    given = [Override("tls.server.mode", "disabled")]
    settings = load(
        TlsSettings,
        overrides=given,
        defaults=lambda listed: tls_defaults(listed, {"JAVA_OPT_EXT": options}),
    ).settings
    assert (settings.tls_server_mode, settings.use_tls) == ("disabled", True)


def test_the_file_takes_precedence_over_java_options(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.mode=enforcing\nother=1\ntls.server.certPath=/c.pem\n")
    found = _defaults([Override("tls.config.file", str(file))], JAVA_OPT="-Dtls.server.mode=disabled")
    assert found == {"tls.server.mode": "enforcing", "tls.server.certPath": "/c.pem"}
    named = _defaults([], JAVA_OPT=f"-Dtls.config.file={file}")
    assert named["tls.server.mode"] == "enforcing"


def test_a_file_that_was_named_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tls.properties: cannot be read"):
        _defaults([Override("tls.config.file", str(tmp_path / "tls.properties"))])
