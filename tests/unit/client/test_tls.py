"""TLS settings: the resulting contexts of the standard library, and refusals."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from rmq_client import ClientSettings, Producer, TlsSettings, UsageError
from rmq_client.tls import client_tls
from tests.support.certificates import Certificate, make_certificate


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate with an encrypted key."""
    return make_certificate(tmp_path_factory.mktemp("certificates"), "locked", password="open-sesame")


def test_no_tls_by_default() -> None:
    assert client_tls(False) is None
    assert ClientSettings().tls is False


def test_tls_verifies_everything_by_default() -> None:
    made = client_tls(True)
    assert made is not None
    assert (made.context.verify_mode, made.context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert made.context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert made.server_name is None


@pytest.mark.parametrize(
    ("verify", "mode", "host_name"),
    [
        ("full", ssl.CERT_REQUIRED, True),
        ("certificate", ssl.CERT_REQUIRED, False),
        ("none", ssl.CERT_NONE, False),
    ],
)
def test_tls_verification_modes(verify: Any, mode: ssl.VerifyMode, host_name: bool) -> None:
    context = TlsSettings(verify=verify).context()
    assert (context.verify_mode, context.check_hostname) == (mode, host_name)


def test_an_ssl_context_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    made = client_tls(context)
    assert made is not None
    assert made.context is context


def test_a_ca_file_replaces_the_systems_certificates(locked: Certificate) -> None:
    authorities = TlsSettings(ca_file=locked.cert_file).context().get_ca_certs()
    assert [authority["subject"] for authority in authorities] == [((("commonName", "locked"),),)]


def test_a_certificate_with_an_encrypted_key(locked: Certificate) -> None:
    files: dict[str, Any] = {"cert_file": locked.cert_file, "key_file": str(locked.key_file)}
    TlsSettings(**files, key_password="open-sesame").context()
    with pytest.raises(UsageError, match="the key is encrypted: set key_password"):
        TlsSettings(**files).context()
    with pytest.raises(UsageError, match=r"client's certificate, .*locked.crt and .*locked.key,") as wrong:
        TlsSettings(**files, key_password="sesame").context()
    assert "sesame" not in str(wrong.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"verify": "maybe"}, "verify='maybe': must be one of 'full', 'certificate', 'none'"),
        ({"verify": "none", "ca_file": "ca.pem"}, "ca_file has no effect with verify='none'"),
        ({"key_file": "key.pem"}, "a key is given without its cert_file"),
        ({"key_password": "sesame"}, "a key is given without its cert_file"),
    ],
)
def test_contradicting_tls_settings_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        TlsSettings(**given)


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_unusable_tls_files_raise_at_the_start(name: str, content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "some.pem"
    if content is not None:
        file.write_text(content)
    settings = ClientSettings(tls=TlsSettings(**{name: file}))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"some\.pem,? cannot be used: "):
        await Producer("127.0.0.1:9876", group="p", settings=settings).start()


def test_settings_refuse_other_types() -> None:
    with pytest.raises(UsageError, match=r"tls must be True, TlsSettings\(.*, not a str"):
        ClientSettings(tls="yes")  # type: ignore[arg-type]


def test_the_key_password_is_in_no_text() -> None:
    settings = ClientSettings(tls=TlsSettings(cert_file="c.pem", key_password="open-sesame"))
    assert "sesame" not in repr(settings)
    assert "c.pem" in repr(settings)


def test_equal_settings_share_connections() -> None:
    assert ClientSettings(tls=TlsSettings(ca_file="a")) == ClientSettings(tls=TlsSettings(ca_file="a"))
    assert len({ClientSettings(tls=True), ClientSettings(tls=True), ClientSettings()}) == 2
