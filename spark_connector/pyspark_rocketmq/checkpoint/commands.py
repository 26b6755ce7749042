"""The commands of the checkpoint tool: show, move, and drop."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rmq_client import ClientError

from ..driver.cluster import Cluster
from ..driver.offset_resolution import resolve
from ..errors import ConnectorError
from ..offsets import QueueOffsets
from ..options import Anchor, ReadOptions
from ..retries import WaitTimeouts
from ..running_marks import running_process
from ..stream_position import StreamPosition
from .changes import Chosen, Goal, dropped, moved
from .files import Batch, CheckpointError, CheckpointFiles

# An idle stream changes nothing in its checkpoint; one with work does so with each batch.
_QUIET_SECONDS: Final = 60.0
_TIMEOUTS: Final = WaitTimeouts(10.0, 10.0)


def main(arguments: Sequence[str], clock: Callable[[], float] = time.time) -> int:
    """Run a command. Return the exit status: 0, or 1 after an error, which is printed.

    `clock`: seconds since 1970 UTC.
    """
    given = _parser().parse_args(arguments)
    try:
        lines = _show(given) if given.command == "show" else _change(given, clock())
        for line in lines:
            print(line)
    except (ConnectorError, ClientError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_rocketmq.checkpoint",
        description="Show and change the offsets in the checkpoint of a stream that reads from RocketMQ.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print the offsets of the last batch that has ended")
    move = commands.add_parser("move", help="let queues continue at other offsets")
    drop = commands.add_parser("drop", help="remove queues from the checkpoint")
    for command in (show, move, drop):
        command.add_argument("checkpoint", help="folder of the checkpoint: a path, or a URI such as hdfs://…")
        command.add_argument(
            "--source", type=int, metavar="N", help="index of the source in a query of several"
        )
        command.add_argument("--topic", help="only queues of this topic")
        command.add_argument("--broker", metavar="NAME", help="only queues of this broker")
        command.add_argument("--queue", type=int, metavar="NUMBER", help="only queues of this number")
    show.add_argument("--json", action="store_true", help="print JSON")
    move.add_argument(
        "--to",
        required=True,
        metavar="POSITION",
        help="earliest, latest, group:NAME, offset:NUMBER, or a time (ms since 1970 UTC, or ISO 8601)",
    )
    move.add_argument("--namesrv", metavar="HOST:PORT", required=True, help="name servers of the cluster")
    move.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="another option of the source"
    )
    for command in (move, drop):
        command.add_argument("--dry-run", action="store_true", help="print the result, and change nothing")
        command.add_argument(
            "--discard-batch",
            action="store_true",
            help="discard a batch that has begun and not ended; its output may be there in part",
        )
        command.add_argument(
            "--force", action="store_true", help="change the checkpoint even if the query seems to run"
        )
    return parser


def _show(given: argparse.Namespace) -> Iterator[str]:
    files = CheckpointFiles(given.checkpoint)
    batch, unfinished = files.committed(), files.unfinished()
    chosen = _chosen(given)
    sources = _sources(given, batch)
    if given.json:
        found: dict[str, Any] = {str(source): _shown(batch.position(source), chosen) for source in sources}
        numbers = [each.number for each in unfinished]
        yield json.dumps(
            {"query": files.query_id, "batch": batch.number, "unfinished": numbers, "sources": found}
        )
        return
    yield f"query {files.query_id}: batch {batch.number} has ended"
    for each in unfinished:
        yield f"batch {each.number} has begun and not ended: a restarted query repeats it"
    for source in sources:
        yield f"source {source}:"
        position = batch.position(source)
        yield from (f"  {queue} {offset}" for queue, offset in chosen.of(position.offsets).items())
        yield from (f"  {queue} {offset} (retired)" for queue, offset in chosen.of(position.retired).items())
        if position.lost:
            yield f"  lost messages: {position.lost}"


def _shown(position: StreamPosition, chosen: Chosen) -> dict[str, Any]:
    return StreamPosition(chosen.of(position.offsets), chosen.of(position.retired), position.lost).to_nested()


def _change(given: argparse.Namespace, now: float) -> Iterator[str]:
    files = CheckpointFiles(given.checkpoint)
    batch, unfinished = files.committed(), files.unfinished()
    source = _only_source(given, batch)
    if not given.force:
        # A query that has just ended a batch may still be marked with its beginning.
        _refuse_running(files, [*files.previous(batch), batch, *unfinished], source, now)
    if unfinished and not given.discard_batch:
        raise CheckpointError(
            f"batch {unfinished[0].number} has begun and not ended. Let the query finish it, or pass "
            "--discard-batch: the query then plans the batch anew. Output of the batch may be there in part, "
            "and Spark's file sink skips a batch that it has already written"
        )
    before, chosen = batch.position(source), _chosen(given)
    if given.command == "move":
        wanted = chosen.of(before.offsets)
        if not wanted:
            raise CheckpointError("no queue of the checkpoint is chosen; `show` prints all of them")
        after = moved(before, _resolved(given, wanted, Goal.parse(given.to)))
    else:
        if chosen == Chosen():
            raise CheckpointError("drop needs --topic, --broker or --queue")
        after = dropped(before, chosen)
    yield from _differences(before, after)
    if before == after and not unfinished:
        yield "nothing to change"
    elif given.dry_run:
        yield "nothing was changed: --dry-run"
    else:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        backup = files.replace(batch.with_position(source, after), stamp)
        yield f"changed batch {batch.number}; the old files are in {backup}"


def _differences(before: StreamPosition, after: StreamPosition) -> Iterator[str]:
    for queue, offset in before.offsets.items():
        if queue not in after.offsets:
            yield f"{queue} {offset} -> dropped"
        elif after.offsets[queue] != offset:
            yield f"{queue} {offset} -> {after.offsets[queue]}"
    for queue, offset in before.retired.items():
        if queue not in after.retired:
            yield f"{queue} {offset} (retired) -> dropped"


def _resolved(given: argparse.Namespace, wanted: QueueOffsets, goal: Goal) -> QueueOffsets:
    options = _source_options(given, wanted)
    with Cluster(options.name_servers, options.client_settings, _TIMEOUTS) as cluster:
        queues = list(wanted)
        oldest, newest = cluster.oldest(queues), cluster.newest(queues)
        ends = resolve(cluster, queues, goal.at(wanted), Anchor.EARLIEST, goal.group)
    outside = [queue for queue in queues if not oldest[queue] <= ends[queue] <= newest[queue]]
    if outside:
        queue = outside[0]
        raise CheckpointError(
            f"{queue} has messages from {oldest[queue]} to {newest[queue] - 1}: {ends[queue]} is no offset "
            f"to continue at ({len(outside)} such queues); choose others with --topic, --broker and --queue"
        )
    return ends


def _source_options(given: argparse.Namespace, wanted: QueueOffsets) -> ReadOptions:
    more: dict[str, str] = {}
    for text in given.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise CheckpointError(f"--option {text!r}: it must be NAME=VALUE")
        more[name] = value
    topics = ",".join(sorted({queue.topic for queue in wanted}))
    return ReadOptions.for_stream({"rocketmq.namesrv.addr": given.namesrv, "subscribe": topics, **more})


def _refuse_running(files: CheckpointFiles, batches: Sequence[Batch], source: int, now: float) -> None:
    """Raise CheckpointError if the query seems to run."""
    process = running_process([batch.nested(source) for batch in batches])
    if process is not None:
        raise CheckpointError(
            f"the query runs on this machine: process {process} reads from this position. Stop the query; if "
            "another query is at the same position, pass --force"
        )
    quiet = now - files.changed_at()
    if quiet < _QUIET_SECONDS:
        raise CheckpointError(
            f"the checkpoint changed {max(0.0, quiet):.0f} s ago: the query may run, perhaps on another "
            f"machine. Stop it, and wait for {_QUIET_SECONDS:.0f} s, or pass --force if it has ended"
        )


def _chosen(given: argparse.Namespace) -> Chosen:
    return Chosen(given.topic, given.broker, given.queue)


def _sources(given: argparse.Namespace, batch: Batch) -> list[int]:
    """Return the chosen sources of this connector. Raises CheckpointError if there are none."""
    found = [source for source in batch.sources() if given.source in (None, source)]
    if not found:
        raise CheckpointError(
            f"the checkpoint has no such source of this connector: it has {batch.sources()}"
        )
    return found


def _only_source(given: argparse.Namespace, batch: Batch) -> int:
    found = _sources(given, batch)
    if len(found) > 1:
        raise CheckpointError(f"several sources are of this connector: choose one of {found} with --source")
    return found[0]
