"""The queues of one topic that belong to one consumer."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.message_queue import MessageQueue

from ..requests.pop_source import PopSource


@dataclass(frozen=True, slots=True)
class Share:
    """What is this consumer's of one topic: queues to pull, and where to pop.

    `alone`: nobody else can have had the queues just now.
    """

    queues: frozenset[MessageQueue]
    sole_member: bool
    sources: frozenset[PopSource] = frozenset()
