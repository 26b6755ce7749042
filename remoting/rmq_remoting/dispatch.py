"""The processor table: request code to processor, and the tier that it runs in.

Three tiers. *inline*: on the loop that owns the connection, for work of microseconds that never blocks.
*pool*: a named, bounded thread pool, for what can block. *deferred*: an inline processor that returns an
awaitable; the response goes out when it ends, and how many are under way is bounded.
A full tier, or a request that has waited too long for one, is answered SYSTEM_BUSY at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, cast

from .codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, ResponseCode
from .command import RemotingCommand
from .connection import Connection
from .errors import BodyError, CommandError, HeaderError, ProtocolError, RemotingError

log = logging.getLogger("rmq.remoting.dispatch")

# What a processor gives back: a response, an already encoded response frame, a promise of one, or nothing.
Answer = RemotingCommand | bytes | None
Result = Answer | asyncio.Future[Answer]
Processor = Callable[[Connection, RemotingCommand], Result]
Clock = Callable[[], float]


class HeldAnswer(asyncio.Future[Answer]):
    """A promise to a request that waits until there is something for it (long polling).

    The answer is taken as soon as it is there, not in the loop's next iteration. Its latency is counted
    apart: it says how often messages come, not how fast this server is.
    """

    __slots__ = ("_taker",)

    def __init__(self) -> None:
        super().__init__()
        self._taker: Callable[[HeldAnswer], object] | None = None

    def taken_by(self, taker: Callable[[HeldAnswer], object]) -> None:
        """Have `taker` called once the promise is kept, or broken."""
        if self.done():
            self.add_done_callback(cast(Callable[[asyncio.Future[Answer]], object], taker))
        else:
            self._taker = taker

    def set_result(self, result: Answer, /) -> None:
        """Keep the promise."""
        super().set_result(result)
        if self._taker is not None:
            self._taker(self)

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        """Break it."""
        super().set_exception(exception)
        if self._taker is not None:
            self._taker(self)

    def cancel(self, msg: object = None) -> bool:
        """Give it up."""
        was_open = super().cancel(msg)
        if was_open and self._taker is not None:
            self._taker(self)
        return was_open


# Apache's bounds of rocketmq_rpc_latency (RemotingMetricsConstant).
LATENCY_BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
_FAST_SECONDS: Final = LATENCY_BOUNDS_MS[0] / 1000

_ANSWER_POLL_SECONDS: Final = 0.01


@dataclass(slots=True)
class TierStatistics:
    """Plain counters of one tier, read by the metrics collector."""

    accepted: int = 0
    rejected_full: int = 0
    rejected_late: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0  # in a thread of a pool
    max_waiting: int = 0
    wait_seconds_total: float = 0.0

    def add_waiting(self) -> None:
        """Count a request that begins to wait."""
        self.waiting += 1
        self.max_waiting = max(self.max_waiting, self.waiting)

    def end_waiting(self, waited_seconds: float) -> None:
        """Count the end of a wait."""
        self.waiting -= 1
        self.wait_seconds_total += waited_seconds


class BoundedTier:
    """Bounds and counters that every tier has, and the refusals that follow from the bounds.

    The dispatcher admits requests by them, and so does a processor that passes part of its work on to a tier.
    """

    def __init__(self, name: str, *, threads: int, capacity: int, max_wait_ms: int) -> None:
        self.name = name
        self.threads = threads
        self.capacity = capacity
        self.max_wait_ms = max_wait_ms
        self.max_wait_seconds = max_wait_ms / 1000
        self.statistics = TierStatistics()

    def refuse_full(self) -> CommandError:
        """Count a request that exceeds the capacity, and return the refusal to answer it with."""
        self.statistics.rejected_full += 1
        return CommandError(
            ResponseCode.SYSTEM_BUSY,
            f"[REJECTREQUEST]system busy: {self.capacity} requests of tier {self.name} are under way already",
        )

    def refuse_late(self, waited_seconds: float) -> CommandError:
        """Count a request that waited longer than `max_wait_ms`, and return the refusal."""
        self.statistics.rejected_late += 1
        return CommandError(
            ResponseCode.SYSTEM_BUSY,
            f"[TIMEOUT_CLEAN_QUEUE]broker busy: waited {waited_seconds * 1000:.0f} ms in tier {self.name}, "
            f"the limit is {self.max_wait_ms} ms; {self.statistics.waiting} requests wait there",
        )


class InlineTier(BoundedTier):
    """Runs processors on the loop. Its capacity bounds the answers that its processors defer."""

    kind: Final = "inline"

    def __init__(self, name: str, *, capacity: int, max_wait_ms: int) -> None:
        super().__init__(name, threads=0, capacity=capacity, max_wait_ms=max_wait_ms)

    def stop(self) -> None:
        """Nothing to stop: the tier does not own the loop."""


class PoolTier(BoundedTier):
    """A bounded thread pool. Its processors run in a thread and may block; they never touch a connection."""

    kind: Final = "pool"

    def __init__(self, name: str, *, threads: int, capacity: int, max_wait_ms: int) -> None:
        super().__init__(name, threads=threads, capacity=capacity, max_wait_ms=max_wait_ms)
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    def submit(self, work: Callable[[], None]) -> None:
        """Queue `work`; the caller has checked the capacity.

        Raises CommandError (SYSTEM_BUSY) after `stop`.
        """
        try:
            self._executor.submit(work)
        except RuntimeError:
            remark = f"[REJECTREQUEST]system busy: tier {self.name} is shutting down"
            raise CommandError(ResponseCode.SYSTEM_BUSY, remark) from None

    def stop(self) -> None:
        """Drop queued work; work that runs ends by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)


