"""Reads one range of a queue as undecoded bodies, ahead of who decodes them.

A broker gives few messages in one pull (32 by default), so one pull after the other would be bound by round
trips. Here several are under way at guessed offsets, each for a *piece* of the range; they are put in order,
and whatever a broker answers, the result is right:

- It gave fewer messages than asked: the piece is asked for again from there (or ends there, if none follows).
- It went further than the piece's end (a batch unit is never cut, a filter passes over many messages): what
  later pieces bring up to there is cut away by `Fetched.begin`, and from then on pulls follow each other.
- It does not have the offset: the messages have aged out, which is an error or a warning, never silent.
- It does not answer, or cannot now, or a replica that is behind answers for it: it is asked again until the
  timeout.

How far ahead is bounded by messages and bytes: about two batches, besides the one that is being decoded.
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
from ..ranges import QueueRange
from ..retries import Backoff, is_transient
from .pull_size import PullSize

log = logging.getLogger("rmq.spark.fetching")

# A master that has just been restarted may know less than was planned with, for a moment.
_BEHIND_GRACE_SECONDS: Final = 5.0


class Pulls(Protocol):
    """Where messages come from: `rmq_client.RawPuller`, or a test's."""

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish) -> RawPull:
        """What is there from `offset` on. Raises ClientError."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How ranges are read. A batch ends as soon as it has one of `batch_messages` and `batch_bytes`."""

    expression: str = "*"
    expression_type: str = "TAG"
    pull_max_messages: int = 1024
    pull_max_bytes: int = 4 * 1024 * 1024
    pulls_in_flight: int = 16
    batch_messages: int = 8192
    batch_bytes: int = 8 * 1024 * 1024
    unavailable_timeout_seconds: float = 120.0
    fail_on_data_loss: bool = True

    @property
    def filters(self) -> bool:
        """Whether brokers are to leave messages out."""
        return self.expression != "*" or self.expression_type != "TAG"

    @property
    def tags(self) -> frozenset[str] | None:
        """The tags that are wanted, None where messages are not chosen by tags.

        Brokers look at hash codes of tags, which different ones may share (Apache RocketMQ 5.3.3, FilterAPI
        and PullAPIWrapper.processPullResult).
        """
        if not self.filters or self.expression_type != "TAG":
            return None
        return frozenset(tag.strip() for tag in self.expression.split("||") if tag.strip())


@dataclass(slots=True)
class Fetched:
    """Bodies of pulls, in order. Of what is in them, the offsets from `begin` up to before `end` count.

    `lost` of these are known to be gone (told of already); all others are there where nothing is filtered.
    """

    begin: int
    end: int
    bodies: list[bytes] = field(default_factory=list)
    lost: int = 0


@dataclass(slots=True)
class _Piece:
    """A part of the range that one pull is to bring; `position` is how far it went. Not started: no task."""

    begin: int
    end: int
    position: int
    body: bytes = b""
    lost: tuple[int, int] | None = None
    task: asyncio.Task[None] | None = None


