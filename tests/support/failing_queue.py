"""A completion queue of gRPC's core that raises errors instead of events."""

from __future__ import annotations

from typing import Any

from grpc._cython import cygrpc


class FailingQueue(cygrpc.CompletionQueue):  # type: ignore[misc]  # the core has no types
    """Loses its next events, or all of them. In place of `cygrpc.CompletionQueue`."""

    # Events to lose from now on.
    lose = 0
    is_broken = False

    def poll(self, deadline: float | None = None) -> Any:
        """Return the next event. Raises MemoryError for a lost one, OSError if the queue is broken."""
        event = super().poll(deadline)
        if self.is_broken:
            raise OSError("no queue")
        if self.lose and event.completion_type == cygrpc.CompletionType.operation_complete:
            self.lose -= 1
            raise MemoryError("no memory")
        return event
