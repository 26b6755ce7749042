"""The addresses from which a daemon accepts requests of administration (`adminAllowlist`)."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ..codes import ResponseCode
from ..errors import CommandError, shown
from ..peer_address import Network, address_of
from ..repeated_event import RepeatedEvent

if TYPE_CHECKING:
    from ..command import RemotingCommand
    from ..connection import Connection

log = logging.getLogger("rmq.audit")

_LOG_SECONDS: Final = 1.0


def networks_of(text: str) -> tuple[Network, ...]:
    """Return the addresses and ranges of a list with commas. Raises ValueError."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    try:
        return tuple(ipaddress.ip_network(item, strict=False) for item in items)
    except ValueError as error:
        raise ValueError(
            f"adminAllowlist={text}: {error}; give addresses and ranges such as 10.0.0.5,10.1.0.0/16"
        ) from error


class AdminAllowlist:
    """Refuses requests of administration from other addresses than those of the list."""

    def __init__(self, networks: Iterable[Network], is_administration: Callable[[int], bool]) -> None:
        """`is_administration` tells for each request code whether the list counts for it."""
        self._networks = tuple(networks)
        self._is_administration = is_administration
        self._refusal = RepeatedEvent(_LOG_SECONDS)

    def check(self, connection: Connection, request: RemotingCommand) -> None:
        """Raise CommandError (NO_PERMISSION) for a request that its peer may not make."""
        if not self._is_administration(request.code) or self._lists(connection.remote_address[0]):
            return
        if count := self._refusal.occurred():
            log.warning(
                "administration refused peer=%s code=%d refused=%d cause=not in adminAllowlist",
                connection.peer,
                request.code,
                count,
            )
        raise CommandError(
            ResponseCode.NO_PERMISSION,
            f"requests of administration are not accepted from {shown(connection.remote_address[0])}: the "
            "operator can add the address to adminAllowlist",
        )

    def _lists(self, host: str) -> bool:
        address = address_of(host)
        return address is not None and any(address in network for network in self._networks)
