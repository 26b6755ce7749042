"""The certificate of the gRPC port, loaded again when its files change.

gRPC asks for the certificate at each handshake. Open connections keep theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc

from rmq_remoting.daemon.certificates import expiry_of, self_signed_pem
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_contexts import server_context
from rmq_remoting.daemon.tls_reloads import TlsFilesError, TlsReloads
from rmq_remoting.daemon.tls_settings import ClientAuthentication, TlsSettings

log = logging.getLogger("rmq.tls")

TASK: Final = "gRPC: certificate"


class GrpcCertificates(TlsReloads[Any]):
    """The certificate and key of the port, and the authorities of its clients."""

    def __init__(self, settings: TlsSettings) -> None:
        super().__init__(settings)
        self._configuration: Any = None
        self._is_new = False

    def load(self) -> Any:
        """Read the files, and return the credentials of the server. Blocks. Raises StartError."""
        self._load_at_start()
        require = self._settings.client_authentication is ClientAuthentication.REQUIRE
        return grpc.dynamic_ssl_server_credentials(self._configuration, self._fetch, require)

    def watch(self, supervisor: TaskSupervisor) -> None:
        """Load the files again whenever they change."""
        if self._settings.tls_files:
            self._watch_files(supervisor, TASK)

    def _fetch(self) -> Any:
        """Return the certificate for the next handshake, None for the one of the last. For any thread."""
        if not self._is_new:
            return None
        self._is_new = False
        return self._configuration

    def _use(self, loaded: Any, expires_at: float | None) -> None:
        self._configuration, self.expires_at = loaded, expires_at
        self._is_new = True
        log.info(
            "gRPC certificate loaded certificate=%s", self._settings.tls_server_cert_path or "self-signed"
        )

    def _read(self) -> tuple[Any, float | None]:
        """Return the configuration of gRPC and when the certificate expires. Raises TlsFilesError."""
        settings = self._settings
        certificate = settings.tls_server_cert_path
        if certificate is None:
            pem = self_signed_pem()
            log.warning(
                "gRPC has a self-signed certificate, which clients cannot verify; set tlsCertPath and "
                "tlsKeyPath"
            )
            return grpc.ssl_server_certificate_configuration([(pem, pem)]), None
        server_context(settings)  # its errors name the file and the cause
        key = settings.tls_server_key_path or certificate
        authorities = settings.tls_server_trust_cert_path
        pair = (
            _reading(key, lambda: _plain_key(key, settings.tls_server_key_password)),
            _reading(certificate, certificate.read_bytes),
        )
        roots = None if authorities is None else _reading(authorities, authorities.read_bytes)
        return grpc.ssl_server_certificate_configuration([pair], roots), expiry_of(certificate)


def _plain_key(path: Path, password: str) -> bytes:
    """Return a key in PEM, decrypted: gRPC's library takes no password."""
    pem = path.read_bytes()
    if not password:
        return pem
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (8 MB, and rarely needed)

    return serialization.load_pem_private_key(pem, password.encode()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _reading(path: Path, read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except (OSError, TypeError, ValueError) as error:
        raise TlsFilesError(f"{path} cannot be used: {error}") from error
