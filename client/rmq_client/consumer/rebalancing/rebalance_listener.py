"""Listeners that are told, and waited for, when queues come to a consumer and leave it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from rmq_remoting.message_queue import MessageQueue

from ...callables import is_coroutine_function
from ...names import RETRY_TOPIC_PREFIX
from ...namespaces import Namespace

log = logging.getLogger(__name__)

# Shorter than the life of a queue's lock on the broker, 60 s.
_CALL_SECONDS: Final = 30.0


class RebalanceListener:
    """Base class of listeners for changes of a consumer's queues. Override the methods that matter.

    A method is a coroutine function, which runs on the loop that the consumer was started on, or a function,
    which runs in a thread. The consumer waits for it, at most 30 s, and calls one at a time. Exceptions
    are logged. A method must not stop the consumer or change its subscriptions.

    A queue with the id -1 stands for all queues of a broker whose topic is popped.
    """

    def on_assigned(self, queues: list[MessageQueue]) -> Awaitable[None] | None:
        """Called with new queues, before their first message is processed."""
        return None

    def on_revoked(self, queues: list[MessageQueue]) -> Awaitable[None] | None:
        """Called with queues that this consumer gives up, or had when it was stopped.

        Their messages are processed, or have been in the listener for longer than
        `timing.drop_wait_seconds`. Their offsets are committed after this call. No other member of an orderly
        group has them before that.
        """
        return None

    def on_lost(self, queues: list[MessageQueue]) -> Awaitable[None] | None:
        """Called with queues of an orderly push consumer whose locks another member has.

        That member may process their messages already, so nothing must be written for them.
        """
        return None


class RebalanceCalls:
    """Calls the methods of one listener, with the application's names. Does nothing without a listener.

    The listener is not told of the group's retry topics.
    """

    def __init__(
        self,
        listener: RebalanceListener | None,
        application_loop: asyncio.AbstractEventLoop,
        namespace: Namespace,
        *,
        timeout_seconds: float = _CALL_SECONDS,
    ) -> None:
        self._listener = listener
        self._application_loop = application_loop
        self._namespace = namespace
        self._timeout_seconds = timeout_seconds
        self._turn = asyncio.Lock()

    async def assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Tell that the consumer has got queues."""
        if self._listener is not None:
            await self._call(self._listener.on_assigned, queues)

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Tell that the consumer gives queues up."""
        if self._listener is not None:
            await self._call(self._listener.on_revoked, queues)

    async def lost(self, queues: Iterable[MessageQueue]) -> None:
        """Tell that another member has queues of the consumer."""
        if self._listener is not None:
            await self._call(self._listener.on_lost, queues)

    async def _call(
        self, method: Callable[[list[MessageQueue]], Awaitable[None] | None], queues: Iterable[MessageQueue]
    ) -> None:
        wanted = [queue for queue in queues if not queue.topic.startswith(RETRY_TOPIC_PREFIX)]
        if not wanted:
            return
        named = sorted(self._namespace.unwrap_queues(wanted))
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await self._run(method, named)
            except TimeoutError:
                log.warning(
                    "rebalance listener too slow method=%s after_seconds=%g; the consumer goes on",
                    method.__name__,
                    self._timeout_seconds,
                )
            except Exception:  # raised by the application's code
                log.exception("rebalance listener failed method=%s", method.__name__)

    async def _run(self, method: Callable[[list[MessageQueue]], Any], queues: list[MessageQueue]) -> None:
        if not is_coroutine_function(method):
            await asyncio.to_thread(method, queues)
        elif self._application_loop is asyncio.get_running_loop():
            await method(queues)
        elif not self._application_loop.is_closed():
            call: Coroutine[Any, Any, None] = method(queues)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._application_loop))
