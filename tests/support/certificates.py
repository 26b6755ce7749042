"""Certificates for tests of TLS, made by the command `openssl`."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.requirements import tool_or_skip


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate and its key in PEM; `cert_file` is also its certificate authority."""

    cert_file: Path
    key_file: Path

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a daemon that shows this certificate."""
        return {"tlsCertPath": str(self.cert_file), "tlsKeyPath": str(self.key_file)}

    def server_context(self, client_ca: Path | None = None) -> ssl.SSLContext:
        """A server's context; with `client_ca`, clients need a certificate of that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_certificate(
    folder: Path, name: str, alternatives: str = "IP:127.0.0.1,IP:127.0.0.2", password: str | None = None
) -> Certificate:
    """A certificate for these hosts (`DNS:…,IP:…`), its key encrypted if a password is given.

    Skips the test, visibly, if `openssl` is missing; fails it in CI.
    """
    openssl = tool_or_skip("openssl", "it makes the certificates of these tests")
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2"]
    words += ["-subj", f"/CN={name}", "-addext", f"subjectAltName={alternatives}"]
    words += ["-keyout", str(made.key_file), "-out", str(made.cert_file)]
    words += ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
    subprocess.run([openssl, *words], check=True, capture_output=True, timeout=60)
    return made
