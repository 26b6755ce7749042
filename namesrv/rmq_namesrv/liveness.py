"""Which brokers are alive: who registered, over which connection, and when each was last heard of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.connection import Connection

# Where a broker does not say after how long a silence it counts as gone (Apache RocketMQ 5.3.3,
# RouteInfoManager).
DEFAULT_TIMEOUT_SECONDS: Final = 120.0

# A broker's key: its cluster and its address.
BrokerKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker says of itself when it registers.

    `enable_acting_master` is None for brokers that are too old to know of it.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone_name: str | None = None
    enable_acting_master: bool | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def key(self) -> BrokerKey:
        """What it is known by."""
        return self.cluster, self.address


@dataclass(slots=True, eq=False)
class LiveBroker:
    """A broker that is alive, and what of its registration is in the routes.

    `data_version` is that of the last registration that was worked into the routes to its end;
    `fingerprint` is of that registration's body, `table_version` of the broker table right after it.
    """

    identity: BrokerIdentity
    connection: Connection | None
    last_seen: float
    data_version: DataVersion | None = None
    fingerprint: bytes = b""
    table_version: int = -1


class LiveBrokers:
    """All brokers that are alive. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._brokers: dict[BrokerKey, LiveBroker] = {}
        # A broker container registers several brokers over one connection.
        self._by_connection: dict[Connection, set[BrokerKey]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def get(self, key: BrokerKey) -> LiveBroker | None:
        """The broker if it is alive."""
        return self._brokers.get(key)

    def put(self, identity: BrokerIdentity, connection: Connection | None) -> LiveBroker:
        """Note that a broker registers over a connection, just now; what is known of it is kept."""
        broker = self._brokers.get(identity.key)
        if broker is None:
            broker = self._brokers[identity.key] = LiveBroker(identity, connection, self._clock())
        else:
            self._unlink(broker)
            broker.identity = identity
            broker.connection = connection
            broker.last_seen = self._clock()
        if connection is not None:
            self._by_connection.setdefault(connection, set()).add(identity.key)
        return broker

    def heard_of(self, key: BrokerKey) -> bool:
        """Note a sign of life; whether there is such a broker."""
        broker = self._brokers.get(key)
        if broker is not None:
            broker.last_seen = self._clock()
        return broker is not None

    def remove(self, key: BrokerKey) -> LiveBroker | None:
        """Forget a broker; it is returned if it was there."""
        broker = self._brokers.pop(key, None)
        if broker is not None:
            self._unlink(broker)
        return broker

    def of_connection(self, connection: Connection) -> list[LiveBroker]:
        """The brokers that registered over a connection last."""
        return [self._brokers[key] for key in self._by_connection.get(connection, ())]

    def silent(self) -> list[LiveBroker]:
        """The brokers that have not been heard of for longer than they may."""
        now = self._clock()
        return [
            broker
            for broker in self._brokers.values()
            if now - broker.last_seen > broker.identity.timeout_seconds
        ]

    def _unlink(self, broker: LiveBroker) -> None:
        keys = self._by_connection.get(broker.connection) if broker.connection is not None else None
        if keys is not None and broker.connection is not None:
            keys.discard(broker.identity.key)
            if not keys:
                del self._by_connection[broker.connection]
