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

from ..patience import Patience
from .parcels import Parcel
from .settings import SinkSettings

log = logging.getLogger("rmq.spark.sink")

T = TypeVar("T")

_NO_PLACE: Final = (TopicNotFound, TopicNotOnBroker, NoQueue, PermissionDenied)
_PASSING: Final = (UnreachableError, Busy, Unavailable, TooMuchUnderWay)


class PostOffice(Protocol):
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
class Refused:
    """What was tried will not work however often it is tried; `about_place`: nor will others to there."""

    reason: str
    about_place: bool = False


class Verdict(Enum):
    """What a failed attempt means."""

    PASSING = auto()  # later the same may work
    NO_PLACE = auto()  # the topic is not there, or not to be written: a short while it may be on its way
    REFUSED = auto()  # the request is wrong
    BROKEN = auto()  # nobody knows: the task fails


def judge(error: ClientError, pinned: bool) -> Verdict:
    """`pinned`: the request is for one queue, so a route without it means that its broker is away."""
    if isinstance(error, (NotRunning, NotAuthenticated, TlsFailed)):
        return Verdict.BROKEN
    if isinstance(error, (Rejected, UsageError)):
        return Verdict.REFUSED
    if isinstance(error, NoQueue) and pinned:
        return Verdict.PASSING
    if isinstance(error, _NO_PLACE):
        return Verdict.NO_PLACE
    return Verdict.PASSING if isinstance(error, _PASSING) else Verdict.BROKEN


class Courier:
    """Delivers the parcels of one task. Belongs to the loop of its post office."""

    def __init__(self, office: PostOffice, settings: SinkSettings) -> None:
        self._office = office
        self._settings = settings
        self._in_flight = asyncio.Semaphore(settings.max_in_flight)
        self._turns: dict[MessageQueue, asyncio.Lock] = {}
        self._refused: dict[str | MessageQueue, Refused] = {}
        self._warned = False

    async def queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | Refused]:
        """The queues of each topic, or why there are none. Raises SourceUnavailable, ClientError."""
        timeout = self._settings.request_timeout_seconds
        return {
            topic: await self._settle(topic, None, partial(self._office.queues, topic, timeout))
            for topic in topics
        }

    async def deliver(self, parcels: list[Parcel]) -> dict[int, str]:
        """Deliver all; the refused rows with their reasons, by their places.

        Raises SourceUnavailable, ClientError; then nothing is under way any more.
        """
        refused: dict[int, str] = {}
        tasks = [asyncio.ensure_future(self._deliver(parcel, refused)) for parcel in parcels]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return refused

    async def _deliver(self, parcel: Parcel, refused: dict[int, str]) -> None:
        async with self._turn(parcel.queue), self._in_flight:
            waiting = [parcel]
            while waiting:
                current = waiting.pop()
                outcome = await self._send(current)
                if not isinstance(outcome, Refused):
                    self._look_at(outcome)
                elif len(current.rows) == 1 or outcome.about_place:
                    refused.update((int(row), outcome.reason) for row in current.rows)
                else:
                    first, second = current.halves()
                    waiting += (second, first)

    def _turn(self, queue: MessageQueue | None) -> AbstractAsyncContextManager[object]:
        if queue is None:
            return nullcontext()
        return self._turns.setdefault(queue, asyncio.Lock())

    async def _send(self, parcel: Parcel) -> Stored | Refused:
        def attempt() -> Awaitable[Stored]:
            return self._office.send(
                parcel.topic, parcel.queue, parcel.outgoing, self._settings.request_timeout_seconds
            )

        return await self._settle(parcel.topic, parcel.queue, attempt, splittable=len(parcel.rows) > 1)

    async def _settle(
        self,
        topic: str,
        queue: MessageQueue | None,
        attempt: Callable[[], Awaitable[T]],
        splittable: bool = False,
    ) -> T | Refused:
        """Try until it works, or never will. `queue`: the one that was chosen.

        Raises SourceUnavailable, ClientError.
        """
        clock = asyncio.get_running_loop().time
        patience = Patience(self._settings.broker_timeout_seconds, clock)
        missing_since: float | None = None
        while True:
            refused = self._refused.get(topic) or (queue and self._refused.get(queue))
            if refused:
                return refused
            try:
                return await attempt()
            except ClientError as error:
                verdict = judge(error, queue is not None)
                if verdict is Verdict.BROKEN:
                    raise
                if isinstance(error, UsageError):  # a name that no topic can have
                    return self._refuse(topic, error)
                if verdict is Verdict.REFUSED or (splittable and _may_be_too_large(error)):
                    return Refused(str(error))
                if verdict is not Verdict.NO_PLACE or not await self._brokers_are_there():
                    missing_since = None
                else:
                    missing_since = clock() if missing_since is None else missing_since
                    if clock() - missing_since >= self._settings.topic_timeout_seconds:
                        place = topic if queue is None or isinstance(error, TopicNotFound) else queue
                        return self._refuse(place, error)
                trouble = error
            await asyncio.sleep(patience.next_pause(trouble))

    def _refuse(self, place: str | MessageQueue, error: ClientError) -> Refused:
        """Rows by the thousand must not each wait for the same: refused for the rest of the task."""
        refused = self._refused[place] = Refused(str(error), about_place=True)
        return refused

    async def _brokers_are_there(self) -> bool:
        """Without any broker a missing topic means nothing: theirs go with them."""
        try:
            return await self._office.has_brokers()
        except ClientError as error:
            log.info("whether brokers are there is not known: %s", error)
            return False

    def _look_at(self, stored: Stored) -> None:
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
