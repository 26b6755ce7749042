"""The bound of a server's connections: in all, and of one host."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from .peer_address import host_key

# Descriptors that are kept for files: this share of the limit, within these bounds. A log that cannot get its
# next file would refuse all messages.
_RESERVED_SHARE: Final = 8
_LEAST_RESERVED: Final = 16
_MOST_RESERVED: Final = 256
# Without a setting, one host may have this share of all connections: a quarter is left for others.
_HOST_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Most connections of a daemon, and of one host; 0: as many as open files allow, and a share of them."""

    in_all: int = 0
    per_host: int = 0


class Admission:
    """Admits connections as long as there are few enough; the listeners of one daemon share it."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self._limits = limits or ConnectionLimits()
        self._by_host: dict[str, int] = {}
        self._admitted = 0

    def admit(self, address: tuple[str, int], descriptor: int) -> str:
        """Count a new connection and return an empty text, or return why it must be refused.

        `descriptor` is that of its socket.
        """
        host = host_key(address[0])
        most = most_descriptor()
        if descriptor >= most:
            return (
                f"too many open files and connections most={most:.0f}; the last ones are kept for files. "
                "Raise LimitNOFILE (systemd) or ulimit -n, or let clients share connections"
            )
        limits = self._limits
        if limits.in_all and self._admitted >= limits.in_all:
            return f"too many connections most={limits.in_all}; raise maxConnections"
        of_host = self._by_host.get(host, 0)
        per_host = limits.per_host or (limits.in_all or most) * _HOST_SHARE
        if of_host >= per_host:
            return (
                f"too many connections of this host most={per_host:.0f}; raise maxConnectionsPerHost, or let "
                "the host's clients share connections"
            )
        self._by_host[host] = of_host + 1
        self._admitted += 1
        return ""

    def leave(self, address: tuple[str, int]) -> None:
        """Count the end of a connection that was admitted."""
        host = host_key(address[0])
        self._admitted -= 1
        if self._by_host[host] == 1:
            del self._by_host[host]
        else:
            self._by_host[host] -= 1


def most_descriptor() -> float:
    """Return the number of a descriptor from which on connections are refused; infinite without a limit.

    The kernel gives the lowest free number: the number of a new connection tells how many are in use.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return limit - min(max(limit // _RESERVED_SHARE, _LEAST_RESERVED), _MOST_RESERVED)
