"""Connections of this process: producers that tasks share, and the loop that they live on.

Spark's workers do one task after the other, so what one task opened the next finds open. Of producers that no
task uses the youngest few stay; a worker that is idle ends, and all go with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rmq_client.loop_thread import LoopThread
from rmq_client.producer.encoded import EncodedProducer
from rmq_client.producer.policies import RetryPolicy

from .courier import Courier
from .parcels import Parcel
from .row_ids import UniqueKeys
from .settings import SinkSettings

_MAX_IDLE: Final = 4

_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Shared:
    producer: EncodedProducer
    users: int = 0


class Mail:
    """A courier for a thread that has no loop."""

    def __init__(self, thread: LoopThread, courier: Courier) -> None:
        self._thread = thread
        self._courier = courier

    def queues(self, topics: list[str]) -> dict[str, Any]:
        """As Courier.queues."""
        return self._thread.submit(self._courier.queues(topics)).result()

    def deliver(self, parcels: list[Parcel]) -> Future[dict[int, str]]:
        """As Courier.deliver; cancelling the future ends what is under way."""
        return self._thread.submit(self._courier.deliver(parcels))


class Connections:
    """The producers of this process, by what they are for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._shared: dict[_Key, _Shared] = {}
        self.unique_keys = UniqueKeys.of_this_process(os.getpid())

    @contextmanager
    def mail(self, settings: SinkSettings) -> Iterator[Mail]:
        """A courier for one task. Raises ClientError."""
        key = (settings.name_servers, settings.group, settings.client)
        thread, shared = self._take(key, settings)
        try:
            yield Mail(thread, thread.submit(_courier(shared.producer, settings)).result())
        finally:
            self._give_back(shared)

    def close(self) -> None:
        """Stop all producers; none may be in use."""
        with self._lock:
            self._drop_idle(0)
            if self._thread is not None and not self._shared:
                self._thread.signal_stop()
                self._thread.join()
                self._thread = None

    def _take(self, key: _Key, settings: SinkSettings) -> tuple[LoopThread, _Shared]:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("rmq-spark-sink")
            shared = self._shared.pop(key, None)
            if shared is None:
                producer = EncodedProducer(
                    settings.name_servers, settings.group, settings.client, RetryPolicy()
                )
                self._thread.submit(producer.start()).result()
                shared = _Shared(producer)
            self._shared[key] = shared  # the youngest is the last
            shared.users += 1
            return self._thread, shared

    def _give_back(self, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            self._drop_idle(_MAX_IDLE)

    def _drop_idle(self, most: int) -> None:
        idle = [key for key, shared in self._shared.items() if not shared.users]
        for key in idle[: max(0, len(idle) - most)]:
            assert self._thread is not None
            self._thread.submit(self._shared.pop(key).producer.stop()).result()


async def _courier(producer: EncodedProducer, settings: SinkSettings) -> Courier:
    """A courier has to be made on its loop."""
    return Courier(producer, settings)


_connections: Connections | None = None


def connections() -> Connections:
    """Those of this process."""
    global _connections  # noqa: PLW0603
    if _connections is None:
        _connections = Connections()
    return _connections


def _forget() -> None:
    """A forked process has none of the threads."""
    global _connections  # noqa: PLW0603
    _connections = None


os.register_at_fork(after_in_child=_forget)
