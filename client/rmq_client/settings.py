"""Settings that all objects of one client instance share."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from rmq_remoting.client import split_address
from rmq_remoting.command import Serialization
from rmq_remoting.connection import ConnectionSettings
from rmq_remoting.errors import ConnectError

from .checks import (
    Seconds,
    check_each,
    check_flag,
    check_instance,
    check_int,
    check_seconds,
    check_text,
    refuse,
    set_fields,
    short_repr,
)
from .credentials import Credentials
from .errors import InvalidArgumentError, UsageError
from .names import check_namespace
from .tls import TlsSettings

_CURE: Final = "pass 'host:9876;otherhost:9876'"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ClientSettings:
    """How this process talks to one cluster. Producers and consumers with equal settings share connections.

    `instance_name` distinguishes instances of one process that must not share a client id, as two consumers
    of one group. `serialization`: form of request headers; servers answer to either, and JSON is for servers
    that know no other. `request_timeout_seconds`: time-out of requests other than sends and pulls.
    `max_unpacked_body_bytes`: a body that decompresses to more is skipped. `connection`: bounds of each
    connection; the default admits 65,535 requests in flight. `credentials`: for servers with access control.
    `tls`: True is TLS with the default TlsSettings; an ssl.SSLContext is used as it is. `namespace`: prefix
    of all names of topics and groups; applications with different namespaces do not meet.

    Defaults follow Apache RocketMQ 5.3.3 (ClientConfig).
    """

    instance_name: str
    serialization: Serialization
    request_timeout_seconds: float
    connect_timeout_seconds: float
    heartbeat_seconds: float
    route_refresh_seconds: float
    max_unpacked_body_bytes: int
    connection: ConnectionSettings = field(hash=False, repr=False)
    credentials: Credentials | None
    tls: bool | TlsSettings | ssl.SSLContext
    namespace: str

    __repr__ = short_repr

    def __init__(
        self,
        *,
        instance_name: str = "DEFAULT",
        serialization: Serialization = Serialization.BINARY,
        request_timeout_seconds: Seconds = 3.0,
        connect_timeout_seconds: Seconds = 3.0,
        heartbeat_seconds: Seconds = 30.0,
        route_refresh_seconds: Seconds = 30.0,
        max_unpacked_body_bytes: int = 128 * 1024 * 1024,
        connection: ConnectionSettings | None = None,
        credentials: Credentials | None = None,
        tls: bool | TlsSettings | ssl.SSLContext = False,
        namespace: str = "",
    ) -> None:
        """Raises InvalidArgumentError."""
        check_namespace(namespace)
        # The value may be a secret, so errors do not contain it.
        if credentials is not None and not isinstance(credentials, Credentials):
            raise InvalidArgumentError(
                "credentials must be Credentials(access_key=..., secret_key=...), not a "
                f"{type(credentials).__name__}"
            )
        if not isinstance(tls, (bool, TlsSettings, ssl.SSLContext)):
            raise InvalidArgumentError(
                f"tls must be True, TlsSettings(...) or an ssl.SSLContext, not a {type(tls).__name__}"
            )
        set_fields(
            self,
            instance_name=check_text("instance_name", instance_name),
            serialization=check_instance(
                "serialization", serialization, Serialization, "pass Serialization.BINARY or .JSON"
            ),
            request_timeout_seconds=check_seconds(
                "request_timeout_seconds", request_timeout_seconds, above=0
            ),
            connect_timeout_seconds=check_seconds(
                "connect_timeout_seconds", connect_timeout_seconds, above=0
            ),
            heartbeat_seconds=check_seconds("heartbeat_seconds", heartbeat_seconds, above=0),
            route_refresh_seconds=check_seconds("route_refresh_seconds", route_refresh_seconds, above=0),
            max_unpacked_body_bytes=check_int("max_unpacked_body_bytes", max_unpacked_body_bytes, least=1),
            connection=_checked_connection(connection),
            credentials=credentials,
            tls=tls,
            namespace=namespace,
        )


def checked_settings(settings: object) -> ClientSettings:
    """Return the settings. Raises InvalidArgumentError for another object."""
    return check_instance("settings", settings, ClientSettings, "pass ClientSettings(...)")


def _checked_connection(connection: object) -> ConnectionSettings:
    if connection is None:
        return ConnectionSettings()
    bounds = check_instance("connection", connection, ConnectionSettings, "pass ConnectionSettings(...)")
    for each in fields(bounds):
        name, value = f"connection.{each.name}", getattr(bounds, each.name)
        if each.name == "stops_reading":
            check_flag(name, value)
        elif each.name == "linger_seconds":
            check_seconds(name, value)
        else:
            check_int(name, value, least=1)
    return bounds


def check_namesrv(namesrv: object) -> str | Sequence[str] | None:
    """Check the addresses of name servers. None is left to the start, which reads NAMESRV_ADDR."""
    if namesrv is None:
        return None
    given = namesrv if isinstance(namesrv, str) else check_each("namesrv", namesrv, str, _CURE)
    try:
        name_server_list(given)
    except UsageError as error:
        raise refuse("namesrv", namesrv, f"{error}; {_CURE}") from None
    return given


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
        raise UsageError("the list of name servers is empty")
    if any(map(is_address_server, addresses)):
        if len(addresses) > 1:
            raise UsageError(
                f"name servers {'; '.join(addresses)}: an address server must be the only address"
            )
        if not _has_host(addresses[0]):
            raise UsageError(f"address server {addresses[0]}: the URL has no host")
        return addresses
    for address in addresses:
        try:
            split_address(address)
        except ConnectError as error:
            raise UsageError(f"name server {error}") from error
    return addresses


def _has_host(url: str) -> bool:
    from urllib.parse import urlsplit  # noqa: PLC0415 (few clients have an address server)

    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def is_address_server(address: str) -> bool:
    """Whether the address is the URL of an address server, and not the address of a name server."""
    return address.startswith(("http://", "https://"))
