"""The processor table: from request code to processor, and the tier that the processor runs in.

A processor of an inline tier may return a future. Its response is then deferred: the dispatcher sends it when
the future is done. The number of deferred responses is bounded by the tier's capacity. A full tier, or a
request that has waited too long for one, is answered SYSTEM_BUSY at once. Held requests (`HeldAnswer`) take
nothing from the capacity: the processor that holds them bounds them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, cast

from .answers import Answer, HeldAnswer, Result
from .codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, ResponseCode
from .command import RemotingCommand
from .connection import Connection
from .errors import BodyError, CommandError, HeaderError, ProtocolError, RemotingError
from .framing import MAX_FRAME_BYTES
from .pending_answer import PendingAnswer
from .tiers import PoolTier, Tier

log = logging.getLogger(__name__)

Processor = Callable[[Connection, RemotingCommand], Result]
# Answers requests that follow each other in one turn of a peer, each by a result, or by an error.
TurnProcessor = Callable[[Connection, Sequence[RemotingCommand]], Sequence[Result | Exception]]
# Raises CommandError for a request that its peer may not make. Runs before everything else.
Guard = Callable[[Connection, RemotingCommand], None]
Clock = Callable[[], float]

# Bounds of rocketmq_rpc_latency (Apache RocketMQ 5.3.3, RemotingMetricsConstant).
LATENCY_BOUNDS_MS: Final[tuple[float, ...]] = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
_FAST_SECONDS: Final = LATENCY_BOUNDS_MS[0] / 1000


class Latency:
    """Latency of the slow, or of the held, requests with one request code and one response code."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        # Responses by bound. The first bucket stays 0: it is `Registration.answered` less the others.
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a response."""
        self.counts[bisect_left(LATENCY_BOUNDS_MS, seconds * 1000)] += 1
        self.total_seconds += seconds


@dataclass(slots=True)
class Registration:
    """One row of the processor table."""

    code: int
    processor: Processor
    tier: Tier
    max_body_bytes: int = MAX_FRAME_BYTES
    turn_processor: TurnProcessor | None = None
    # Requests by response code, for the metrics; -1 counts requests without a response, such as one-way ones.
    answered: dict[int, int] = field(default_factory=dict)
    # Those of them that took longer than the first bound, from the read to the response, and were not held.
    slow: dict[int, Latency] = field(default_factory=dict)
    # All held requests; they are in `answered`, too.
    held: dict[int, Latency] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the request code."""
        try:
            return RequestCode(self.code).name
        except ValueError:
            return str(self.code)