Tier = InlineTier | PoolTier


class Latency:
    """How long requests of a code took (the slow ones, or those that were held) by their response code."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        # Answers by bound; the first bucket is what `Registration.answered` has beyond the others.
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count an answer."""
        self.counts[bisect_left(LATENCY_BOUNDS_MS, seconds * 1000)] += 1
        self.total_seconds += seconds


@dataclass(slots=True)
class Registration:
    """One row of the processor table."""

    code: int
    processor: Processor
    tier: Tier
    # Requests by response code, for the metrics; -1 counts requests that get no answer (one-way).
    answered: dict[int, int] = field(default_factory=dict)
    # Of those, the ones that took longer than the first bound, from the read to the answer.
    slow: dict[int, Latency] = field(default_factory=dict)
    # The ones that were held, all of them; they are in `answered`, and not in `slow`.
    held: dict[int, Latency] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The request code's name."""
        try:
            return RequestCode(self.code).name
        except ValueError:
            return str(self.code)


class Dispatcher:
    """Takes requests, runs the registered processor in its tier, and sends the answer."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._table: dict[int, Registration] = {}
        self.clock = clock
        self._further_tiers: list[Tier] = []
        self.unsupported_requests = 0

    def register(self, codes: Iterable[int], processor: Processor, tier: Tier) -> None:
        """Let `processor` answer these codes in `tier`. A code can be registered once.

        One that does not fit a binary header is known by the 16 bits as well that Apache's Java client sends
        of it (200050, to pop, comes as 3442).
        """
        for code in codes:
            row = Registration(int(code), processor, tier)
            for known in {row.code, row.code & 0xFFFF}:
                if known in self._table:
                    raise ValueError(f"request code {code} is registered already")
                self._table[known] = row

    def add_tier(self, tier: Tier) -> None:
        """Count a tier in that no code is registered in: processors hand part of their work on to it."""
        self._further_tiers.append(tier)

    def registrations(self) -> Iterator[Registration]:
        """The table, by code."""
        rows = {row.code: row for row in self._table.values()}
        return iter(sorted(rows.values(), key=lambda row: row.code))

    def tiers(self) -> list[Tier]:
        """Every tier in use, by name."""
        tiers = [*(row.tier for row in self._table.values()), *self._further_tiers]
        return sorted({id(tier): tier for tier in tiers}.values(), key=lambda tier: tier.name)

    async def all_answered(self, timeout_seconds: float) -> bool:
        """Wait until no request waits or runs any more; False where some still do after that time."""
        # What has just been promised is on its way: it needs an iteration of the loop.
        await asyncio.sleep(0)
        deadline = time.monotonic() + timeout_seconds
        while any(tier.statistics.waiting or tier.statistics.running for tier in self.tiers()):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_ANSWER_POLL_SECONDS)
        return True

    def stop(self) -> None:
        """End the pools."""
        for tier in self.tiers():
            tier.stop()

    def dispatch_all(
        self,
        connection: Connection,
        requests: list[RemotingCommand],
        received_at: float,
        now: float,
    ) -> None:
        """Run some requests of one peer; responses among them came after their time and are dropped.

        `now` is the time on the clock, where the first has waited since `received_at`. Raises ProtocolError
        where a request turns out to be damaged.
        """
        table = self._table
        for request in requests:
            if request.flag & FLAG_RESPONSE:
                continue
            row = table.get(request.code)
            if row is None:
                self._refuse_unknown(connection, request)
                continue
            tier = row.tier
            statistics = tier.statistics
            if now - received_at > tier.max_wait_seconds:
                waited = now - received_at
                self._refuse(connection, request, row, tier.refuse_late(waited), waited)
                continue
            if statistics.waiting >= tier.capacity:
                self._refuse(connection, request, row, tier.refuse_full(), now - received_at)
                continue
            statistics.accepted += 1
            if tier.kind == "pool":
                self._submit(connection, request, row, received_at)
                continue
            try:
                result = row.processor(connection, request)
            except ProtocolError:
                raise
            except Exception as error:
                result = self._failure(row, request, error)
            if isinstance(result, asyncio.Future):
                self._defer(connection, request, row, result, received_at)
            else:
                self._answer(connection, request, row, result, now - received_at)

    def _answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        answer: Answer,
        elapsed_seconds: float,
        *,
        was_held: bool = False,
    ) -> None:
        code = 0
        if answer is None or request.flag & FLAG_ONEWAY:
            code = -1
        elif type(answer) is bytes:
            connection.write_frame(answer)
        else:
            try:
                connection.write(cast(RemotingCommand, answer))
            except Exception as error:  # no answer at all, or one that does not fit a frame
                answer = self._failure(row, request, error)
                connection.write(answer)
            code = cast(RemotingCommand, answer).code
        answered = row.answered
        answered[code] = answered.get(code, 0) + 1
        if was_held:
            row.held.setdefault(code, Latency()).add(elapsed_seconds)
        elif elapsed_seconds > _FAST_SECONDS:
            row.slow.setdefault(code, Latency()).add(elapsed_seconds)

    def _defer(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        future: asyncio.Future[Answer],
        received_at: float,
    ) -> None:
        statistics = row.tier.statistics
        statistics.add_waiting()
        began = self.clock()

        def done(ended: asyncio.Future[Answer]) -> None:
            statistics.end_waiting(self.clock() - began)
            error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
            if isinstance(error, ProtocolError):
                connection.fail(error)
            else:
                answer = ended.result() if error is None else self._failure(row, request, error)
                elapsed_seconds = self.clock() - received_at
                was_held = isinstance(ended, HeldAnswer)
                self._answer(connection, request, row, answer, elapsed_seconds, was_held=was_held)

        if isinstance(future, HeldAnswer):
            future.taken_by(done)
        else:
            future.add_done_callback(done)

    def _submit(
        self, connection: Connection, request: RemotingCommand, row: Registration, received_at: float
    ) -> None:
        loop = asyncio.get_running_loop()
        tier = row.tier
        assert isinstance(tier, PoolTier)
        statistics = tier.statistics
        statistics.add_waiting()

        def started(waited: float) -> None:
            statistics.end_waiting(waited)
            statistics.running += 1

        def too_late(waited: float) -> None:
            statistics.running -= 1
            self._refuse(connection, request, row, tier.refuse_late(waited), waited)

        def ended(result: Result | BaseException) -> None:
            statistics.running -= 1
            if isinstance(result, ProtocolError):
                connection.fail(result)
            elif isinstance(result, BaseException):
                failure = self._failure(row, request, result)
                self._answer(connection, request, row, failure, self.clock() - received_at)
            elif isinstance(result, asyncio.Future):
                self._defer(connection, request, row, result, received_at)
            else:
                self._answer(connection, request, row, result, self.clock() - received_at)

        def work() -> None:
            waited = self.clock() - received_at
            loop.call_soon_threadsafe(started, waited)
            if waited > tier.max_wait_seconds:
                loop.call_soon_threadsafe(too_late, waited)
                return
            try:
                outcome: Result | BaseException = row.processor(connection, request)
            except BaseException as error:
                outcome = error
            loop.call_soon_threadsafe(ended, outcome)

        try:
            tier.submit(work)
        except CommandError as refusal:
            statistics.waiting -= 1
            self._refuse(connection, request, row, refusal, self.clock() - received_at)

    def _failure(self, row: Registration, request: RemotingCommand, error: BaseException) -> RemotingCommand:
        if isinstance(error, CommandError):
            return request.response(error.code, error.remark, error.ext_fields)
        if isinstance(error, asyncio.CancelledError):
            remark = f"{row.name} was given up by the server; try again"
            return request.response(ResponseCode.SYSTEM_BUSY, remark)
        if isinstance(error, (HeaderError, BodyError)):
            return request.response(ResponseCode.SYSTEM_ERROR, f"{row.name}: {error}")
        row.tier.statistics.failed += 1
        log.error("%s failed", row.name, exc_info=error)
        detail = str(error) if isinstance(error, (RemotingError, OSError)) else type(error).__name__
        return request.response(
            ResponseCode.SYSTEM_ERROR, f"{row.name} failed: {detail}; the server's log has the details"
        )

    def _refuse_unknown(self, connection: Connection, request: RemotingCommand) -> None:
        self.unsupported_requests += 1
        if not request.is_oneway:
            remark = f"request code {request.code} is not supported by this server"
            connection.write(request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def _refuse(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        refusal: CommandError,
        waited_seconds: float,
    ) -> None:
        response = request.response(refusal.code, refusal.remark, refusal.ext_fields)
        self._answer(connection, request, row, response, waited_seconds)
