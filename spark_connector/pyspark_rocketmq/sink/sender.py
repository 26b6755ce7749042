"""Parcels → brokers: attempts, what is worth another one, and what is refused for good.

Parcels for a queue that the rows chose go one after the other, so that no second attempt overtakes anything;
all others go side by side. Passing trouble (a broker that is away, busy, or being started) is waited for, up
to a limit; a refusal of a batch is looked for in its halves until the row is found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol, TypeVar

from rmq_client import (
    Busy,
    ClientError,
    MessageQueue,
    NoQueue,
    NotAuthenticated,
    NotRunning,
    PermissionDenied,
    Rejected,
    SendStatus,
    TlsFailed,
    TooMuchUnderWay,
    TopicNotFound,
    TopicNotOnBroker,
    Unavailable,
    UnreachableError,
    UsageError,
)
from rmq_client.producer.encoding import Outgoing, Stored
from rmq_remoting.codes import ResponseCode

from ..retries import Backoff
from .send_requests import SendRequest
from .settings import SinkSettings

log = logging.getLogger("rmq.spark.sink")

T = TypeVar("T")

_NO_ROUTE: Final = (TopicNotFound, TopicNotOnBroker, NoQueue, PermissionDenied)
_TRANSIENT: Final = (UnreachableError, Busy, Unavailable, TooMuchUnderWay)


class MessageProducer(Protocol):
    """What parcels are handed to: `EncodedProducer`, but for tests."""

    async def queues(self, topic: str, timeout_seconds: float) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written."""

    async def has_brokers(self) -> bool:
        """Whether there is any broker at all."""

    async def send(
        self, topic: str, queue: MessageQueue | None, outgoing: Outgoing, timeout_seconds: float
    ) -> Stored:
        """Send and wait for the answer."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """What was tried will not work however often it is tried; `about_place`: nor will others to there."""

    reason: str
    is_for_target: bool = False


class FailureKind(Enum):
    """What a failed attempt means."""

    TRANSIENT = auto()  # later the same may work
    NO_ROUTE = auto()  # the topic is not there, or not to be written: a short while it may be on its way
    REJECTED = auto()  # the request is wrong
    FATAL = auto()  # nobody knows: the task fails


def classify(error: ClientError, pinned: bool) -> FailureKind:
    """`pinned`: the request is for one queue, so a route without it means that its broker is away."""
    if isinstance(error, (NotRunning, NotAuthenticated, TlsFailed)):
        return FailureKind.FATAL
    if isinstance(error, (Rejected, UsageError)):
        return FailureKind.REJECTED
    if isinstance(error, NoQueue) and pinned:
        return FailureKind.TRANSIENT
    if isinstance(error, _NO_ROUTE):
        return FailureKind.NO_ROUTE
    return FailureKind.TRANSIENT if isinstance(error, _TRANSIENT) else FailureKind.FATAL


class Sender:
    """Delivers the parcels of one task. Belongs to the loop of its post office."""

    def __init__(self, producer: MessageProducer, settings: SinkSettings) -> None:
        self._producer = producer
        self._settings = settings
        self._in_flight = asyncio.Semaphore(settings.max_in_flight)
        self._queue_locks: dict[MessageQueue, asyncio.Lock] = {}
        self._rejected_targets: dict[str | MessageQueue, Rejection] = {}
        self._warned = False

    async def queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | Rejection]:
        """The queues of each topic, or why there are none. Raises SourceUnavailable, ClientError."""
        timeout = self._settings.request_timeout_seconds
        return {
            topic: await self._retry(topic, None, partial(self._producer.queues, topic, timeout))
            for topic in topics
        }

    async def send_all(self, send_requests: list[SendRequest]) -> dict[int, str]:
        """Deliver all; the refused rows with their reasons, by their places.

        Raises SourceUnavailable, ClientError; then nothing is under way any more.
        """
        rejected: dict[int, str] = {}
        tasks = [asyncio.ensure_future(self._send_one(request, rejected)) for request in send_requests]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return rejected

    async def _send_one(self, request: SendRequest, rejected: dict[int, str]) -> None:
        async with self._queue_lock(request.queue), self._in_flight:
            waiting = [request]
            while waiting:
                current = waiting.pop()
                outcome = await self._send_with_retries(current)
                if not isinstance(outcome, Rejection):
                    self._check_status(outcome)
                elif len(current.rows) == 1 or outcome.is_for_target:
                    rejected.update((int(row), outcome.reason) for row in current.rows)
                else:
                    first, second = current.halves()
                    waiting += (second, first)

    def _queue_lock(self, queue: MessageQueue | None) -> AbstractAsyncContextManager[object]:
        if queue is None:
            return nullcontext()
        return self._queue_locks.setdefault(queue, asyncio.Lock())

    async def _send_with_retries(self, request: SendRequest) -> Stored | Rejection:
        def attempt() -> Awaitable[Stored]:
            return self._producer.send(
                request.topic, request.queue, request.outgoing, self._settings.request_timeout_seconds
            )

        return await self._retry(request.topic, request.queue, attempt, splittable=len(request.rows) > 1)

    async def _retry(
        self,
        topic: str,
        queue: MessageQueue | None,
        attempt: Callable[[], Awaitable[T]],
        splittable: bool = False,
    ) -> T | Rejection:
        """Try until it works, or never will. `queue`: the one that was chosen.

        Raises SourceUnavailable, ClientError.
        """
        clock = asyncio.get_running_loop().time
        backoff = Backoff(self._settings.broker_timeout_seconds, clock)
        missing_since: float | None = None
        while True:
            rejected = self._rejected_targets.get(topic) or (queue and self._rejected_targets.get(queue))
            if rejected:
                return rejected
            try:
                return await attempt()
            except ClientError as error:
                kind = classify(error, queue is not None)
                if kind is FailureKind.FATAL:
                    raise
                if isinstance(error, UsageError):  # a name that no topic can have
                    return self._reject_target(topic, error)
                if kind is FailureKind.REJECTED or (splittable and _may_be_too_large(error)):
                    return Rejection(str(error))
                if kind is not FailureKind.NO_ROUTE or not await self._has_brokers():
                    missing_since = None
                else:
                    missing_since = clock() if missing_since is None else missing_since
                    if clock() - missing_since >= self._settings.topic_timeout_seconds:
                        place = topic if queue is None or isinstance(error, TopicNotFound) else queue
                        return self._reject_target(place, error)
                trouble = error
            await asyncio.sleep(backoff.next_pause(trouble))

    def _reject_target(self, place: str | MessageQueue, error: ClientError) -> Rejection:
        """Rows by the thousand must not each wait for the same: refused for the rest of the task."""
        rejected = self._rejected_targets[place] = Rejection(str(error), is_for_target=True)
        return rejected

    async def _has_brokers(self) -> bool:
        """Without any broker a missing topic means nothing: theirs go with them."""
        try:
            return await self._producer.has_brokers()
        except ClientError as error:
            log.info("whether brokers are there is not known: %s", error)
            return False

    def _check_status(self, stored: Stored) -> None:
        if stored.status is not SendStatus.SEND_OK and not self._warned:
            self._warned = True
            log.warning(
                "brokers answer %s: messages are stored, but not as safely as the brokers are set up for "
                "(told once per task)",
                stored.status.name,
            )


def _may_be_too_large(error: ClientError) -> bool:
    """Apache's broker (5.3.3, MessageExtEncoder) answers a batch that is too large by SYSTEM_ERROR."""
    return isinstance(error, Unavailable) and error.code == ResponseCode.SYSTEM_ERROR
