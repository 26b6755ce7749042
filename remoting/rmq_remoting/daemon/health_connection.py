"""The connection of a health check: in plain text, and over TLS if a port does not answer plain text."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """Files in PEM: the certificate of the check, for ports that demand one, and its key (None: same)."""

    certificate: Path
    key: Path | None = None


def ask_in_plain_text_or_tls(
    host: str,
    port: int,
    deadline: float,
    ask: Callable[[socket.socket, bool], None],
    unanswered: type[Exception],
    protocols: Sequence[str] = (),
    own: OwnCertificate | None = None,
) -> None:
    """Call `ask(connection, is_encrypted)` with a connection in plain text and, unanswered, over TLS.

    `deadline` is a time of the monotonic clock. `ask` raises `unanswered` if the port ends the connection.
    `protocols` are those to agree on over TLS. The certificate of the port is not verified: the check asks
    for life, and sends nothing secret. Raises what `ask` raises, OSError.
    """
    try:
        with socket.create_connection((host, port), timeout=left_seconds(deadline)) as plain:
            ask(plain, False)
        return
    except ConnectionRefusedError:
        raise
    except (unanswered, ConnectionError) as error:
        failure = error
    context = _context(protocols, own)
    try:
        with (
            socket.create_connection((host, port), timeout=left_seconds(deadline)) as below,
            context.wrap_socket(below, server_hostname=host) as encrypted,
        ):
            ask(encrypted, True)
    except (unanswered, OSError):  # among them the errors of TLS: the port has none, or wants a certificate
        raise failure from None


def left_seconds(deadline: float) -> float:
    """Return the seconds until a time of the monotonic clock, at least a moment."""
    return max(0.001, deadline - time.monotonic())


def _context(protocols: Sequence[str], own: OwnCertificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
