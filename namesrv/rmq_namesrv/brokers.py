"""Broker names, the addresses behind each, and the clusters that they form."""

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
        """Whether the master is there."""
        return MASTER_BROKER_ID in self.addresses

    @property
    def smallest_id(self) -> int | None:
        """The smallest broker id that is there."""
        return min(self.addresses, default=None)

    def with_addresses(self, addresses: Mapping[int, str]) -> BrokerGroup:
        """The same broker name with other members."""
        return replace(self, addresses=dict(sorted(addresses.items())))

    def without_address(self, address: str) -> BrokerGroup:
        """The same broker name without the member at an address; itself where there is none."""
        others = {number: each for number, each in self.addresses.items() if each != address}
        return self if len(others) == len(self.addresses) else self.with_addresses(others)

    @cached_property
    def acting(self) -> BrokerGroup:
        """The group as clients see it without its master: the smallest id stands in as the master.

        (Apache RocketMQ 5.3.3, RouteInfoManager.pickupTopicRouteData)
        """
        smallest = self.smallest_id
        if smallest is None or self.has_master:
            return self
        others = {number: address for number, address in self.addresses.items() if number != smallest}
        return self.with_addresses({MASTER_BROKER_ID: self.addresses[smallest], **others})

    @cached_property
    def body(self) -> BrokerData:
        """The group as it travels."""
        return BrokerData(
            broker_addrs=dict(self.addresses),
            broker_name=self.name,
            cluster=self.cluster,
            enable_acting_master=self.enable_acting_master,
            zone_name=self.zone_name,
        )

    @cached_property
    def encoded(self) -> tuple[bytes, bytes]:
        """As JSON: as fastjson writes it, and in standard form."""
        return self.body.encode(), self.body.encode_standard()


class BrokerTable:
    """All broker groups by name, and the names of each cluster's brokers."""

    def __init__(self) -> None:
        self._groups: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        # Grows with every change: what was made out of an older version has to be made again.
        self.version = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def address_count(self) -> int:
        """How many brokers there are, slaves included."""
        return sum(len(group.addresses) for group in self._groups.values())

    def get(self, name: str) -> BrokerGroup | None:
        """The group of that name now."""
        return self._groups.get(name)

    def groups(self) -> list[BrokerGroup]:
        """All groups."""
        return list(self._groups.values())

    def clusters(self) -> dict[str, list[str]]:
        """The names of each cluster's brokers, in alphabetical order."""
        return {cluster: sorted(names) for cluster, names in self._clusters.items()}

    def names_of(self, cluster: str) -> frozenset[str]:
        """The broker names of a cluster; empty where there is no such cluster."""
        return frozenset(self._clusters.get(cluster, ()))

    def put(self, group: BrokerGroup, cluster: str | None = None) -> None:
        """Give a broker name its next group, as a member of `cluster` (its own otherwise)."""
        self._clusters.setdefault(cluster or group.cluster, set()).add(group.name)
        if self._groups.get(group.name) != group:
            self._groups[group.name] = group
            self.version += 1

    def remove(self, name: str) -> None:
        """Forget a broker name, and the clusters that have no others."""
        if self._groups.pop(name, None) is not None:
            self.version += 1
        for cluster, names in list(self._clusters.items()):
            names.discard(name)
            if not names:
                del self._clusters[cluster]

    def touch(self) -> None:
        """Count as changed: something that answers depend on beside the groups is another now."""
        self.version += 1
