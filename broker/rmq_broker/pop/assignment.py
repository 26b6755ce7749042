"""Assignment of a topic's queues to a group's consumers, for clients that leave it to the broker.

Source: Apache RocketMQ 5.3.3, QueryAssignmentProcessor, AllocateMessageQueueAveragely and
AllocateMessageQueueAveragelyByCircle: the two strategies of Apache's broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rmq_remoting.message_queue import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Returns the queues of one client, given all queues and all clients, both sorted."""

# A queue id that stands for all queues of a broker.
_ANY_QUEUE: Final = -1


def averagely(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Assign each client consecutive queues. The first clients get one more if they do not divide evenly."""
    if client not in clients:
        return []
    index = clients.index(client)
    each, more = divmod(len(queues), len(clients))
    begin = index * each + min(index, more)
    return list(queues[begin : begin + each + (index < more)])


def by_circle(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Assign queues in turns (round robin)."""
    return list(queues[clients.index(client) :: len(clients)]) if client in clients else []


STRATEGIES: Final[Mapping[str, Strategy]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def shared_for_pop(
    strategy: Strategy,
    client: str,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    shared_with: int,
) -> list[MessageQueue]:
    """Return the queues that a client pops from: its own, and those of the next `shared_with` clients.

    If `shared_with` is 0 or less, or covers all clients: any queue of each broker.
    """
    if shared_with <= 0 or shared_with >= len(clients) - 1:
        brokers = dict.fromkeys([(queue.topic, queue.broker_name) for queue in queues])
        return [MessageQueue(topic, name, _ANY_QUEUE) for topic, name in brokers]
    if client not in clients or not queues:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    sharing = [clients[(index + number) % len(clients)] for number in range(shared_with + 1)]
    return list(dict.fromkeys(queue for other in sharing for queue in strategy(other, queues, clients)))
