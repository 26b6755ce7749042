"""Sends requests to brokers: concurrency, retries and rejections.

Requests for a selected queue are sent one after the other, so that a retry cannot be overtaken; all others
are sent concurrently. Transient failures (a broker is down, busy or starting) are retried up to a limit. A
rejected batch is split in halves until the rejected rows are found.
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

log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_ROUTE: Final = (TopicNotFound, TopicNotOnBroker, NoQueue, PermissionDenied)
_TRANSIENT: Final = (UnreachableError, Busy, Unavailable, TooMuchUnderWay)


class MessageProducer(Protocol):
    """What `Sender` needs of a producer: an `EncodedProducer`, or a fake in tests."""

    async def queues(self, topic: str, timeout_seconds: float) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic."""

    async def has_brokers(self) -> bool:
        """Return whether any broker is registered."""

    async def send(
        self, topic: str, queue: MessageQueue | None, outgoing: Outgoing, timeout_seconds: float
    ) -> Stored:
        """Send a request and wait for the acknowledgement."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A failure that no retry can mend.

    `is_for_target`: it applies to all requests to the same topic or queue.
    """

    reason: str
    is_for_target: bool = False


class FailureKind(Enum):
    """Meaning of a failed attempt."""

    TRANSIENT = auto()  # a retry may succeed
    NO_ROUTE = auto()  # the topic is missing or not writable; it may appear within a short time
    REJECTED = auto()  # the request is invalid
    FATAL = auto()  # any other error: the task fails


def classify(error: ClientError, pinned: bool) -> FailureKind:
    """Classify an error. `pinned`: the request is for one queue, so that NoQueue means its broker is down."""
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
    """Sends the requests of one task, on the event loop of its producer."""

    def __init__(self, producer: MessageProducer, settings: SinkSettings) -> None:
        self._producer = producer
        self._settings = settings
        self._in_flight = asyncio.Semaphore(settings.max_in_flight)
        self._queue_locks: dict[MessageQueue, asyncio.Lock] = {}
        self._rejected_targets: dict[str | MessageQueue, Rejection] = {}
        self._warned = False

    async def queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | Rejection]:
        """Return the queues of each topic, or why there are none. Raises SourceUnavailable, ClientError."""
        timeout = self._settings.request_timeout_seconds
        return {
            topic: await self._retry(topic, None, partial(self._producer.queues, topic, timeout))
            for topic in topics
        }

    async def send_all(self, send_requests: list[SendRequest]) -> dict[int, str]:
        """Send all requests. Return the reasons of rejected rows, by row index.

        Raises SourceUnavailable, ClientError; then no request is in flight any more.
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
            pending = [request]
            while pending:
                current = pending.pop()
                outcome = await self._send_with_retries(current)
                if not isinstance(outcome, Rejection):
                    self._check_status(outcome)
                elif len(current.rows) == 1 or outcome.is_for_target:
                    rejected.update((int(row), outcome.reason) for row in current.rows)
                else:
                    first, second = current.halves()
                    pending += (second, first)

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
        """Repeat `attempt` until it succeeds or is rejected. `queue`: the selected queue, if any.

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
                if isinstance(error, UsageError):  # an invalid topic name
                    return self._reject_target(topic, error)
                if kind is FailureKind.REJECTED or (splittable and _may_be_too_large(error)):
                    return Rejection(str(error))
                if kind is not FailureKind.NO_ROUTE or not await self._has_brokers():
                    missing_since = None
                else:
                    missing_since = clock() if missing_since is None else missing_since
                    if clock() - missing_since >= self._settings.topic_timeout_seconds:
                        target = topic if queue is None or isinstance(error, TopicNotFound) else queue
                        return self._reject_target(target, error)
                cause = error
            await asyncio.sleep(backoff.next_pause(cause))

    def _reject_target(self, target: str | MessageQueue, error: ClientError) -> Rejection:
        """Reject all further requests to a topic or queue in this task, so that they need not wait again."""
        rejected = self._rejected_targets[target] = Rejection(str(error), is_for_target=True)
        return rejected

    async def _has_brokers(self) -> bool:
        """Return whether a broker is registered. Without one, a missing topic says nothing about it."""
        try:
            return await self._producer.has_brokers()
        except ClientError as error:
            log.info("cannot list brokers, retrying cause=%s", error)
            return False

    def _check_status(self, stored: Stored) -> None:
        if stored.status is not SendStatus.SEND_OK and not self._warned:
            self._warned = True
            log.warning(
                "messages stored with less durability than the broker is configured for status=%s "
                "(logged once per task)",
                stored.status.name,
            )


def _may_be_too_large(error: ClientError) -> bool:
    """Apache's broker (5.3.3, MessageExtEncoder) answers an oversized batch with SYSTEM_ERROR."""
    return isinstance(error, Unavailable) and error.code == ResponseCode.SYSTEM_ERROR
