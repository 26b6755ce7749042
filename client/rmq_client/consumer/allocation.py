"""How the consumers of a group divide the queues of a topic among themselves.

Each computes all shares for itself, from the same sorted lists: so all come to the same end without talking
(Apache RocketMQ 5.3.3, AllocateMessageQueueAveragely and AllocateMessageQueueAveragelyByCircle).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmq_remoting.message_queue import MessageQueue

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""The share of a consumer: (its client id, all queues in order, all client ids in order) -> its queues."""


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Neighbouring queues go to one consumer; the first ones get one more where it does not come out even."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    begin = index * share + min(index, rest)
    return list(queues[begin : begin + share + (index < rest)])


def by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Queues are dealt out one by one in a circle."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])
