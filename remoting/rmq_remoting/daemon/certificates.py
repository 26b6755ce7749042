"""Certificates in need of more than the ssl module: expiry dates, and one that is made in memory for tests.

The package cryptography is imported on demand: it takes 8 MB, and a daemon without TLS needs nothing of it.
"""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

from ..protocol_detection import TlsUnavailable

_NAME: Final = "localhost"
_VALID_DAYS: Final = 3650


def expiry_of(path: Path) -> float | None:
    """Return when the first certificate of a PEM file expires, in seconds since 1970; None if unknown."""
    try:
        from cryptography import x509  # noqa: PLC0415

        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return certificate.not_valid_after_utc.timestamp()


def load_self_signed(context: ssl.SSLContext) -> None:
    """Give a server's context a new self-signed certificate. Raises TlsUnavailable.

    It encrypts, but lets clients verify nothing. Apache's servers have one by default, too (TlsHelper with
    tls.test.mode.enable). Blocks for some milliseconds.
    """
    pem = self_signed_pem()
    # OpenSSL takes a chain from a file only. This one is readable by this user alone, and ends here.
    with tempfile.TemporaryDirectory(prefix="rmq-tls-") as folder:
        path = Path(folder) / "self-signed.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
            file.write(pem)
        context.load_cert_chain(path)


def self_signed_pem() -> bytes:
    """Return a new self-signed certificate and its key, in PEM. Raises TlsUnavailable."""
    try:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise TlsUnavailable(
            "no certificate is set, and a self-signed one needs the package cryptography: set "
            "tls.server.certPath and tls.server.keyPath"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
