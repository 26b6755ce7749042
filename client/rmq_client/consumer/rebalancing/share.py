"""The queues of one topic that belong to one consumer."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.message_queue import MessageQueue

from ..requests.pop_source import PopSource


@dataclass(frozen=True, slots=True)
class Share:
    """This consumer's share of one topic: queues to pull, and sources to pop.

    `sole_member`: no other member can have had the queues a moment ago.
    """

    queues: frozenset[MessageQueue]
    sole_member: bool
    sources: frozenset[PopSource] = frozenset()
