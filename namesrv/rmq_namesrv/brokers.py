"""Broker names, their addresses, and their clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID, BrokerData

NO_ADDRESSES: Final[Mapping[int, str]] = {}


@dataclass(frozen=True)
class BrokerGroup:
    """One broker name: a master and its slaves, addresses by broker id (0 is the master). Immutable."""

    cluster: str
    name: str
    addresses: Mapping[int, str]
    zone_name: str | None = None
    enable_acting_master: bool = False

    @property
    def has_master(self) -> bool:
        """Whether the master is registered."""
        return MASTER_BROKER_ID in self.addresses

    @property
    def smallest_id(self) -> int | None:
        """The smallest registered broker id."""
        return min(self.addresses, default=None)

    def with_addresses(self, addresses: Mapping[int, str]) -> BrokerGroup:
        """Return the same broker name with other members."""
        return replace(self, addresses=dict(sorted(addresses.items())))

    def without_address(self, address: str) -> BrokerGroup:
        """Return the same broker name without the member at an address; itself if there is none."""
        others = {number: each for number, each in self.addresses.items() if each != address}
        return self if len(others) == len(self.addresses) else self.with_addresses(others)

    @cached_property
    def acting(self) -> BrokerGroup:
        """The group as clients see it without its master: the smallest id acts as the master.

        (Apache RocketMQ 5.3.3, RouteInfoManager.pickupTopicRouteData)
        """
        smallest = self.smallest_id
        if smallest is None or self.has_master:
            return self
        others = {number: address for number, address in self.addresses.items() if number != smallest}
        return self.with_addresses({MASTER_BROKER_ID: self.addresses[smallest], **others})

    @cached_property
    def body(self) -> BrokerData:
        """The group as a JSON body."""
        return BrokerData(
            broker_addrs=dict(self.addresses),
            broker_name=self.name,
            cluster=self.cluster,
            enable_acting_master=self.enable_acting_master,
            zone_name=self.zone_name,
        )

    @cached_property
    def encoded(self) -> tuple[bytes, bytes]:
        """The JSON in both forms: fastjson's dialect and standard."""
        return self.body.encode(), self.body.encode_standard()


class BrokerTable:
    """All broker groups by name, and the names of each cluster's brokers."""

    def __init__(self) -> None:
        self._groups: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        # Increases with every change, which invalidates values computed from an older version.
        self.version = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def address_count(self) -> int:
        """Number of brokers, slaves included."""
        return sum(len(group.addresses) for group in self._groups.values())

    def get(self, name: str) -> BrokerGroup | None:
        """Return the current group of a name."""
        return self._groups.get(name)

    def groups(self) -> list[BrokerGroup]:
        """Return all groups."""
        return list(self._groups.values())

    def clusters(self) -> dict[str, list[str]]:
        """Return the names of each cluster's brokers, in alphabetical order."""
        return {cluster: sorted(names) for cluster, names in self._clusters.items()}

    def names_of(self, cluster: str) -> frozenset[str]:
        """Return the broker names of a cluster; empty for an unknown cluster."""
        return frozenset(self._clusters.get(cluster, ()))

    def put(self, group: BrokerGroup, cluster: str | None = None) -> None:
        """Replace the group of a broker name, as a member of `cluster` (by default its own)."""
        self._clusters.setdefault(cluster or group.cluster, set()).add(group.name)
        if self._groups.get(group.name) != group:
            self._groups[group.name] = group
            self.version += 1

    def remove(self, name: str) -> None:
        """Remove a broker name, and clusters that are then empty."""
        if self._groups.pop(name, None) is not None:
            self.version += 1
        for cluster, names in list(self._clusters.items()):
            names.discard(name)
            if not names:
                del self._clusters[cluster]

    def touch(self) -> None:
        """Increase the version: a value besides the groups has changed that responses depend on."""
        self.version += 1
