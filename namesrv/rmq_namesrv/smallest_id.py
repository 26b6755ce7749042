"""Who has the smallest broker id of a name, and who has to know when that changes.

A slave with the smallest id may act as the master while there is none (Apache RocketMQ 5.3.3,
RouteInfoManager.notifyMinBrokerIdChanged).
"""

from __future__ import annotations

from dataclasses import dataclass

from .brokers import BrokerGroup


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """Another broker has the smallest id of its name now; `receivers` are the addresses to tell."""

    broker_name: str
    smallest_id: int
    address: str
    receivers: tuple[str, ...]
    offline_address: str | None = None
    ha_address: str | None = None


def smallest_came(before: BrokerGroup | None, after: BrokerGroup, ha_address: str) -> MinBrokerChange | None:
    """The change if a broker with a smaller id than all others has come; the first one is no change.

    The others are told; one that only changed its id, and has no others, is told itself.
    """
    was = None if before is None else before.smallest_id
    now = after.smallest_id
    if was is None or now is None or now >= was:
        return None
    others = tuple(address for number, address in after.addresses.items() if number != now)
    receivers = others or tuple(after.addresses.values())
    return MinBrokerChange(after.name, now, after.addresses[now], receivers, None, ha_address)


def smallest_left(before: BrokerGroup, after: BrokerGroup, offline_address: str) -> MinBrokerChange | None:
    """The change if the broker with the smallest id has gone and others are left: they are told."""
    now = after.smallest_id
    if now is None or now == before.smallest_id or not after.enable_acting_master:
        return None
    receivers = tuple(after.addresses.values())
    return MinBrokerChange(after.name, now, after.addresses[now], receivers, offline_address)
