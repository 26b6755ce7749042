"""Shared parts of tests of consumption: kinds of listeners, and a runner whose outcomes the test sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmq_client import ClientError, ConsumeResult
from rmq_client.consumer.offsets.offset_store import OffsetStore
from rmq_client.consumer.processing.listener import Context, ListenerKind, inspect_listener
from rmq_client.consumer.processing.listener_call import ListenerCall
from rmq_client.consumer.processing.service import ConsumeService
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


class MemoryOffsets(OffsetStore):
    """Offsets in memory; commits are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[dict[MessageQueue, int]] = []

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        return None

    async def commit(
        self, queues: Iterable[MessageQueue] | None = None, *, failures: list[ClientError] | None = None
    ) -> bool:
        self.committed.append({queue: self._offsets[queue] for queue in self._chosen(queues)})
        return True


class HeldRunner:
    """Keeps the calls; the test sets their outcomes."""

    def __init__(self, capacity: int = 1_000) -> None:
        self.capacity = capacity
        self.call: list[ListenerCall] = []

    def submit(self, calls: Sequence[ListenerCall]) -> int:
        taken = calls[: max(0, self.capacity - len(self.call))]
        self.call += taken
        return len(taken)

    async def stop(self, grace_seconds: float) -> bool:
        return True


def kind(*, orderly: bool = False, none_means: ConsumeResult = ConsumeResult.SUCCESS) -> ListenerKind:
    def listen(messages: list[MessageExt]) -> None:
        """Never called."""

    return inspect_listener(listen, orderly=orderly, none_means=none_means)


def finish(
    service: ConsumeService,
    call: ListenerCall,
    result: ConsumeResult | None = None,
    error: Exception | None = None,
    context: Context | None = None,
    now: float = 0.0,
) -> None:
    """Simulate the return of the listener from a call."""
    if call.begin(now):
        call.result, call.error, call.context = result, error, context
    service.done(call)


def messages(offsets: Iterable[int], topic: str = "T") -> list[MessageExt]:
    return [MessageExt(topic, b"x", queue_offset=offset, physical_offset=offset) for offset in offsets]
