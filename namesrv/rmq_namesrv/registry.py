"""Changes of routes by brokers and operators: registration, departure, time-out, permissions.

The rules are those of Apache RocketMQ 5.3.3, RouteInfoManager; deviations have their reason beside them. A
change of many topics is a job in steps (see slices.py); all others take effect at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import ResponseCode
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError

from .brokers import NO_ADDRESSES, BrokerGroup, BrokerTable
from .config import RouteSettings
from .liveness import BrokerIdentity, BrokerKey, LiveBroker, LiveBrokers
from .registration_body import RegisteredTopics
from .routes import PERM_READ, PERM_WRITE, TOPICS_PER_STEP, QueueNumbers, Route, RouteTable
from .slices import Steps
from .smallest_id import MinBrokerChange, smallest_joined, smallest_left

log = logging.getLogger("rmq.namesrv.registry")


@dataclass(frozen=True, slots=True)
class MasterOf:
    """The master of a slave, if there is one, for the response to the slave's registration."""

    address: str | None = None
    ha_address: str | None = None


NO_MASTER: Final = MasterOf()


@dataclass(frozen=True, slots=True)
class Departure:
    """A broker that leaves."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @classmethod
    def of(cls, identity: BrokerIdentity) -> Departure:
        """Return the departure of a registered broker."""
        return cls(identity.cluster, identity.name, identity.broker_id, identity.address)

    @property
    def key(self) -> BrokerKey:
        """The key of the broker in the tables."""
        return self.cluster, self.address


class BrokerRegistry:
    """Applies registrations and departures to the tables. `notify` is called for a new smallest broker id."""

    def __init__(
        self,
        routes: RouteTable,
        brokers: BrokerTable,
        live: LiveBrokers,
        settings: RouteSettings,
        notify: Callable[[MinBrokerChange], None],
    ) -> None:
        self._routes = routes
        self._brokers = brokers
        self._live = live
        self._settings = settings
        self._notify = notify
        # For the metrics: registrations by outcome, departures by reason.
        self.registrations: Counter[str] = Counter()
        self.departures: Counter[str] = Counter()

    # --- registration ---

    def refresh(
        self, identity: BrokerIdentity, connection: Connection, fingerprint: bytes
    ) -> MasterOf | None:
        """Take an unchanged registration for a heartbeat; return None if it must be read.

        Brokers send all their topics every 30 seconds, usually the same bytes.
        """
        broker = self._live.get(identity.key)
        if (
            broker is None
            or broker.identity != identity
            or broker.fingerprint != fingerprint
            or broker.table_version != self._brokers.version
        ):
            return None
        self._live.put(identity, connection)
        self.registrations["unchanged"] += 1
        return self._master_of(identity)

    def register(
        self,
        identity: BrokerIdentity,
        connection: Connection | None,
        registered: RegisteredTopics,
        fingerprint: bytes = b"",
    ) -> Steps[MasterOf]:
        """Apply a registration to the tables. Raises CommandError if it is refused."""
        old_group = self._brokers.get(identity.name)
        group = _without_duplicate(old_group, identity)
        if self._is_outdated(identity, group, registered):
            self._live.remove(identity.key)
            self.registrations["outdated"] += 1
            return NO_MASTER
        is_new = identity.broker_id not in group.addresses
        if is_new and len(registered.topics) == 1:
            self.registrations["refused"] += 1
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"broker {identity.name} ({identity.broker_id}) at {identity.address} is not registered: a "
                "single topic is accepted only after the broker has registered all its topics once",
            )
        self._report_conflict(identity, group)
        group = group.with_addresses({**group.addresses, identity.broker_id: identity.address})
        self._brokers.put(group, identity.cluster)
        table_version = self._brokers.version
        known = self._live.get(identity.key)
        is_changed = is_new or known is None or known.data_version != registered.data_version
        broker = self._live.put(identity, connection)
        if known is None:
            log.info("broker registered %s", _described(identity))

        if _defines_topics(identity, group):
            done = yield from self._take_topics(broker, group, registered, is_new, is_changed)
            if not done:
                self.registrations["interrupted"] += 1
                return NO_MASTER
        broker.data_version = registered.data_version
        broker.fingerprint = fingerprint
        broker.table_version = table_version
        self.registrations["changed" if is_changed else "repeated"] += 1
        self._notify_of(smallest_joined(old_group, group, identity.ha_address))
        return self._master_of(identity)

    def _report_conflict(self, identity: BrokerIdentity, group: BrokerGroup) -> None:
        """Log an error if a broker takes over the name and id of another one that still lives."""
        other = group.addresses.get(identity.broker_id)
        if other is None or other == identity.address or self._live.get((identity.cluster, other)) is None:
            return
        log.error(
            "two brokers have one name broker=%s broker_id=%d address=%s other_address=%s: the route now has "
            "the first address, and clients reach only one of the two. Set another brokerName for one of "
            "them, or stop it",
            identity.name,
            identity.broker_id,
            identity.address,
            other,
        )

    def _is_outdated(
        self, identity: BrokerIdentity, group: BrokerGroup, registered: RegisteredTopics
    ) -> bool:
        """Return whether another address has this broker id with a newer state: an old master returns."""
        old_address = group.addresses.get(identity.broker_id)
        if old_address is None or old_address == identity.address:
            return False
        holder = self._live.get((identity.cluster, old_address))
        if holder is None or holder.data_version is None:
            return False
        old, new = holder.data_version.state_version, registered.data_version.state_version
        if old > new:
            log.warning(
                "registration ignored, another broker has this id with a newer state %s state_version=%d "
                "other_address=%s other_state_version=%d",
                _described(identity),
                new,
                old_address,
                old,
            )
        return old > new

    def _take_topics(
        self,
        broker: LiveBroker,
        group: BrokerGroup,
        registered: RegisteredTopics,
        is_new: bool,
        is_changed: bool,
    ) -> Steps[bool]:
        """Apply the topics to the routes; return False if the broker left meanwhile."""
        identity, routes, name = broker.identity, self._routes, group.name
        if self._settings.delete_topic_with_broker_registration and not registered.mappings:
            yield from self._drop_unlisted(broker, registered.topics)
            if self._live.get(identity.key) is not broker:
                return False
        wiped = identity.broker_id != MASTER_BROKER_ID and group.enable_acting_master
        changes: dict[tuple[Route | None, QueueNumbers], Route] = {}
        for count, (topic, numbers) in enumerate(registered.topics.items(), 1):
            if count % TOPICS_PER_STEP == 0:
                yield
                if self._live.get(identity.key) is not broker:
                    return False
            route = routes.get(topic)
            # With a known version, later changes by operators (a wiped write permission) are kept; only
            # missing topics are added.
            if not is_changed and route is not None and name in route.queues:
                continue
            new = changes.get((route, numbers))
            if new is None:
                taken = numbers.with_perm(numbers.perm & ~PERM_WRITE) if wiped else numbers
                new = changes[route, numbers] = routes.with_queues(route, name, taken)
            if new is not route:
                routes.put(topic, new)
        if is_changed or is_new:
            for topic, mapping in registered.mappings.items():
                routes.put_mapping(topic, mapping.broker_name or name, mapping)
        return True

    def _drop_unlisted(self, broker: LiveBroker, listed: Mapping[str, QueueNumbers]) -> Steps[None]:
        """Remove the broker from the routes of all topics that its registration does not list."""
        name, routes = broker.identity.name, self._routes
        for count, topic in enumerate(routes.topics(), 1):
            if count % TOPICS_PER_STEP == 0:
                yield
                if self._live.get(broker.identity.key) is not broker:
                    return
            route = routes.get(topic)
            if topic not in listed and route is not None and name in route.queues:
                log.info("topic removed from broker topic=%s broker=%s", topic, name)
                routes.put(topic, routes.without(route, (name,)))

    def _master_of(self, identity: BrokerIdentity) -> MasterOf:
        group = self._brokers.get(identity.name)
        if identity.broker_id == MASTER_BROKER_ID or group is None:
            return NO_MASTER
        address = group.addresses.get(MASTER_BROKER_ID)
        master = None if address is None else self._live.get((identity.cluster, address))
        return NO_MASTER if master is None else MasterOf(address, master.identity.ha_address)

    # --- departure ---

    def leave(self, departures: Iterable[Departure], reason: str) -> Steps[None]:
        """Remove brokers: their addresses at once, their queues in the routes step by step."""
        gone: set[str] = set()
        reduced: set[str] = set()
        changes: dict[str, MinBrokerChange | None] = {}
        for departure in departures:
            name, before = departure.name, self._brokers.get(departure.name)
            was_alive = self._live.remove(departure.key) is not None
            after = None if before is None else before.without_address(departure.address)
            if was_alive or after is not before:
                self.departures[reason] += 1
                log.info("broker left reason=%s broker=%s address=%s", reason, name, departure.address)
            if before is None or after is None or after is before:
                continue
            if after.addresses:
                self._brokers.put(after)
                reduced.add(name)
                changes[name] = smallest_left(before, after, departure.address) or changes.get(name)
            else:
                self._brokers.remove(name)
                gone.add(name)
        for name, change in changes.items():
            if name not in gone:
                self._notify_of(change)
        return self._forget(gone, reduced)

    def _notify_of(self, change: MinBrokerChange | None) -> None:
        if change is not None and self._settings.notify_min_broker_id_changed:
            self._notify(change)

    def _forget(self, gone: set[str], reduced: set[str]) -> Steps[None]:
        """Remove brokers that left from all routes, and the write permission of those without a master."""
        # A registration that was ahead of this job in the lane may have restored a broker.
        gone = {name for name in gone if self._brokers.get(name) is None}
        masterless = {
            name
            for name in reduced
            if (group := self._brokers.get(name)) is not None
            and group.enable_acting_master
            and not group.has_master
        }
        names = gone | masterless
        if names:
            yield from self._routes.sweep(names, lambda route: self._less(route, gone, masterless))

    def _less(self, route: Route, gone: set[str], masterless: set[str]) -> Route:
        routes = self._routes
        route = routes.without(route, gone)
        for name in masterless & route.queues.keys():
            numbers = route.queues[name].numbers
            route = routes.with_queues(route, name, numbers.with_perm(numbers.perm & ~PERM_WRITE))
        return route

    def leave_by_connection(self, connection: Connection) -> Steps[None] | None:
        """Remove the brokers that registered over a closed connection; None if there are none.

        Apache's name server removes only one of several brokers that share a connection, as those of a broker
        container do, and the others after their heartbeat time-out.
        """
        brokers = self._live.of_connection(connection)
        if not brokers:
            return None
        return self.leave([Departure.of(broker.identity) for broker in brokers], "connection closed")

    def leave_silent(self) -> Steps[None] | None:
        """Remove the brokers whose heartbeats have timed out, and close their connections."""
        brokers = self._live.silent()
        if not brokers:
            return None
        steps = self.leave([Departure.of(broker.identity) for broker in brokers], "silent")
        for broker in brokers:
            if broker.connection is not None:
                broker.connection.close()
        return steps

    # --- topics and permissions ---

    def register_topic(self, topic: str, queues: Iterable[tuple[str, QueueNumbers]]) -> None:
        """Add one topic. Raises CommandError, with nothing changed, if a broker is not registered.

        Apache's name server answers that case with success after doing nothing or half of the change.
        """
        given = list(queues)
        unknown = sorted({name for name, _ in given if self._brokers.get(name) is None})
        if unknown:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} is not registered: no broker {', '.join(unknown)} is registered here",
            )
        route = self._routes.get(topic)
        for name, numbers in given:
            route = self._routes.with_queues(route, name, numbers)
        if route is not None:
            self._routes.put(topic, route)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Delete a topic, or its queues in one cluster; a later registration may restore it."""
        if not cluster:
            found = self._routes.delete(topic)
        else:
            route = self._routes.get(topic)
            names = self._brokers.names_of(cluster)
            found = route is not None and not names.isdisjoint(route.queues)
            if route is not None and found:
                self._routes.put(topic, self._routes.without(route, names))
        if found:
            log.info("topic deleted topic=%s cluster=%s", topic, cluster or "(all)")
            self._brokers.touch()  # read the next registration of every broker, even an unchanged one

    def wipe_write_permission(self, broker_name: str) -> Steps[int]:
        """Remove the write permission of all queues of a broker name; return the number of its topics."""
        return self._change_permissions(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> Steps[int]:
        """Make all queues of a broker name readable and writable; return the number of its topics.

        Apache sets exactly these two permissions; here an inherit permission (of TBW102) is kept.
        """
        return self._change_permissions(broker_name, lambda perm: perm | PERM_READ | PERM_WRITE)

    def _change_permissions(self, broker_name: str, changed: Callable[[int], int]) -> Steps[int]:
        def change(route: Route) -> Route:
            numbers = route.queues[broker_name].numbers
            return self._routes.with_queues(route, broker_name, numbers.with_perm(changed(numbers.perm)))

        return (yield from self._routes.sweep((broker_name,), change))


def _without_duplicate(group: BrokerGroup | None, identity: BrokerIdentity) -> BrokerGroup:
    """Return the broker's group as registered, without the same address under another id.

    A broker that changes between slave and master keeps its address.
    """
    known = NO_ADDRESSES if group is None else group.addresses
    addresses = {
        number: address
        for number, address in known.items()
        if address != identity.address or number == identity.broker_id
    }
    cluster = group.cluster if group is not None else identity.cluster
    acting = bool(identity.enable_acting_master)
    return BrokerGroup(cluster, identity.name, addresses, identity.zone_name, acting)


def _defines_topics(identity: BrokerIdentity, group: BrokerGroup) -> bool:
    """Return whether the broker defines the topics of its name: a master, or a slave that may act as one."""
    if identity.broker_id == MASTER_BROKER_ID:
        return True
    return identity.enable_acting_master is not None and identity.broker_id == group.smallest_id


def _described(identity: BrokerIdentity) -> str:
    return (
        f"broker={identity.name} broker_id={identity.broker_id} cluster={identity.cluster} "
        f"address={identity.address} ha_address={identity.ha_address or '-'}"
    )
