"""One exposition of metrics for all shards: the supervisor reads theirs, and joins them family by family.

The samples of a shard have its broker's name in the label `node_id`, as those of every broker, so no label is
added. Prometheus refuses an exposition that declares a family twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter, gauge, render

if TYPE_CHECKING:
    from .common_tables import CommonTables
    from .runner import ShardRunner

log = logging.getLogger("rmq.metrics")

# Below Prometheus' own time-out of a scrape, 10 s.
_SCRAPE_SECONDS: Final = 8.0
# A topic takes some 2 KiB, a queue nothing.
_MAX_BYTES: Final = 256 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_REQUEST: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_FAMILY: Final = b"# HELP "


class ScrapeError(Exception):
    """A shard's metrics cannot be read."""


class JoinedMetrics:
    """The metrics of all shards, joined to those of the supervisor."""

    def __init__(
        self, runners: Sequence[ShardRunner], tables: CommonTables, labels: Mapping[str, str]
    ) -> None:
        """`labels` are those of all series of a shard but its `node_id`."""
        self._runners = runners
        self._tables = tables
        self._labels = labels

    async def join(self, own: bytes) -> bytes:
        """Return an exposition with the metrics of all shards that answer added to `own`."""
        answers = await asyncio.gather(*map(self._scrape, self._runners))
        states = [
            self._state(runner, is_up=answer is not None)
            for runner, answer in zip(self._runners, answers, strict=True)
        ]
        expositions = [own, *states, *(answer for answer in answers if answer is not None)]
        return await asyncio.to_thread(join_expositions, expositions)

    async def _scrape(self, runner: ShardRunner) -> bytes | None:
        if not runner.is_ready:
            return None
        try:
            return await scrape(runner.plan.metrics_port)
        except ScrapeError as error:
            log.warning("metrics of a shard not read shard=%s cause=%s", runner.plan.broker_name, error)
            return None

    def _state(self, runner: ShardRunner, *, is_up: bool) -> bytes:
        """Return what the supervisor knows about a shard."""
        plan = runner.plan
        families = shard_families(
            is_up, runner.restarts, runner.hangs, self._tables.behind_count(plan.number)
        )
        labels = {**self._labels, "node_id": plan.broker_name}
        return "".join(render(families, labels)).encode()


def shard_families(is_up: bool, restarts: int, hangs: int, pending_changes: int) -> list[Family]:
    """Return the metrics that a supervisor adds for each shard."""
    return [
        gauge("rmq_shard_up", "Whether a shard answered this scrape: 1 or 0.", is_up),
        counter("rmq_shard_restarts_total", "Restarts of a shard that had ended.", restarts),
        counter(
            "rmq_shard_hangs_total",
            "Kills of a shard that did not answer its supervisor; each is followed by a restart.",
            hangs,
        ),
        gauge(
            "rmq_shard_pending_changes",
            "Topics and groups that a shard has yet to get or to delete.",
            pending_changes,
        ),
    ]


async def scrape(port: int, timeout_seconds: float = _SCRAPE_SECONDS) -> bytes:
    """Return the exposition at a port of this machine. Raises ScrapeError."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(_REQUEST)
                response = await _read(reader)
            finally:
                writer.close()
    except TimeoutError as error:
        raise ScrapeError(f"no answer within {timeout_seconds:.0f} s") from error
    except OSError as error:
        raise ScrapeError(str(error)) from error
    head, separator, body = response.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if not separator or len(status) < 2 or status[1] != b"200":
        raise ScrapeError(f"the answer begins with {head[:100]!r}")
    length = _content_length(head)
    if length is not None and length != len(body):
        raise ScrapeError(f"the answer ended after {len(body)} of {length} bytes")
    return body


async def _read(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await reader.read(_READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_BYTES:
            raise ScrapeError(f"the answer has more than {_MAX_BYTES} bytes")
    return b"".join(pieces)


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def join_expositions(expositions: Iterable[bytes]) -> bytes:
    """Return one exposition of several: each family once, with the samples of all of them.

    Each exposition is as the daemons render it: families one after the other, each begun by a HELP line.
    """
    heads: dict[bytes, bytes] = {}
    samples: dict[bytes, list[bytes]] = {}
    for exposition in expositions:
        # Label values contain no line end, so a HELP line is where a line begins with the word.
        for family in (b"\n" + exposition).split(b"\n" + _FAMILY)[1:]:
            name = family.split(b" ", 1)[0]
            help_line, _, rest = family.partition(b"\n")
            type_line, _, lines = rest.partition(b"\n")
            heads.setdefault(name, _FAMILY + help_line + b"\n" + type_line + b"\n")
            if lines:
                samples.setdefault(name, []).append(lines if lines.endswith(b"\n") else lines + b"\n")
    return b"".join(piece for name, head in heads.items() for piece in (head, *samples.get(name, ())))
