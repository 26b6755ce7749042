"""Settings that all objects of one client instance share."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmq_remoting.client import split_address
from rmq_remoting.command import Serialization
from rmq_remoting.connection import ConnectionSettings
from rmq_remoting.errors import ConnectError

from .credentials import Credentials
from .errors import UsageError
from .names import check_namespace
from .tls import TlsSettings


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How this process talks to one cluster. Producers and consumers with equal settings share connections.

    Defaults follow Apache RocketMQ 5.3.3 (ClientConfig). Raises UsageError.
    """

    # Distinguishes instances of one process that must not share a client id: two consumers of one group.
    instance_name: str = "DEFAULT"
    # Form of request headers; servers answer to either. JSON is for servers that know no other.
    serialization: Serialization = Serialization.BINARY
    # Timeout of requests other than sends and pulls.
    request_timeout_seconds: float = 3.0
    connect_timeout_seconds: float = 3.0
    heartbeat_seconds: float = 30.0
    route_refresh_seconds: float = 30.0
    # A body that decompresses to more is skipped.
    max_unpacked_body_bytes: int = 128 * 1024 * 1024
    # Bounds of each connection; the default admits 65,535 requests in flight.
    connection: ConnectionSettings = field(default_factory=ConnectionSettings, hash=False)
    # For servers with access control.
    credentials: Credentials | None = None
    # True is TLS with the default TlsSettings. An ssl.SSLContext is used as it is.
    tls: bool | TlsSettings | ssl.SSLContext = False
    # Prefix of all names of topics and groups; applications with different namespaces do not meet.
    namespace: str = ""

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        # The value may be a secret, so errors do not contain it.
        if self.credentials is not None and not isinstance(self.credentials, Credentials):
            raise UsageError(
                "credentials must be Credentials(access_key=..., secret_key=...), not a "
                f"{type(self.credentials).__name__}"
            )
        if not isinstance(self.tls, (bool, TlsSettings, ssl.SSLContext)):
            raise UsageError(
                f"tls must be True, TlsSettings(...) or an ssl.SSLContext, not a {type(self.tls).__name__}"
            )


def name_server_list(namesrv: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return name server addresses of `host:port;host:port` or a sequence; None: of the variable
    NAMESRV_ADDR.

    The URL of an address server (`http://...`) must be the only one, and is returned as it is. Raises
    UsageError.
    """
    if namesrv is None:
        namesrv = os.environ.get("NAMESRV_ADDR", "")
        if not namesrv:
            raise UsageError(
                "no name server is given: pass namesrv='host:9876', or set the variable NAMESRV_ADDR"
            )
    parts = namesrv.replace(",", ";").split(";") if isinstance(namesrv, str) else list(namesrv)
    addresses = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not addresses:
        raise UsageError("the list of name servers is empty: pass namesrv='host:9876;otherhost:9876'")
    if any(map(is_address_server, addresses)):
        if len(addresses) > 1:
            raise UsageError(
                f"name servers {'; '.join(addresses)}: an address server must be the only address"
            )
        return addresses
    for address in addresses:
        try:
            split_address(address)
        except ConnectError as error:
            raise UsageError(f"name server {error}") from error
    return addresses


def is_address_server(address: str) -> bool:
    """Whether the address is the URL of an address server, and not the address of a name server."""
    return address.startswith(("http://", "https://"))
