"""What a call says besides its request: the client, its address and the deadline, from gRPC metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from .flow_limits import Slot
from .protocol.definition_pb2 import Code
from .statuses import Refusal

# Apache RocketMQ 5.3.3, GrpcConstants.
_CLIENT_ID = "x-mq-client-id"
_CLIENT_VERSION = "x-mq-client-version"
# Each connection is a peer, and sends many calls.
_CACHED_PEERS: Final = 4096


class Peers:
    """Finds the addresses of clients, as `host:port`."""

    def __init__(self) -> None:
        # The address of a client by that of the connection, if something stands before the gRPC server.
        self.names: Mapping[str, str] = {}
        # Whether it stands before all connections: others are of unknown clients.
        self.all_named = False

    def address(self, context: Any) -> str:
        """Return the address of a call's client, an empty text if it is unknown."""
        address = peer_address(context.peer())
        return self.names.get(address, "" if self.all_named else address)

    def host(self, context: Any) -> str:
        """Return the host of a call's client, an empty text if it is unknown."""
        return self.address(context).rpartition(":")[0].strip("[]")


# Not frozen: that would double the time of the constructor, which each call runs.
@dataclass(slots=True)
class Call:
    """One call of a client.

    `peer`: the client's `host:port`. `remaining_ms`: the time until the deadline, None without one.
    `slot`: the call's place among those in progress. A method releases it before a broker holds the call.
    """

    client_id: str
    client_version: str
    peer: str
    remaining_ms: int | None
    slot: Slot = field(default_factory=Slot)

    @classmethod
    def of(cls, context: Any, peers: Peers, slot: Slot | None = None) -> Call:
        """Read a call's metadata. Raises Refusal without a client id."""
        metadata = metadata_of(context)
        remaining = context.time_remaining()
        client_id = _text(metadata.get(_CLIENT_ID))
        if not client_id.strip():
            raise Refusal(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        return cls(
            client_id,
            _text(metadata.get(_CLIENT_VERSION)),
            peers.address(context),
            None if remaining is None else int(remaining * 1000),
            Slot() if slot is None else slot,
        )


def metadata_of(context: Any) -> dict[str, str | bytes]:
    """Return the metadata of a call; of a repeated key the last value."""
    return dict(context.invocation_metadata() or ())


@lru_cache(_CACHED_PEERS)
def peer_address(peer: str) -> str:
    """Return `host:port` of gRPC's name of a peer (`ipv4:127.0.0.1:80`, `ipv6:%5B::1%5D:80`)."""
    kind, _, address = peer.partition(":")
    return unquote(address) if kind in ("ipv4", "ipv6") else ""


def _text(value: str | bytes | None) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
