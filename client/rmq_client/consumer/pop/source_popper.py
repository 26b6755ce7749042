"""The pop loop of one source, as fast as the listener consumes."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from rmq_remoting.backoff import Backoff
from rmq_remoting.message import MessageExt
from rmq_remoting.tasks import shielded

from ...errors import BrokerUnreachable, Busy, ClientError, UnreachableError
from ...network.routing import RouteTable
from ..processing.process_queue import ProcessQueue
from ..processing.statistics import ConsumerStatistics
from ..requests.pop_client import PopClient
from ..requests.pop_source import PopSource
from ..subscription import Subscription
from ..timing import ConsumerTiming
from .pop_process_queue import PopProcessQueue
from .settings import PopSettings

log = logging.getLogger(__name__)

# How long a broker holds a notification request.
_HOLD_MS: Final = 15_000
# Pauses after notifications without a message, because other consumers were faster.
_BACKOFF: Final = Backoff(0.01, 0.64)
# A notification request that is answered 'nothing' at once is not repeated before this time.
_MIN_POLL_SECONDS: Final = 1.0


class PopConsumption(Protocol):
    """Submits popped messages to the listener."""

    statistics: ConsumerStatistics

    @property
    def in_order(self) -> bool:
        """Whether messages are popped in order."""

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Submit messages of the last pop to the listener."""

    def ack_all(self, messages: Iterable[MessageExt]) -> None:
        """Acknowledge messages."""

    def make_visible(self, queue: PopProcessQueue, messages: list[MessageExt]) -> None:
        """Make messages visible again."""

    def close(self, queue: PopProcessQueue) -> None:
        """Start no more calls."""


class SourcePopper:
    """Pops one source until it is stopped. Runs on the network loop.

    Its pops never wait at the broker. It first asks whether there are messages. So no messages become
    invisible to the other consumers that this one no longer wants.
    """

    def __init__(
        self,
        queue: PopProcessQueue,
        *,
        client: PopClient,
        service: PopConsumption,
        routes: RouteTable,
        settings: PopSettings,
        timing: ConsumerTiming,
        subscription: Callable[[], Subscription | None],
        is_suspended: Callable[[], bool],
        failing: Callable[[PopSource, ClientError | None], None],
        received: Callable[[list[MessageExt], float], None] | None = None,
    ) -> None:
        """`failing` gets the error of each failed pop, and None once pops work again.

        `received` gets the messages of a pop, and its seconds.
        """
        self.queue = queue
        self._failing = failing
        self._received = received
        self._is_failing = False
        self._client = client
        self._service = service
        self._routes = routes
        self._settings = settings
        self._timing = timing
        self._subscription = subscription
        self._is_suspended = is_suspended
        self._empty_pops = 0
        self._attempt_id: str | None = None
        self._popping: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Pop in a loop until cancelled; `finish` must follow."""
        queue = self.queue
        while not queue.closing:
            if self._is_suspended():
                await asyncio.sleep(self._timing.suspended_pause_seconds)
            elif queue.unacknowledged > self._settings.max_unacknowledged:
                queue.has_room.clear()
                await queue.has_room.wait()
            elif pause := await self._turn():
                await asyncio.sleep(pause)

    async def finish(self) -> None:
        """Wait for the pop in flight; its messages become visible again."""
        if self._popping is not None:
            await asyncio.wait([self._popping])
            if not self._popping.cancelled():
                self._popping.exception()  # marks the error as retrieved

    async def _turn(self) -> float:
        """Pop, or wait until there are messages; return the pause before the next turn."""
        try:
            self._popping = asyncio.ensure_future(self._pop())
            has_popped = await shielded(self._popping)
            if self._is_failing:
                self._is_failing = False
                self._failing(self.queue.source, None)
            if has_popped:
                self._empty_pops = 0
                return 0.0
            return await self._wait()
        except Busy as error:
            log.debug("pop not served for now source=%s cause=%s", self.queue.source.queue, error)
            return self._timing.busy_pause_seconds
        except ClientError as error:
            log.warning("pop failed source=%s cause=%s; retried", self.queue.source.queue, error)
            self._is_failing = True
            self._failing(self.queue.source, error)
            if isinstance(error, UnreachableError):
                self._routes.request_failed(self.queue.source.topic)
            return self._timing.error_pause_seconds

    async def _pop(self) -> bool:
        """Pop once; whether there were messages. Raises ClientError."""
        queue, source = self.queue, self.queue.source
        subscription = self._subscription()
        if subscription is None:
            queue.drop()
            return False
        loop = asyncio.get_running_loop()
        queue.last_pull_at = began = loop.time()
        in_order = self._service.in_order
        if in_order and self._attempt_id is None:
            # Kept until an answer arrives: otherwise the broker would hold back the messages of a lost
            # answer.
            self._attempt_id = uuid.uuid4().hex
        popped = await self._client.pop(
            self._address(),
            source,
            subscription,
            self._settings.max_messages,
            self._settings.invisible_ms,
            in_order=in_order,
            attempt_id=self._attempt_id,
        )
        self._attempt_id = None
        self._service.ack_all(popped.unwanted)
        if popped.undecoded:
            self._service.make_visible(queue, popped.undecoded)
        if not popped.messages:
            return bool(popped.unwanted or popped.undecoded)
        if queue.closing:
            self._service.make_visible(queue, popped.messages)
            return True
        recorder = self._service.statistics.of(source.topic, loop.time())
        recorder.pulled(len(popped.messages), loop.time() - began)
        if self._received is not None:
            self._received(popped.messages, loop.time() - began)
        self._service.submit(queue, popped.messages)
        return True

    async def _wait(self) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        source, in_order = self.queue.source, self._service.in_order
        if await self._client.has_messages(self._address(), source, _HOLD_MS, in_order=in_order):
            pause = _BACKOFF.pause(self._empty_pops) if self._empty_pops else 0.0
            self._empty_pops += 1
            return pause
        self._empty_pops = 0
        return max(0.0, began + _MIN_POLL_SECONDS - loop.time())

    def _address(self) -> str:
        source = self.queue.source
        route = self._routes.existing.get(source.topic)
        address = None if route is None else route.broker_address(source.broker_name)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {source.broker_name} is known for {source.topic}")
        return address
