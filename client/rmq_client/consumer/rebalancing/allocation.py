"""Strategies by which the consumers of a group divide the queues of a topic.

Each consumer computes all shares from the same sorted lists. So all get the same result without
communication, as long as they use the same strategy (Apache RocketMQ 5.3.3, package
client.consumer.rebalance).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rmq_remoting.message_queue import MessageQueue

from ...checks import check_callable, check_each, check_int, check_queues
from ...errors import UsageError
from ...namespaces import Namespace

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Returns the queues of a consumer for (its client id, all queues in order, all client ids in order)."""

DEFAULT_VIRTUAL_NODES: Final = 10


def with_namespace(namespace: Namespace, allocation: Allocation) -> Allocation:
    """Return the strategy for full names; it gets queues with the application's names."""
    if not namespace.name:
        return allocation

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return namespace.wrap_queues(allocation(client_id, namespace.unwrap_queues(queues), client_ids))

    return allocate


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Assign neighbouring queues to one consumer; the first consumers get one more of an uneven number."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    begin = index * share + min(index, rest)
    return list(queues[begin : begin + share + (index < rest)])


def by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Deal out the queues one by one."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_configuration(chosen: Iterable[MessageQueue]) -> Allocation:
    """Return a strategy that assigns exactly these queues, whoever else is in the group.

    Queues of other topics, and queues that do not exist, are left out.
    """
    wanted = check_queues("chosen", chosen)

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        there = frozenset(queues)
        return [queue for queue in wanted if queue in there]

    return allocate


def by_machine_room(rooms: str | Iterable[str]) -> Allocation:
    """Return a strategy for the queues of brokers in these machine rooms, `room@name`.

    Neighbouring queues go to one consumer. An uneven rest goes to the first consumers, from the end of the
    list.
    """
    named = [rooms] if isinstance(rooms, str) else check_each("rooms", rooms, str, "give names of rooms")
    wanted = frozenset(named)

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        here = [queue for queue in queues if _room(queue.broker_name) in wanted]
        index = client_ids.index(client_id)
        share, rest = divmod(len(here), len(client_ids))
        allocated = here[index * share : (index + 1) * share]
        if index < rest:
            allocated.append(here[share * len(client_ids) + index])
        return allocated

    return allocate


def nearby(
    inner: Allocation, room_of_queue: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
) -> Allocation:
    """Return a strategy that divides the queues of each machine room among its consumers, by `inner`.

    Queues of a room without a consumer are divided among all. The strategy raises UsageError for a queue or a
    consumer without a room.
    """
    check_callable("inner", inner, 3, "client id, queues and client ids")
    check_callable("room_of_queue", room_of_queue, 1, "a queue")
    check_callable("room_of_client", room_of_client, 1, "a client id")

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_by_room = defaultdict(list)
        for queue in queues:
            queues_by_room[_require_room(room_of_queue(queue), queue)].append(queue)
        clients_by_room = defaultdict(list)
        for client in client_ids:
            clients_by_room[_require_room(room_of_client(client), client)].append(client)
        own_room = room_of_client(client_id)
        own_queues = queues_by_room.pop(own_room, [])
        allocated = inner(client_id, own_queues, clients_by_room[own_room]) if own_queues else []
        for room in sorted(queues_by_room):
            if room not in clients_by_room:
                allocated += inner(client_id, queues_by_room[room], client_ids)
        return allocated

    return allocate


def by_consistent_hash(virtual_nodes: int = DEFAULT_VIRTUAL_NODES) -> Allocation:
    """Return a strategy that places queues and consumers on a hash ring; a queue goes to the next consumer.

    When a consumer joins or leaves, most queues keep their consumer. `virtual_nodes`: positions of each
    consumer on the ring. Raises UsageError.
    """
    check_int("virtual_nodes", virtual_nodes, least=1)

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        nodes = {
            _ring_hash(f"{client}-{number}"): client
            for client in client_ids
            for number in range(virtual_nodes)
        }
        ring = sorted(nodes)
        return [
            queue
            for queue in queues
            if nodes[ring[bisect_left(ring, _ring_hash(queue.java_text())) % len(ring)]] == client_id
        ]

    return allocate


def _ring_hash(text: str) -> int:
    """Return the first four bytes of the MD5 hash (Apache RocketMQ 5.3.3, ConsistentHashRouter)."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _room(broker_name: str) -> str | None:
    room, separator, name = broker_name.partition("@")
    return room if separator and name and "@" not in name else None


def _require_room(room: str, what: object) -> str:
    if not room:
        raise UsageError(f"{what} has no machine room")
    return room
