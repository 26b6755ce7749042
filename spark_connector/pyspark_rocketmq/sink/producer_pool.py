"""Producers of this process, shared by its tasks, and the event loop that they run on.

Spark's workers run one task after the other, so a task finds the connections that earlier tasks opened. Of
the idle producers, the most recently used stay open. Spark ends idle workers, and their producers with them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rmq_client.forks import after_fork_in_child
from rmq_client.loop_thread import LoopThread
from rmq_client.producer.encoded import EncodedProducer
from rmq_client.producer.policies import RetryPolicy

from .row_ids import UniqueKeys
from .send_requests import SendRequest
from .sender import Sender
from .settings import SinkSettings

_MAX_IDLE: Final = 4

_Key = tuple[Any, ...]


@dataclass(slots=True)
class _PooledProducer:
    producer: EncodedProducer
    users: int = 0


class BlockingSender:
    """Blocking interface to a `Sender` for a thread without an event loop."""

    def __init__(self, thread: LoopThread, sender: Sender) -> None:
        self._thread = thread
        self._sender = sender

    def queues(self, topics: list[str]) -> dict[str, Any]:
        """As `Sender.queues`."""
        return self._thread.submit(self._sender.queues(topics)).result()

    def send_all(self, send_requests: list[SendRequest]) -> Future[dict[int, str]]:
        """As `Sender.send_all`. Cancelling the future cancels the requests in flight."""
        return self._thread.submit(self._sender.send_all(send_requests))


class ProducerPool:
    """The producers of this process by name servers, group and client settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._producers: dict[_Key, _PooledProducer] = {}
        self.unique_keys = UniqueKeys.of_this_process(os.getpid())

    @contextmanager
    def sender(self, settings: SinkSettings) -> Iterator[BlockingSender]:
        """Lend a sender to one task. Raises ClientError."""
        key = (settings.name_servers, settings.group, settings.client)
        thread, pooled = self._acquire(key, settings)
        try:
            yield BlockingSender(thread, thread.submit(_sender(pooled.producer, settings)).result())
        finally:
            self._release(pooled)

    def close(self) -> None:
        """Stop all producers; none may be in use."""
        with self._lock:
            self._drop_idle(0)
            if self._thread is not None and not self._producers:
                self._thread.signal_stop()
                self._thread.join()
                self._thread = None

    def _acquire(self, key: _Key, settings: SinkSettings) -> tuple[LoopThread, _PooledProducer]:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("rmq-spark-sink")
            pooled = self._producers.pop(key, None)
            if pooled is None:
                producer = EncodedProducer(
                    settings.name_servers, settings.group, settings.client, RetryPolicy()
                )
                self._thread.submit(producer.start()).result()
                pooled = _PooledProducer(producer)
            self._producers[key] = pooled  # most recently used last
            pooled.users += 1
            return self._thread, pooled

    def _release(self, pooled: _PooledProducer) -> None:
        with self._lock:
            pooled.users -= 1
            self._drop_idle(_MAX_IDLE)

    def _drop_idle(self, most: int) -> None:
        idle = [key for key, pooled in self._producers.items() if not pooled.users]
        for key in idle[: max(0, len(idle) - most)]:
            assert self._thread is not None
            self._thread.submit(self._producers.pop(key).producer.stop()).result()


async def _sender(producer: EncodedProducer, settings: SinkSettings) -> Sender:
    """Create a sender on its event loop, as it requires."""
    return Sender(producer, settings)


_pool: ProducerPool | None = None


def producer_pool() -> ProducerPool:
    """Return the pool of this process."""
    global _pool  # noqa: PLW0603
    if _pool is None:
        _pool = ProducerPool()
    return _pool


def _reset_after_fork() -> None:
    """Start with an empty pool after a fork: the child process lacks the threads."""
    global _pool  # noqa: PLW0603
    _pool = None


after_fork_in_child(_reset_after_fork)
