"""The write of one task: encodes slices of rows while earlier slices are being sent.

A task succeeds when every row is acknowledged or kept as a dead letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rmq_client import MessageQueue

from . import schema
from .dead_letters import DeadLetters
from .encoding import EncodedRows, RowEncoder
from .producer_pool import BlockingSender
from .schema import SinkColumns
from .send_requests import send_requests
from .sender import Rejection
from .settings import SinkSettings

# Maximum size and number of slices in memory, which bound the memory of a task.
_SLICE_ROWS: Final = 10_000
_SLICE_BYTES: Final = 16 * 1024 * 1024
_MAX_SLICES_IN_FLIGHT: Final = 2


@dataclass(slots=True)
class _InFlight:
    batch: Any
    encoded: EncodedRows
    rejected: Future[dict[int, str]]


class TaskWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        columns: SinkColumns,
        settings: SinkSettings,
        encoder: RowEncoder,
        sender: BlockingSender,
        dead_letters: DeadLetters,
    ) -> None:
        self._chooses_queues = schema.QUEUE_ID in columns or schema.SHARDING_KEY in columns
        self._settings = settings
        self._encoder = encoder
        self._sender = sender
        self._dead_letters = dead_letters
        self._in_flight: deque[_InFlight] = deque()
        self.rows = 0

    def write(self, batches: Iterable[Any]) -> None:
        """Write all rows. Raises RowRefused, SourceUnavailable, ClientError; then no request is in flight."""
        try:
            for part in _slices(batches):
                self._begin(part)
                if len(self._in_flight) >= _MAX_SLICES_IN_FLIGHT:
                    self._finish()
            while self._in_flight:
                self._finish()
        except BaseException:
            self._cancel()
            raise

    def _begin(self, batch: Any) -> None:
        encoded = self._encoder.encode(batch, self.rows)
        queues = self._queues(encoded) if self._chooses_queues else {}
        made = send_requests(encoded, queues, self._settings)
        self._in_flight.append(_InFlight(batch, encoded, self._sender.send_all(made)))
        self.rows += batch.num_rows

    def _finish(self) -> None:
        """Wait for the oldest slice."""
        oldest = self._in_flight[0]
        reasons = {**oldest.rejected.result(), **oldest.encoded.rejected.reasons}
        self._in_flight.popleft()
        if reasons:
            self._dead_letters.keep(oldest.batch, oldest.encoded, reasons)

    def _queues(self, encoded: EncodedRows) -> dict[str, Sequence[MessageQueue]]:
        known: dict[str, Sequence[MessageQueue]] = {}
        for topic, queues in self._sender.queues(encoded.topics).items():
            if isinstance(queues, Rejection):
                code = encoded.topics.index(topic)
                encoded.rejected.add_where(encoded.topic_codes == code, queues.reason)
            else:
                known[topic] = queues
        return known

    def _cancel(self) -> None:
        for slice_in_flight in self._in_flight:
            slice_in_flight.rejected.cancel()
        while self._in_flight:
            with suppress(CancelledError, Exception):  # the first error is the one to report
                self._in_flight.popleft().rejected.result()


def _slices(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        rows = batch.num_rows
        if not rows:
            continue
        # Rows differ in size. An average is good enough, since the whole batch is in memory anyway.
        step = min(_SLICE_ROWS, max(1, rows * _SLICE_BYTES // max(1, batch.nbytes)))
        for first in range(0, rows, step):
            yield batch.slice(first, step)
