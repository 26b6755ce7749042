"""Live brokers: their registrations, connections and last heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.connection import Connection

# Heartbeat time-out of brokers that do not register one (Apache RocketMQ 5.3.3, RouteInfoManager).
DEFAULT_TIMEOUT_SECONDS: Final = 120.0

# A broker's key: its cluster and its address.
BrokerKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """A broker as it registers.

    `enable_acting_master` is None for brokers that are too old to have the setting.
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
        """The key of the broker in the tables."""
        return self.cluster, self.address


@dataclass(slots=True, eq=False)
class LiveBroker:
    """A live broker, and the state of its registration in the routes.

    `data_version` is that of the last registration that was applied to the routes completely. `fingerprint`
    is the hash of that registration's body, `table_version` the version of the broker table right after it.
    """

    identity: BrokerIdentity
    connection: Connection | None
    last_seen: float
    data_version: DataVersion | None = None
    fingerprint: bytes = b""
    table_version: int = -1


class LiveBrokers:
    """All live brokers. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._brokers: dict[BrokerKey, LiveBroker] = {}
        # A broker container registers several brokers over one connection.
        self._by_connection: dict[Connection, set[BrokerKey]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def get(self, key: BrokerKey) -> LiveBroker | None:
        """Return the broker if it is live."""
        return self._brokers.get(key)

    def put(self, identity: BrokerIdentity, connection: Connection | None) -> LiveBroker:
        """Record that a broker registers over a connection now; the rest of its state is kept."""
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

    def record_heartbeat(self, key: BrokerKey) -> bool:
        """Record a heartbeat; return whether the broker is known."""
        broker = self._brokers.get(key)
        if broker is not None:
            broker.last_seen = self._clock()
        return broker is not None

    def remove(self, key: BrokerKey) -> LiveBroker | None:
        """Remove a broker, and return it if it was live."""
        broker = self._brokers.pop(key, None)
        if broker is not None:
            self._unlink(broker)
        return broker

    def of_connection(self, connection: Connection) -> list[LiveBroker]:
        """Return the brokers whose last registration came over a connection."""
        return [self._brokers[key] for key in self._by_connection.get(connection, ())]

    def silent(self) -> list[LiveBroker]:
        """Return the brokers without a heartbeat for longer than their time-out."""
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
