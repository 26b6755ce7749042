"""Dividing a topic's queues among a group's consumers, for clients that leave it to the broker.

Source: Apache RocketMQ 5.3.3, QueryAssignmentProcessor, AllocateMessageQueueAveragely and
AllocateMessageQueueAveragelyByCircle: the two strategies that its broker knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rmq_remoting.message_queue import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""A client's queues of all queues, given all clients; queues and clients are sorted."""

# A queue id that stands for all queues of a broker.
_ANY_QUEUE: Final = -1


def averagely(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Each client has queues that follow each other; the first clients have one more."""
    if client not in clients:
        return []
    index = clients.index(client)
    each, more = divmod(len(queues), len(clients))
    begin = index * each + min(index, more)
    return list(queues[begin : begin + each + (index < more)])


def by_circle(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Queues are dealt out in turns."""
    return list(queues[clients.index(client) :: len(clients)]) if client in clients else []


STRATEGIES: Final[Mapping[str, Strategy]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def shared_for_pop(
    strategy: Strategy,
    client: str,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    shared_with: int,
) -> list[MessageQueue]:
    """Where a client pops: of its own queues and those of the `shared_with` clients that follow it.

    With 0 and less, or all clients: of any queue of each broker.
    """
    if shared_with <= 0 or shared_with >= len(clients) - 1:
        return list(
            dict.fromkeys(MessageQueue(queue.topic, queue.broker_name, _ANY_QUEUE) for queue in queues)
        )
    if client not in clients or not queues:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    sharing = [clients[(index + number) % len(clients)] for number in range(shared_with + 1)]
    return list(dict.fromkeys(queue for other in sharing for queue in strategy(other, queues, clients)))
