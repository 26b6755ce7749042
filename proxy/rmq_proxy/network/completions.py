"""Events of gRPC's core, handled by the loop in batches.

A call has five events or more. `grpc.aio` wakes the loop for each of them: its poller thread takes one event,
and writes one byte to a socket. Here a thread waits for the first event only. The loop handles that one and
all that follow, and the thread waits again after the loop has found none several times.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from grpc._cython import cygrpc

from rmq_remoting.repeated_event import RepeatedEvent

from ..event_failures import EventFailures

log = logging.getLogger("rmq.proxy")

_NO_EVENT: Final = int(cygrpc.CompletionType.queue_timeout)
_END: Final = int(cygrpc.CompletionType.queue_shutdown)
# A time in the past: take an event that is there, and do not wait.
_NOW: Final = 0.0
# Other work of the loop gets its turn after this number of events.
_MOST_AT_ONCE: Final = 32
# The next events of a call follow within a few iterations of the loop. To wake the thread takes longer.
_IDLE_ITERATIONS: Final = 4
_LOG_SECONDS: Final = 60.0
# After this number of failures in a row, which take 12 s with their pauses, the queue counts as broken.
MOST_FAILURES: Final = 20
# The first failures in a row have no pause: the next event may be good.
_WITHOUT_PAUSE: Final = 2
_FIRST_PAUSE_SECONDS: Final = 0.01
LONGEST_PAUSE_SECONDS: Final = 1.0

# Takes the event; its attribute `success` says whether the operation took place.
Tag = Callable[[Any], None]


class Completions:
    """A completion queue whose events the loop handles: each calls its tag. Belongs to one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        failures: EventFailures,
        on_lost: Callable[[], None],
        on_broken: Callable[[], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`on_lost` is called when the queue raised instead of an event, `on_broken` if it does so always.

        `pause` waits for seconds, in the thread.
        """
        self.queue: Any = cygrpc.CompletionQueue()
        self.is_open = True
        # Whether the thread waits for events, so that the loop has nothing to do.
        self.is_watched = True
        self._loop = loop
        self._failures = failures
        self._on_lost = on_lost
        self._on_broken = on_broken
        self._pause = pause
        self._unhandled = RepeatedEvent(_LOG_SECONDS)
        self._idle = 0
        # Failures of the queue since its last answer. The loop or the thread counts, whichever polls.
        self._failed_polls = 0
        # Held while the thread must not wait for events.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._is_started = False
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Begin to handle events; later calls have no effect. Raises RuntimeError if no thread can start."""
        if not self._is_started:
            threading.Thread(target=self._watch, name="gRPC: events", daemon=True).start()
            self._is_started = True

    async def close(self) -> None:
        """Handle the events of all operations begun so far; further operations must not begin.

        May be called repeatedly, and before `start`. Raises RuntimeError if no thread can start.
        """
        if self.is_open:
            self.is_open = False
            self.queue.shutdown()
            self.start()  # the thread finds the end of the queue
        await self._ended.wait()

    # --- in the thread ---

    def _watch(self) -> None:
        """Wait for events while the loop does not look for them."""
        while True:
            failed = self._failed_polls
            if failed > _WITHOUT_PAUSE:
                growth = 2 ** (failed - _WITHOUT_PAUSE - 1)
                self._pause(min(_FIRST_PAUSE_SECONDS * growth, LONGEST_PAUSE_SECONDS))
            try:
                # After a failure without a wait: the answer "no event" shows that the queue works again.
                event = self.queue.poll(_NOW) if failed else self.queue.poll()
                kind = event.completion_type
            except Exception as error:
                self._failed_polls += 1
                is_broken = self._failed_polls >= MOST_FAILURES
                if not self._told(self._failed, error, is_broken) or is_broken:
                    return
                continue
            self._failed_polls = 0
            if kind == _NO_EVENT:
                continue
            if not self._told(self._woken, event) or kind == _END:
                return
            event = None  # it holds its call
            self._gate.acquire()

    def _told(self, method: Callable[..., None], *arguments: object) -> bool:
        """Let the loop call a method; return False if the loop was closed without a stop of the server."""
        try:
            self._loop.call_soon_threadsafe(method, *arguments)
        except RuntimeError:
            return False
        return True

    # --- in the loop ---

    def _woken(self, event: Any) -> None:
        self.is_watched = False
        if self._handled(event):
            self._drain()

    def _drain(self) -> None:
        """Handle the events that are there, and look again in the next iteration."""
        poll = self.queue.poll
        count = 0
        while count < _MOST_AT_ONCE:
            try:
                event = poll(_NOW)
                kind = event.completion_type
            except Exception as error:
                self._failed_polls = 1
                self._hand_over()  # the thread pauses, and finds out whether the queue works
                self._failed(error, is_broken=False)
                return
            if kind == _NO_EVENT:
                break
            if not self._handled(event):
                self._hand_over()  # the thread finds the end of the queue, too
                return
            count += 1
        self._idle = 0 if count else self._idle + 1
        if self._idle <= _IDLE_ITERATIONS:
            self._loop.call_soon(self._drain)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the thread wait for events."""
        self._idle = 0
        self.is_watched = True
        self._gate.release()

    def _handled(self, event: Any) -> bool:
        """Call the tag of an event; return False for the end of the queue."""
        if event.completion_type == _END:
            self._ended.set()
            return False
        try:
            event.tag(event)
        except Exception:
            if count := self._unhandled.occurred():
                log.exception("events of gRPC calls not handled count=%d", count)
        return True

    def _failed(self, error: Exception, is_broken: bool) -> None:
        """Note that the queue raised instead of an event."""
        self._failures.occurred(error)
        if not is_broken:
            self._on_lost()
            return
        self.is_open = False
        self._ended.set()
        self._failures.give_up(error)
        self._on_broken()
