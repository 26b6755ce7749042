"""Prefetching: reads one range of a queue as undecoded bodies, ahead of the decoder.

A broker returns few messages per pull (32 by default), so sequential pulls would be bound by round trips.
Several pulls are therefore in flight at guessed offsets, each for a *piece* of the range. The pieces are put
in order, and the result is exact whatever a broker answers:

- Fewer messages than requested: the rest of the piece is requested again (or the piece ends there, if none
  follows).
- More than the piece (a batch unit is never split): `Fetched.begin` cuts the duplicates from later pieces,
  and from then on pulls are sequential.
- The offset no longer exists: the messages have expired, which is an error or a warning, never silent.
- No answer, a transient error, or an answer from a replica that lags: the pull is retried until the timeout.

With a filter, an answer has few of the messages that the broker looked through, so the number of offsets that
the next one covers is a guess (`FilteredSpan`). Two pulls are in flight then.

Prefetching is bounded by messages and bytes: about two batches, in addition to the one being decoded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from rmq_client import ClientError, MessageQueue, PullStatus, PullWish, RawPull

from ..errors import ConnectorError, DataLoss
from ..retries import Backoff, is_transient
from .partitions import FetchSettings
from .pull_size import FilteredSpan, PullSize
from .ranges import QueueRange

log = logging.getLogger(__name__)

# A master that has just been restarted may briefly report fewer messages than the plan was made with.
_BEHIND_GRACE_SECONDS: Final = 5.0

_FILTERED_PULLS_IN_FLIGHT: Final = 2
_FILTERED_PIECES_AHEAD: Final = 8


class Pulls(Protocol):
    """Source of messages: `rmq_client.RawPuller`, or a fake in tests."""

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish) -> RawPull:
        """Pull the messages from `offset` on. Raises ClientError."""


@dataclass(slots=True)
class Fetched:
    """Bodies of pulls, in order. Only their messages with begin <= offset < end belong to the batch.

    `lost_ranges`: the offsets among these that are known to be lost. Without a filter, every other offset has
    a message.
    """

    begin: int
    end: int
    bodies: list[bytes] = field(default_factory=list)
    lost_ranges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of lost offsets."""
        return sum(end - begin for begin, end in self.lost_ranges)


@dataclass(slots=True)
class _Piece:
    """The part of a range that one pull requests. `position`: how far the answer reached. No task: not
    started.
    """

    begin: int
    end: int
    position: int
    body: bytes = b""
    lost: tuple[int, int] | None = None
    task: asyncio.Task[None] | None = None


