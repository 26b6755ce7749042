"""Events of gRPC's core, handled by the loop in batches.

A call has five events or more. `grpc.aio` wakes the loop for each of them: its poller thread takes one event,
and writes one byte to a socket. Here a thread waits for the first event only. The loop handles that one and
all that follow, and the thread waits again after the loop has found none several times.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from grpc._cython import cygrpc

log = logging.getLogger("rmq.proxy")

_NO_EVENT: Final = int(cygrpc.CompletionType.queue_timeout)
_END: Final = int(cygrpc.CompletionType.queue_shutdown)
# A time in the past: take an event that is there, and do not wait.
_NOW: Final = 0.0
# Other work of the loop gets its turn after this number of events.
_MOST_AT_ONCE: Final = 32
# The next events of a call follow within a few iterations of the loop. To wake the thread takes longer.
_IDLE_ITERATIONS: Final = 4

# Takes the event; its attribute `success` says whether the operation took place.
Tag = Callable[[Any], None]


class Completions:
    """A completion queue whose events the loop handles: each calls its tag. Belongs to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue: Any = cygrpc.CompletionQueue()
        self.is_open = True
        # Whether the thread waits for events, so that the loop has nothing to do.
        self.is_watched = True
        self._loop = loop
        self._idle = 0
        # Held while the thread must not wait for events.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._ended: asyncio.Future[None] = loop.create_future()

    def start(self) -> None:
        """Begin to handle events."""
        threading.Thread(target=self._watch, name="gRPC: events", daemon=True).start()

    async def close(self) -> None:
        """Handle the events of all operations begun so far; further operations must not begin."""
        self.is_open = False
        self.queue.shutdown()
        await self._ended

    def _watch(self) -> None:
        """Wait for events while the loop does not look for them. Runs in the thread."""
        while True:
            event = self.queue.poll()
            is_last = event.completion_type == _END
            try:
                self._loop.call_soon_threadsafe(self._woken, event)
            except RuntimeError:  # the loop was closed without a stop of the server
                return
            if is_last:
                return
            event = None  # it holds its call
            self._gate.acquire()

    def _woken(self, event: Any) -> None:
        self.is_watched = False
        if self._handled(event):
            self._drain()

    def _drain(self) -> None:
        """Handle the events that are there, and look again in the next iteration."""
        poll = self.queue.poll
        count = 0
        while count < _MOST_AT_ONCE:
            event = poll(_NOW)
            if event.completion_type == _NO_EVENT:
                break
            if not self._handled(event):
                self._gate.release()  # the thread finds the end of the queue, too
                return
            count += 1
        self._idle = 0 if count else self._idle + 1
        if self._idle <= _IDLE_ITERATIONS:
            self._loop.call_soon(self._drain)
        else:
            self._idle = 0
            self.is_watched = True
            self._gate.release()

    def _handled(self, event: Any) -> bool:
        """Call the tag of an event; return False for the end of the queue."""
        if event.completion_type == _END:
            if not self._ended.done():
                self._ended.set_result(None)
            return False
        try:
            event.tag(event)
        except Exception:
            log.exception("event of a gRPC call not handled")
        return True
