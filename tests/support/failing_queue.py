"""A completion queue of gRPC's core that raises errors instead of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from grpc._cython import cygrpc

from rmq_proxy.network import completions


class FailingQueue(cygrpc.CompletionQueue):  # type: ignore[misc]  # the core has no types
    """Loses its next events, or all of them, and counts the polls. In place of `cygrpc.CompletionQueue`."""

    # Events to lose from now on.
    lose = 0
    is_broken = False
    polls = 0

    def poll(self, deadline: float | None = None) -> Any:
        """Return the next event. Raises MemoryError for a lost one, OSError if the queue is broken."""
        self.polls += 1
        event = super().poll(deadline)
        if self.is_broken:
            raise OSError("no queue")
        if self.lose and event.completion_type == cygrpc.CompletionType.operation_complete:
            self.lose -= 1
            raise MemoryError("no memory")
        return event


@contextmanager
def failing_queues() -> Iterator[list[FailingQueue]]:
    """Give failing queues to the servers that are created meanwhile; yields the queues. Pauses are short."""
    created: list[FailingQueue] = []

    def create() -> FailingQueue:
        created.append(FailingQueue())
        return created[-1]

    with (
        patch.object(cygrpc, "CompletionQueue", create),
        patch.object(completions, "LONGEST_PAUSE_SECONDS", 0.01),
    ):
        yield created