class RangeFetch:
    """One range of a queue, pulled ahead. Belongs to the loop that `start` is called on."""

    def __init__(
        self,
        pulls: Pulls,
        wanted: QueueRange,
        settings: FetchSettings,
        size: PullSize,
        clock: Callable[[], float],
    ) -> None:
        """`size` is shared by all that read from the same broker. `clock`: seconds that only grow."""
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
        self._bytes_ahead = 0  # in pieces that nobody has taken yet
        self._planned = wanted.begin  # pieces reach up to here
        self._position = wanted.begin  # taken up to here
        self._sequential = settings.filters
        self._size_is_known = size.current < size.most

    def start(self) -> None:
        """Begin to pull."""
        self._plan()

    async def next(self) -> Fetched | None:
        """The next batch, None behind the last.

        Raises DataLoss, SourceUnavailable, and ClientError for what another attempt does not mend.
        """
        batch = Fetched(self._position, self._position)
        size_bytes = 0
        while self._pieces and not self._is_full(batch, size_bytes):
            piece = self._pieces[0]
            assert piece.task is not None  # the first one is always started
            if not piece.task.done():
                await asyncio.wait([piece.task])
            piece.task.result()
            if piece.begin < self._position < piece.position and (batch.bodies or batch.lost):
                break  # its first messages are in the batch already: `begin` of the next one cuts them
            self._pieces.popleft()
            self._bytes_ahead -= len(piece.body)
            if piece.position > self._position:
                size_bytes += len(piece.body)
                self._add(piece, batch)
            self._plan()
        return batch if batch.end > batch.begin else None

    async def stop(self) -> None:
        """End what is under way."""
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
            batch.lost += max(0, end - begin)
            # Only here, as pulls that are under way side by side find out about the same messages.
            log.warning(
                "%s; they are passed over, since failOnDataLoss is false", self._missing_text(begin, end)
            )
        batch.end = self._position = min(piece.position, self._range.end)

    def _is_full(self, batch: Fetched, size_bytes: int) -> bool:
        settings = self._settings
        return batch.end - batch.begin >= settings.batch_messages or size_bytes >= settings.batch_bytes

    # --- pieces ---

    def _plan(self) -> None:
        """Start as many pieces as there is room for: holes first, then what follows."""
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
        return min(
            settings.pull_max_messages, settings.batch_messages if self._sequential else self._size.current
        )

    def _has_room(self) -> bool:
        pieces = self._pieces
        if not pieces or pieces[0].task is None:
            return True
        settings = self._settings
        most = 1 if self._sequential or not self._size_is_known else settings.pulls_in_flight
        if self._in_flight >= most:
            return False
        if not self._holes and self._planned - pieces[0].begin >= settings.batch_messages:
            return False
        # What is under way may bring as much for each piece as what is there has.
        there = len(pieces) - self._in_flight - self._holes
        return there <= 0 or self._bytes_ahead * (there + self._in_flight) < settings.batch_bytes * there

    def _start(self, piece: _Piece) -> None:
        self._in_flight += 1
        piece.task = asyncio.ensure_future(self._read(piece))
        piece.task.add_done_callback(self._piece_ended)

    def _piece_ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight -= 1
        if not task.cancelled() and task.exception() is None:  # `next` raises it
            self._plan()

    async def _read(self, piece: _Piece) -> None:
        """Go on from the piece's beginning, as far as one answer goes."""
        behind = Backoff(self._settings.unavailable_timeout_seconds, self._clock)
        master_since: float | None = None  # since when it is the master that has been answering so
        while True:
            answer = await self._request(piece, from_master=behind.seconds() > 0)
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
        if piece.position < piece.end:
            self._shorten(piece)
        else:
            self._planned = max(self._planned, min(piece.position, self._range.end))

    def _take(self, piece: _Piece, answer: RawPull) -> None:
        piece.body = answer.body
        piece.position = answer.next_offset
        self._bytes_ahead += len(answer.body)
        if not self._sequential:
            self._size.answered(piece.end - piece.begin, answer.next_offset - piece.begin)
            self._size_is_known = True
            self._sequential = piece.position > piece.end

    def _shorten(self, piece: _Piece) -> None:
        """The piece ends where its answer did; what was to follow in it is planned anew."""
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
        if wish.max_messages != piece.end - piece.begin:
            wish = self._wish = replace(wish, max_messages=piece.end - piece.begin)
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
                    raise ConnectorError(f"{self._queue} is of a static topic: these cannot be read")
                return answer

    # --- what is not there ---

    def _skip_missing(self, piece: _Piece, answer: RawPull, master_since: float | None) -> bool:
        """Go on behind what this answer says is not there; False where it says nothing of the kind.

        `master_since`: since when the master has been answering without bringing anything; None where a
        replica answers, which may only be behind. Raises DataLoss.
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
        """Raises DataLoss where that is an error."""
        up_to = min(up_to, self._range.end)
        piece.lost = (piece.begin, up_to)
        piece.position = up_to
        if self._settings.fail_on_data_loss:
            held = f"it holds {answer.min_offset} to {answer.max_offset - 1}"
            raise DataLoss(f"{self._missing_text(piece.begin, up_to)} ({held})")

    def _missing_text(self, begin: int, end: int) -> str:
        return f"{self._queue}: the messages from offset {begin} to {end - 1} are not there any more"

    def _stall_text(self, piece: _Piece, answer: RawPull) -> str:
        who = "the broker" if answer.from_master else "a replica"
        return (
            f"{self._queue}: offset {piece.begin} was planned to be read, but {who} answers "
            f"{answer.status.value} (it holds {answer.min_offset} to {answer.max_offset - 1})"
        )
