"""TLS contexts of a daemon: of its port, loaded again when the files change, and of its own connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..client import ClientTls
from ..protocol_detection import ServerTls, TlsMode, TlsUnavailable
from .certificates import expiry_of, load_self_signed
from .lifecycle import StartError
from .tls_reloads import TlsFilesError, TlsReloads
from .tls_settings import ClientAuthentication, TlsSettings

if TYPE_CHECKING:
    from .tasks import TaskSupervisor

log = logging.getLogger("rmq.tls")

_VERIFY_MODES: Final = {
    ClientAuthentication.NONE: ssl.CERT_NONE,
    ClientAuthentication.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuthentication.REQUIRE: ssl.CERT_REQUIRED,
}


class ServerContexts(TlsReloads[ssl.SSLContext]):
    """The TLS context of a daemon's port.

    It is loaded from files at the start, and again when one of them changes; connections that are open keep
    the old one. Without a certificate it is made for the first client that wants TLS.
    """

    def __init__(self, settings: TlsSettings) -> None:
        super().__init__(settings)
        self._context: ssl.SSLContext | None = None
        self._making: asyncio.Task[ssl.SSLContext] | None = None

    @property
    def tls(self) -> ServerTls:
        """TLS of the server, for its listeners."""
        return ServerTls(self._settings.tls_server_mode, self.context)

    def load(self) -> None:
        """Read the files, if there are any. Blocks. Raises StartError."""
        if self._settings.tls_server_mode is TlsMode.DISABLED or not self._settings.tls_files:
            return
        self._load_at_start()

    def watch(self, supervisor: TaskSupervisor, task_name: str) -> None:
        """Load the files again whenever they change, in a task of this name."""
        if self._context is not None:
            self._watch_files(supervisor, task_name)

    async def context(self) -> ssl.SSLContext:
        """Return the context of the next handshake. Raises TlsUnavailable."""
        if self._context is not None:
            return self._context
        if not self._settings.tls_test_mode:
            raise TlsUnavailable(
                "this server has no certificate: set tls.server.certPath and tls.server.keyPath, or let the "
                "client use plain text"
            )
        if self._making is None:
            self._making = asyncio.ensure_future(asyncio.to_thread(_self_signed_context, self._settings))
        try:
            self._context = await asyncio.shield(self._making)
        finally:
            if self._making is not None and self._making.done():
                self._making = None
        return self._context

    def _read(self) -> tuple[ssl.SSLContext, float | None]:
        path = self._settings.tls_server_cert_path
        return server_context(self._settings), None if path is None else expiry_of(path)

    def _use(self, context: ssl.SSLContext, expires_at: float | None) -> None:
        self._context, self.expires_at = context, expires_at
        log.info(
            "TLS certificate loaded certificate=%s valid_until=%s",
            self._settings.tls_server_cert_path,
            "unknown" if expires_at is None else datetime.fromtimestamp(expires_at, UTC).isoformat(),
        )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context of the port with the files of the settings. Blocks. Raises TlsFilesError."""
    context = _context(settings, ssl.PROTOCOL_TLS_SERVER)
    certificate = settings.tls_server_cert_path
    if certificate is not None:
        key, password = settings.tls_server_key_path, settings.tls_server_key_password
        _load_certificate(context, "tls.server", certificate, key, password)
    authorities = settings.tls_server_trust_cert_path
    if authorities is not None:
        _load_authorities(context, "tls.server.trustCertPath", authorities)
    context.verify_mode = _VERIFY_MODES[settings.client_authentication]
    return context


def client_tls(settings: TlsSettings) -> ClientTls | None:
    """Return TLS of the daemon's own connections, None for plain text. Blocks. Raises StartError."""
    if not settings.connects_with_tls:
        return None
    try:
        context = _context(settings, ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        if not settings.tls_client_auth_server:
            context.verify_mode = ssl.CERT_NONE
        elif settings.tls_client_trust_cert_path is None:
            context.load_default_certs()
        else:
            _load_authorities(context, "tls.client.trustCertPath", settings.tls_client_trust_cert_path)
        certificate = settings.tls_client_cert_path
        if certificate is not None:
            key, password = settings.tls_client_key_path, settings.tls_client_key_password
            _load_certificate(context, "tls.client", certificate, key, password)
    except TlsFilesError as error:
        raise StartError(str(error)) from error
    return ClientTls(context)


def _context(settings: TlsSettings, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version, context.maximum_version = settings.tls_versions
    # A client could keep the loop busy with handshakes on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.tls_ciphers:
        try:
            context.set_ciphers(settings.tls_ciphers)
        except ssl.SSLError as error:
            raise TlsFilesError(
                f"tls.ciphers={settings.tls_ciphers}: no cipher suite of OpenSSL is selected"
            ) from error
    return context


def _self_signed_context(settings: TlsSettings) -> ssl.SSLContext:
    context = server_context(settings)
    load_self_signed(context)
    log.warning(
        "TLS with a self-signed certificate, since a client asked for TLS and none is set; set "
        "tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=false to refuse such clients"
    )
    return context


def _load_certificate(
    context: ssl.SSLContext, prefix: str, certificate: Path, key: Path | None, password: str
) -> None:
    def known_password() -> str:
        # Without this, OpenSSL would ask on the terminal.
        if not password:
            raise TlsFilesError(
                f"{prefix}.keyPath={key or certificate}: the key is encrypted: set {prefix}.keyPassword"
            )
        return password

    try:
        context.load_cert_chain(certificate, key, known_password)
    except OSError as error:  # ssl.SSLError is one
        files = f"{prefix}.certPath={certificate}" + (f" and {prefix}.keyPath={key}" if key else "")
        raise TlsFilesError(f"{files} cannot be used: {_reason(error)}") from error


def _load_authorities(context: ssl.SSLContext, key: str, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise TlsFilesError(f"{key}={path} cannot be used: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is not that of the certificate"
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
