"""TLS settings of connections to name servers and brokers."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from rmq_remoting.client import ClientTls

from .checks import check_choice, check_text, refuse
from .errors import InvalidArgumentError, UsageError

Verification: TypeAlias = Literal["full", "certificate", "none"]
_VERIFICATIONS: Final = get_args(Verification)

_Path: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How connections are encrypted. All files are PEM.

    `ca_file`: certificates to trust, in place of the system's. `cert_file`, `key_file` and `key_password`:
    this client's own certificate, for servers that ask for one; without `key_file` the key is in `cert_file`.
    `server_name`: the name in the servers' certificates, if it is not the host of their addresses, as with
    brokers that are known by IP address.

    `verify`: `full` verifies the certificate and its name (the host, or `server_name`). `certificate` only
    verifies that a trusted authority has signed it. `none` trusts every server, so that anyone on the network
    path can read and change everything. Raises UsageError.
    """

    ca_file: _Path | None = None
    cert_file: _Path | None = None
    key_file: _Path | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    verify: Verification = "full"

    def __post_init__(self) -> None:
        check_choice("verify", self.verify, _VERIFICATIONS)
        for name in ("ca_file", "cert_file", "key_file"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, (str, os.PathLike)):
                raise refuse(name, path, "must be the path of a PEM file")
        if self.server_name is not None:
            check_text("server_name", self.server_name)
        if self.key_password is not None and not isinstance(self.key_password, str):
            # The value may be a secret: the error does not contain it.
            raise InvalidArgumentError(
                f"tls: key_password must be a str, not {type(self.key_password).__name__}"
            )
        if self.ca_file is not None and self.verify == "none":
            raise UsageError("tls: ca_file has no effect with verify='none': remove one of them")
        if self.cert_file is None and (self.key_file is not None or self.key_password is not None):
            raise UsageError("tls: a key is given without its cert_file")

    def context(self) -> ssl.SSLContext:
        """Return a context of the standard library. Reads the files. Raises UsageError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Debian's Python leaves the oldest version to the configuration of OpenSSL.
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
        if self.verify != "full":
            context.check_hostname = False
        if self.verify == "none":
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_file is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(self.ca_file)
            except OSError as error:  # an SSLError is one
                raise UsageError(f"tls: ca_file {os.fspath(self.ca_file)} cannot be used: {error}") from error
        if self.cert_file is not None:
            self._load_own_certificate(context, self.cert_file)
        return context

    def _load_own_certificate(self, context: ssl.SSLContext, cert_file: _Path) -> None:
        def password() -> str:
            # Without this, OpenSSL would ask on the terminal.
            if self.key_password is None:
                raise UsageError("tls: the key is encrypted: set key_password")
            return self.key_password

        try:
            context.load_cert_chain(cert_file, self.key_file, password)
        except OSError as error:
            files = " and ".join(os.fspath(path) for path in (cert_file, self.key_file) if path is not None)
            raise UsageError(f"tls: this client's certificate, {files}, cannot be used: {error}") from error


def client_tls(tls: bool | TlsSettings | ssl.SSLContext) -> ClientTls | None:
    """Return the TLS configuration of connections for a setting, None for False. Raises UsageError."""
    if tls is False:
        return None
    if isinstance(tls, ssl.SSLContext):
        return ClientTls(tls)
    settings = TlsSettings() if tls is True else tls
    return ClientTls(settings.context(), settings.server_name)