class RangeFetch:
    """One range of a queue, prefetched on the event loop that calls `start`."""

    def __init__(
        self,
        pulls: Pulls,
        wanted: QueueRange,
        settings: FetchSettings,
        size: PullSize,
        clock: Callable[[], float],
    ) -> None:
        """`size`: shared by all ranges of the same broker. `clock`: seconds of a monotonic clock."""
        self._pulls = pulls
        self._range = wanted
        self._queue = MessageQueue(wanted.key.topic, wanted.key.broker, wanted.key.queue_id)
        self._settings = settings
        self._size = size
        self._wish = PullWish(  # of the last pull
            max_messages=settings.pull_max_messages,
            max_bytes=settings.pull_max_bytes,
            expression=settings.expression,
            expression_type=settings.expression_type,
        )
        self._clock = clock
        self._pieces: deque[_Piece] = deque()  # in order, without a gap up to `_planned`
        self._in_flight = 0
        self._holes = 0  # pieces that are not started
        self._bytes_ahead = 0  # in pieces that are not consumed yet
        self._planned = wanted.begin  # pieces reach up to here
        self._position = wanted.begin  # consumed up to here
        self._sequential = False
        self._span = FilteredSpan() if settings.filters else None
        self._size_is_known = size.current < size.most

    def start(self) -> None:
        """Start pulling."""
        self._plan()

    async def next(self) -> Fetched | None:
        """Return the next batch; None after the last one.

        Raises DataLoss, SourceUnavailable, and ClientError for errors that are not transient.
        """
        batch = Fetched(self._position, self._position)
        size_bytes = 0
        while self._pieces and not self._is_full(batch, size_bytes):
            piece = self._pieces[0]
            assert piece.task is not None  # the first piece is always started
            if not piece.task.done():
                await asyncio.wait([piece.task])
            piece.task.result()
            if piece.begin < self._position < piece.position and (batch.bodies or batch.lost_ranges):
                break  # the batch already has its first messages: `begin` of the next batch cuts them
            self._pieces.popleft()
            self._bytes_ahead -= len(piece.body)
            if piece.position > self._position:
                size_bytes += len(piece.body)
                self._add(piece, batch)
            self._plan()
        return batch if batch.end > batch.begin else None

    async def stop(self) -> None:
        """Cancel the pulls in flight."""
        pieces, self._pieces = self._pieces, deque()
        self._planned = self._range.end
        tasks = [piece.task for piece in pieces if piece.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, piece: _Piece, batch: Fetched) -> None:
        if piece.body:
            batch.bodies.append(piece.body)
        if piece.lost is not None:
            begin, end = max(piece.lost[0], self._position), piece.lost[1]
            if begin < end:
                batch.lost_ranges.append((begin, end))
            # Logged here, once: concurrent pulls may discover the same loss.
            log.warning(
                "messages skipped because failOnDataLoss is false: %s", self._missing_text(begin, end)
            )
        batch.end = self._position = min(piece.position, self._range.end)

    def _is_full(self, batch: Fetched, size_bytes: int) -> bool:
        settings = self._settings
        return batch.end - batch.begin >= settings.batch_messages or size_bytes >= settings.batch_bytes

    # --- pieces ---

    def _plan(self) -> None:
        """Start pulls while there is room: first the holes, then the rest of the range."""
        while self._has_room():
            if self._holes:
                self._start(next(piece for piece in self._pieces if piece.task is None))
                self._holes -= 1
            elif self._planned < self._range.end:
                end = min(self._range.end, self._planned + self._length())
                piece = _Piece(self._planned, end, self._planned)
                self._pieces.append(piece)
                self._planned = end
                self._start(piece)
            else:
                return

    def _length(self) -> int:
        settings = self._settings
        if self._span is not None:
            return self._span.current or settings.batch_messages
        return min(
            settings.pull_max_messages, settings.batch_messages if self._sequential else self._size.current
        )

    def _most_in_flight(self) -> int:
        settings = self._settings
        if self._span is not None:
            return min(_FILTERED_PULLS_IN_FLIGHT, settings.pulls_in_flight) if self._span.current else 1
        return 1 if self._sequential or not self._size_is_known else settings.pulls_in_flight

    def _has_room(self) -> bool:
        pieces = self._pieces
        if not pieces or pieces[0].task is None:
            return True
        settings = self._settings
        if self._in_flight >= self._most_in_flight():
            return False
        if self._span is not None:
            # Offsets say nothing about the number of messages that pass the filter.
            if not self._holes and len(pieces) >= _FILTERED_PIECES_AHEAD:
                return False
        elif not self._holes and self._planned - pieces[0].begin >= settings.batch_messages:
            return False
        # Estimate: pulls in flight will bring as many bytes per piece as the finished ones did.
        there = len(pieces) - self._in_flight - self._holes
        return there <= 0 or self._bytes_ahead * (there + self._in_flight) < settings.batch_bytes * there

    def _start(self, piece: _Piece) -> None:
        self._in_flight += 1
        piece.task = asyncio.ensure_future(self._read(piece))
        piece.task.add_done_callback(self._piece_ended)

    def _piece_ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight -= 1
        if not task.cancelled() and task.exception() is None:  # `next` raises the error
            self._plan()

    async def _read(self, piece: _Piece) -> None:
        """Pull from the beginning of the piece until one answer has brought messages."""
        behind = Backoff(self._settings.unavailable_timeout_seconds, self._clock)
        master_since: float | None = (
            None  # since when the master, not a replica, has answered without messages
        )
        while True:
            answer = await self._request(piece, from_master=behind.elapsed_seconds() > 0)
            if answer.status is PullStatus.FOUND and answer.next_offset > piece.begin:
                self._take(piece, answer)
                break
            if not answer.from_master:
                master_since = None
            elif master_since is None:
                master_since = self._clock()
            if self._skip_missing(piece, answer, master_since):
                break
            await asyncio.sleep(behind.next_pause(self._stall_text(piece, answer)))
        if self._span is not None:
            self._span.answered(piece.end - piece.begin, piece.position - piece.begin)
        if piece.position < piece.end:
            self._shorten(piece)
        else:
            self._planned = max(self._planned, min(piece.position, self._range.end))

    def _take(self, piece: _Piece, answer: RawPull) -> None:
        piece.body = answer.body
        piece.position = answer.next_offset
        self._bytes_ahead += len(answer.body)
        if self._span is None and not self._sequential:
            self._size.answered(piece.end - piece.begin, answer.next_offset - piece.begin)
            self._size_is_known = True
            self._sequential = piece.position > piece.end

    def _shorten(self, piece: _Piece) -> None:
        """End the piece where its answer ended, and plan pieces for the rest of it."""
        end, piece.end = piece.end, piece.position
        pieces = self._pieces
        if not pieces:
            return  # stopped
        if piece is pieces[-1]:
            self._planned = min(self._planned, piece.position)
            return
        length = self._length()
        place = pieces.index(piece) + 1
        for begin in reversed(range(piece.position, end, length)):
            pieces.insert(place, _Piece(begin, min(end, begin + length), begin))
            self._holes += 1

    async def _request(self, piece: _Piece, *, from_master: bool) -> RawPull:
        wish = self._wish
        most = min(piece.end - piece.begin, self._settings.pull_max_messages)
        if wish.max_messages != most:
            wish = self._wish = replace(wish, max_messages=most)
        if from_master:
            wish = replace(wish, from_master=True)
        away = Backoff(self._settings.unavailable_timeout_seconds, self._clock)
        while True:
            try:
                answer = await self._pulls.pull(self._queue, piece.begin, wish)
            except ClientError as error:
                if not is_transient(error):
                    raise
                await asyncio.sleep(away.next_pause(error))
            else:
                if answer.offset_delta:
                    raise ConnectorError(f"{self._queue} belongs to a static topic, which is not supported")
                return answer

    # --- missing messages ---

    def _skip_missing(self, piece: _Piece, answer: RawPull, master_since: float | None) -> bool:
        """Skip the offsets that this answer shows to be missing. Return False if it shows nothing of the
        kind.

        `master_since`: since when the master has answered without messages; None if a replica answers, which
        may only lag. Raises DataLoss.
        """
        begin = piece.begin
        if answer.status is PullStatus.NO_MATCHED_MESSAGE and answer.next_offset > begin:
            if not self._settings.filters:
                self._record_loss(piece, answer.next_offset, answer)
            piece.position = answer.next_offset
        elif answer.status is PullStatus.OFFSET_ILLEGAL and answer.min_offset > begin:
            self._record_loss(piece, answer.min_offset, answer)
        elif (
            answer.max_offset <= begin
            and master_since is not None
            and self._clock() - master_since >= _BEHIND_GRACE_SECONDS
        ):
            self._record_loss(piece, self._range.end, answer)
        else:
            return False
        return True

    def _record_loss(self, piece: _Piece, up_to: int, answer: RawPull) -> None:
        """Record lost offsets. Raises DataLoss if failOnDataLoss is true."""
        up_to = min(up_to, self._range.end)
        piece.lost = (piece.begin, up_to)
        piece.position = up_to
        if self._settings.fail_on_data_loss:
            held = f"it holds {answer.min_offset} to {answer.max_offset - 1}"
            raise DataLoss(f"{self._missing_text(piece.begin, up_to)} ({held})")

    def _missing_text(self, begin: int, end: int) -> str:
        return f"{self._queue}: the messages from offset {begin} to {end - 1} no longer exist"

    def _stall_text(self, piece: _Piece, answer: RawPull) -> str:
        who = "the broker" if answer.from_master else "a replica"
        return (
            f"{self._queue}: offset {piece.begin} is part of the plan, but {who} answers "
            f"{answer.status.value} (it holds {answer.min_offset} to {answer.max_offset - 1})"
        )
