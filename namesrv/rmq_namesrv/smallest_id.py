"""Changes of the smallest broker id of a broker name, and the brokers to notify of them.

A slave with the smallest id may act as the master while the master is down (Apache RocketMQ 5.3.3,
RouteInfoManager.notifyMinBrokerIdChanged).
"""

from __future__ import annotations

from dataclasses import dataclass

from .brokers import BrokerGroup


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """A change of the smallest id of a broker name; `receivers` are the addresses to notify."""

    broker_name: str
    smallest_id: int
    address: str
    receivers: tuple[str, ...]
    offline_address: str | None = None
    ha_address: str | None = None


def smallest_joined(
    before: BrokerGroup | None, after: BrokerGroup, ha_address: str
) -> MinBrokerChange | None:
    """Return the change if a new broker has the smallest id; the first broker of a name is no change.

    The others are notified. A broker without others that only changed its id is notified itself.
    """
    was = None if before is None else before.smallest_id
    now = after.smallest_id
    if was is None or now is None or now >= was:
        return None
    others = tuple(address for number, address in after.addresses.items() if number != now)
    receivers = others or tuple(after.addresses.values())
    return MinBrokerChange(after.name, now, after.addresses[now], receivers, None, ha_address)


def smallest_left(before: BrokerGroup, after: BrokerGroup, offline_address: str) -> MinBrokerChange | None:
    """Return the change if the broker with the smallest id has left; the remaining ones are notified."""
    now = after.smallest_id
    if now is None or now == before.smallest_id or not after.enable_acting_master:
        return None
    receivers = tuple(after.addresses.values())
    return MinBrokerChange(after.name, now, after.addresses[now], receivers, offline_address)
