"""Reports of tasks to the driver: which offsets a task has read, and which of them it found to be lost.

Spark has no way for this: readers in Python return rows only, and get neither metrics nor accumulators. The
task therefore connects to the driver's process of the stream (`driver/loss_collector.py`). The driver waits
for no report, and a task that cannot reach the driver goes on: its log has the losses.

A report is one line of JSON, or several for many ranges. The driver answers each with a line.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import BadOffsets
from ..offsets import QueueKey
from .partitions import ReportAddress
from .ranges import QueueRange

log = logging.getLogger(__name__)

MAX_LINE_BYTES: Final = 1024 * 1024
ACCEPTED: Final = b"ok\n"
_MAX_RANGES_PER_LINE: Final = 1000
_TIMEOUT_SECONDS: Final = 2.0
# After a failure, reports without losses wait this long: a firewall would delay each task by the time-out.
_PAUSE_SECONDS: Final = 60.0


@dataclass(slots=True)
class LossReport:
    """Ranges of offsets that tasks have read to their end, and ranges that these tasks found to be lost."""

    read: list[QueueRange] = field(default_factory=list)
    lost: list[QueueRange] = field(default_factory=list)

    def lines(self, token: str) -> Iterator[bytes]:
        """Yield the lines that carry this report, each of MAX_LINE_BYTES at most. The last ones have `read`:
        ranges count as read when their losses are known.
        """
        for name, ranges in (("lost", self.lost), ("read", self.read)):
            for first in range(0, len(ranges), _MAX_RANGES_PER_LINE):
                rows = [_row(each) for each in ranges[first : first + _MAX_RANGES_PER_LINE]]
                yield json.dumps({"token": token, name: rows}, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_members(cls, members: dict[str, Any]) -> LossReport:
        """Convert the parsed JSON of one line. Raises BadOffsets."""
        return cls(*([_range(row) for row in _rows(members.get(name, []))] for name in ("read", "lost")))


def _row(part: QueueRange) -> tuple[str, str, int, int, int]:
    return part.key.topic, part.key.broker, part.key.queue_id, part.begin, part.end


def _rows(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise BadOffsets(f"a report has {type(value).__name__} in place of a list of ranges")
    return value


def _range(row: object) -> QueueRange:
    match row:
        case [str(topic), str(broker), int(queue_id), int(begin), int(end)] if 0 <= begin < end:
            return QueueRange(QueueKey(topic, broker, queue_id), begin, end)
    raise BadOffsets(f"{row!r} is no range of a queue: [topic, broker, queue, begin, end]")


class Reporter:
    """Sends the reports of the tasks of one Python worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._clock = clock
        self._failed_at: dict[tuple[str, int], float] = {}

    def send(self, report: LossReport, address: ReportAddress) -> bool:
        """Send a report and wait until the driver has it. Return False if the driver was not reached."""
        place = (address.host, address.port)
        failed_at = self._failed_at.get(place)
        if not report.lost and failed_at is not None and self._clock() - failed_at < _PAUSE_SECONDS:
            return False
        try:
            with socket.create_connection(place, timeout=_TIMEOUT_SECONDS) as connection:
                _exchange(connection, report.lines(address.token))
        except OSError as error:
            self._failed_at[place] = self._clock()
            log.warning(
                "losses not reported to the driver, which counts them by expired offsets "
                "address=%s:%d lost_ranges=%d cause=%s",
                *place,
                len(report.lost),
                error,
            )
            return False
        self._failed_at.pop(place, None)
        return True


def _exchange(connection: socket.socket, lines: Iterable[bytes]) -> None:
    """Send lines, and read an answer to each. Raises OSError."""
    with connection.makefile("rb") as answers:
        for line in lines:
            connection.sendall(line)
            if answers.readline(len(ACCEPTED)) != ACCEPTED:
                raise ConnectionError("the driver did not accept the report")


_of_process = Reporter()


def reporter() -> Reporter:
    """Return the reporter of this process."""
    return _of_process
