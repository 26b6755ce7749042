"""Bounds of what a consumer holds of one queue before it stops pulling."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..checks import check_int, check_optional_int, short_repr


@dataclass(frozen=True, slots=True, repr=False)
class FlowControl:
    """Bounds of one queue's messages that wait for the listener. Above any of them, the queue is not pulled.

    `max_span`: distance between the first and the last offset, so that one stuck message does not cause the
    redelivery of everything after it when the consumer restarts. `max_topic_messages`, `max_topic_bytes`:
    bounds of all queues of a topic that the consumer has; each queue gets an even part, in place of the bound
    of a queue.
    """

    max_messages: int = 1_000
    max_bytes: int = 100 * 1024 * 1024
    max_span: int = 2_000
    max_topic_messages: int | None = None
    max_topic_bytes: int | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Refuse bounds that admit nothing."""
        for name in ("max_messages", "max_bytes", "max_span"):
            check_int(name, getattr(self, name), least=1)
        for name in ("max_topic_messages", "max_topic_bytes"):
            check_optional_int(name, getattr(self, name), least=1)

    @property
    def is_per_topic(self) -> bool:
        """Whether the bounds of a queue depend on the number of queues of its topic."""
        return self.max_topic_messages is not None or self.max_topic_bytes is not None

    def for_queues(self, count: int) -> FlowControl:
        """Return the bounds of each of the `count` queues that the consumer has of a topic."""
        count = max(1, count)
        messages, size_bytes = self.max_topic_messages, self.max_topic_bytes
        return replace(
            self,
            max_messages=self.max_messages if messages is None else max(1, messages // count),
            max_bytes=self.max_bytes if size_bytes is None else max(1, size_bytes // count),
        )