class Dispatcher:
    """Runs the processor of each request in its tier, and sends the response."""

    def __init__(self, clock: Clock = time.monotonic, *, guard: Guard | None = None) -> None:
        """`guard` admits or refuses each request."""
        self._guard = guard
        self.guard_refusals = 0
        self._table: dict[int, Registration] = {}
        self.clock = clock
        self._further_tiers: list[Tier] = []
        self.unsupported_requests = 0

    def register(
        self,
        codes: Iterable[int],
        processor: Processor,
        tier: Tier,
        *,
        max_body_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """Let `processor` answer these codes in `tier`. Raises ValueError for a code that is registered.

        A request with a longer body is answered INVALID_PARAMETER.
        A code that does not fit a binary header is also known by its lower 16 bits, since the Java client
        sends no more of it (a pop, 200050, arrives as 3442).
        """
        for code in codes:
            row = Registration(int(code), processor, tier, max_body_bytes)
            for known in {row.code, row.code & 0xFFFF}:
                if known in self._table:
                    raise ValueError(f"request code {code} is registered already")
                self._table[known] = row

    def answer_together(self, code: int, processor: TurnProcessor) -> None:
        """Let `processor` answer requests of this code that follow each other in one turn of a peer.

        A single one is answered by the processor that is registered for the code. Raises ValueError if there
        is none, or if it runs in a pool.
        """
        row = self._table.get(code)
        if row is None or row.tier.kind == "pool":
            raise ValueError(f"request code {code} is not registered in an inline tier")
        row.turn_processor = processor

    def add_tier(self, tier: Tier) -> None:
        """Include a tier without request codes, to which processors pass part of their work."""
        self._further_tiers.append(tier)

    def registrations(self) -> Iterator[Registration]:
        """Return the rows of the table, by code."""
        rows = {row.code: row for row in self._table.values()}
        return iter(sorted(rows.values(), key=attrgetter("code")))

    def tiers(self) -> list[Tier]:
        """Return every tier in use, by name."""
        tiers = [*[row.tier for row in self._table.values()], *self._further_tiers]
        return sorted({id(tier): tier for tier in tiers}.values(), key=attrgetter("name"))

    @property
    def is_idle(self) -> bool:
        """Whether no request waits, runs or is held."""
        return not any(
            tier.statistics.waiting or tier.statistics.running or tier.statistics.held
            for tier in self.tiers()
        )

    def stop(self) -> None:
        """Stop the thread pools."""
        for tier in self.tiers():
            tier.stop()

    def dispatch_all(
        self,
        connection: Connection,
        requests: list[RemotingCommand],
        received_at: float,
        now: float,
    ) -> None:
        """Run the requests of one peer's turn, which have waited from `received_at` to `now`.

        A response among them arrived after its time-out and is dropped. Raises ProtocolError if a request
        turns out to be damaged.
        """
        failure: ProtocolError | None = None
        if self._guard is not None:
            requests, failure = self._guarded(self._guard, connection, requests)
        table = self._table
        count, position = len(requests), 0
        while position < count:
            request = requests[position]
            position += 1
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
            if statistics.waiting >= tier.half and not tier.has_room(connection):
                self._refuse(connection, request, row, tier.refuse_full(), now - received_at)
                continue
            if len(request.body) > row.max_body_bytes:
                self._refuse(connection, request, row, _too_long(row, request), now - received_at)
                continue
            statistics.accepted += 1
            if tier.kind == "pool":
                self._submit(connection, request, row, received_at)
                continue
            if row.turn_processor is not None:
                end = _end_of_run(requests, position, request.code, row.max_body_bytes)
                if end > position:
                    statistics.accepted += end - position
                    run = requests[position - 1 : end]
                    self._run_together(connection, run, row, row.turn_processor, received_at, now)
                    position = end
                    continue
            try:
                result = cast(object, row.processor(connection, request))  # a processor may return anything
            except ProtocolError:
                raise
            except Exception as error:
                result = self._failure(row, request, error)
            if isinstance(result, (PendingAnswer, asyncio.Future)):
                self._defer(connection, request, row, result, received_at)
            else:
                self._answer(connection, request, row, result, now - received_at)

        if failure is not None:
            raise failure

    def _guarded(
        self, guard: Guard, connection: Connection, requests: list[RemotingCommand]
    ) -> tuple[list[RemotingCommand], ProtocolError | None]:
        """Answer the requests that the guard refuses; return the others.

        A damaged request is the last one that counts: its error is returned, to be raised behind the others.
        """
        admitted: list[RemotingCommand] = []
        for request in requests:
            if request.flag & FLAG_RESPONSE:
                continue
            row = self._table.get(request.code)
            if row is not None and len(request.body) > row.max_body_bytes:
                admitted.append(request)  # refused for its length, which costs less than the guard
                continue
            try:
                guard(connection, request)
            except ProtocolError as damage:
                return admitted, damage
            except Exception as error:
                self._refuse_guarded(connection, request, error)
            else:
                admitted.append(request)
        return admitted, None

    def _refuse_guarded(self, connection: Connection, request: RemotingCommand, error: Exception) -> None:
        self.guard_refusals += 1
        code: int = ResponseCode.SYSTEM_ERROR
        remark = "the check of access failed; the server's log has the details"
        if isinstance(error, CommandError):
            code, remark = error.code, error.remark
        else:
            log.error("check of access failed request=%d", request.code, exc_info=error)
        if not request.is_oneway:
            connection.write(request.response(code, remark))

    def _run_together(
        self,
        connection: Connection,
        requests: list[RemotingCommand],
        row: Registration,
        processor: TurnProcessor,
        received_at: float,
        now: float,
    ) -> None:
        """Run requests of one code that follow each other. Raises ProtocolError."""
        results: Sequence[object]
        try:
            results = processor(connection, requests)
        except ProtocolError:
            raise
        except Exception as error:
            results = [error] * len(requests)
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, ProtocolError):
                raise result
            if isinstance(result, (PendingAnswer, asyncio.Future)):
                self._defer(connection, request, row, result, received_at)
                continue
            answer = self._failure(row, request, result) if isinstance(result, Exception) else result
            self._answer(connection, request, row, answer, now - received_at)

    def _answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        answer: object,
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
            except Exception as error:  # the processor's result is no answer, or does not fit a frame
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
        result: PendingAnswer | asyncio.Future[Answer],
        received_at: float,
    ) -> None:
        if isinstance(result, HeldAnswer):
            row.tier.statistics.held += 1
            result.taken_by(partial(self._end_held, connection, request, row, received_at))
            return
        row.tier.enter(connection)
        connection.answer_deferred()
        began = self.clock()
        if isinstance(result, PendingAnswer):
            result.taken_by(partial(self._end_pending, connection, request, row, received_at, began))
        else:
            result.add_done_callback(
                partial(self._end_deferred, connection, request, row, received_at, began)
            )

    def _end_pending(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        received_at: float,
        began: float,
        answer: Answer,
        error: BaseException | None,
    ) -> None:
        row.tier.leave(connection, self.clock() - began)
        self._answer_ended(connection, request, row, received_at, answer, error, was_held=False)
        connection.answer_written()

    def _end_held(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        received_at: float,
        ended: asyncio.Future[Answer],
    ) -> None:
        row.tier.statistics.held -= 1
        answer, error = _outcome_of(ended)
        self._answer_ended(connection, request, row, received_at, answer, error, was_held=True)

    def _end_deferred(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        received_at: float,
        began: float,
        ended: asyncio.Future[Answer],
    ) -> None:
        answer, error = _outcome_of(ended)
        self._end_pending(connection, request, row, received_at, began, answer, error)

    def _answer_ended(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        received_at: float,
        answer: object,
        error: BaseException | None,
        *,
        was_held: bool,
    ) -> None:
        if isinstance(error, ProtocolError):
            connection.fail(error)
            return
        if error is not None:
            answer = self._failure(row, request, error)
        self._answer(connection, request, row, answer, self.clock() - received_at, was_held=was_held)

    def _submit(
        self, connection: Connection, request: RemotingCommand, row: Registration, received_at: float
    ) -> None:
        tier = row.tier
        assert isinstance(tier, PoolTier)
        tier.enter(connection)
        loop = asyncio.get_running_loop()
        try:
            tier.submit(partial(self._run_in_pool, loop, connection, request, row, received_at))
        except CommandError as refusal:
            tier.leave(connection, 0.0)
            self._refuse(connection, request, row, refusal, self.clock() - received_at)
        else:
            connection.pool_entered()

    def _run_in_pool(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        received_at: float,
    ) -> None:
        """Run a processor in a thread; everything else of a request belongs to the loop."""
        tier = row.tier
        waited = self.clock() - received_at
        loop.call_soon_threadsafe(tier.start, connection, waited)
        if waited > tier.max_wait_seconds:
            loop.call_soon_threadsafe(self._end_late, connection, request, row, waited)
            return
        outcome: object = None
        if not connection.is_closed:  # otherwise nobody would get the answer
            try:
                outcome = cast(object, row.processor(connection, request))
            except BaseException as error:
                outcome = error
        loop.call_soon_threadsafe(self._end_in_pool, connection, request, row, received_at, outcome)

    def _end_late(
        self, connection: Connection, request: RemotingCommand, row: Registration, waited: float
    ) -> None:
        row.tier.statistics.running -= 1
        self._refuse(connection, request, row, row.tier.refuse_late(waited), waited)
        connection.pool_left()

    def _end_in_pool(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: Registration,
        received_at: float,
        outcome: object,
    ) -> None:
        row.tier.statistics.running -= 1
        if isinstance(outcome, ProtocolError):
            connection.fail(outcome)
        elif isinstance(outcome, BaseException):
            failure = self._failure(row, request, outcome)
            self._answer(connection, request, row, failure, self.clock() - received_at)
        elif isinstance(outcome, (PendingAnswer, asyncio.Future)):
            self._defer(connection, request, row, outcome, received_at)
        else:
            self._answer(connection, request, row, outcome, self.clock() - received_at)
        connection.pool_left()

    def _failure(self, row: Registration, request: RemotingCommand, error: BaseException) -> RemotingCommand:
        if isinstance(error, CommandError):
            return request.response(error.code, error.remark, error.ext_fields)
        if isinstance(error, asyncio.CancelledError):
            remark = f"{row.name} was cancelled by the server; retry"
            return request.response(ResponseCode.SYSTEM_BUSY, remark)
        if isinstance(error, (HeaderError, BodyError)):
            return request.response(ResponseCode.SYSTEM_ERROR, f"{row.name}: {error}")
        row.tier.statistics.failed += 1
        log.error("processor failed request=%s", row.name, exc_info=error)
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


def _outcome_of(ended: asyncio.Future[Answer]) -> tuple[Answer, BaseException | None]:
    """Return the answer of a future that is done, or the error in its place."""
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    return (ended.result(), None) if error is None else (None, error)


def _too_long(row: Registration, request: RemotingCommand) -> CommandError:
    return CommandError(
        ResponseCode.INVALID_PARAMETER,
        f"{row.name}: a body of {len(request.body)} bytes is over the limit of {row.max_body_bytes}: "
        "split the request",
    )


def _end_of_run(requests: list[RemotingCommand], position: int, code: int, max_body_bytes: int) -> int:
    """Return where the requests of one code end that begin before `position`."""
    count = len(requests)
    while position < count:
        request = requests[position]
        if request.code != code or request.flag & FLAG_RESPONSE or len(request.body) > max_body_bytes:
            break
        position += 1
    return position
