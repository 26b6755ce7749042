"""Compare the output of the pipeline with the log. The exit code is 1 for any missing or surplus message.

    python -m examples.pipeline.check WORK [--namesrv 127.0.0.1:9876 --alerts-topic alerts]

The log is counted again, by other code than the job's. These must agree with it: the replay's report of what
it sent, the counts in Parquet, the lines that the job could not parse, and the alerts. The alerts are read
from their topic and saved in WORK; without --namesrv, the saved ones are compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from examples.pipeline.lines import AlertRule, Key, Tally
from examples.pipeline.records import Record, append, read_all
from rmq_client.blocking import Admin, PullConsumer

_SHOWN: Final = 5
_POLL_SECONDS: Final = 5.0
_ROW_ID: Final = "SPARK_ROW_ID"

Alert = tuple[datetime, int, int]
"""A minute, its lines, and how many of them have a 5xx status."""


@dataclass(frozen=True, slots=True)
class Work:
    """The files in the folder of one run."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "access.log"

    @property
    def tally(self) -> Path:
        """Lines sent by the replay, by minute and status."""
        return self.folder / "sent.json"

    @property
    def replay_progress(self) -> Path:
        return self.folder / "replay.jsonl"

    @property
    def job_progress(self) -> Path:
        return self.folder / "job.jsonl"

    @property
    def aggregates(self) -> Path:
        """Parquet files with the counts."""
        return self.folder / "aggregates"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def alerts(self) -> Path:
        """Copies of the messages in the alerts' topic."""
        return self.folder / "alerts.jsonl"

    @property
    def chart(self) -> Path:
        return self.folder / "chart.png"

    @property
    def logs(self) -> Path:
        """Outputs of the programs."""
        return self.folder / "logs"


# --- actual results ---


def aggregated(folder: Path) -> Tally:
    """Return the counts in Parquet. Raises ValueError if a minute and status appear twice."""
    table = pq.read_table(folder, columns=["minute", "status", "lines"])
    tally = Tally()
    for minute, status, lines in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        key = (minute.replace(tzinfo=UTC), status)
        if key in tally.counts:
            raise ValueError(f"duplicate counts for {_label(key)}: {tally.counts[key]} and {lines} lines")
        tally.counts[key] = lines
    return tally


def keep_alerts(namesrv: str, topic: str, path: Path) -> None:
    """Copy all messages of the alerts' topic to a file. Raises ClientError, RuntimeError."""
    path.unlink(missing_ok=True)
    path.touch()
    with Admin(namesrv) as admin:
        stats = admin.topic_stats(topic).values()
    missing = sum(queue.max_offset - queue.min_offset for queue in stats)
    with PullConsumer(namesrv, group="pipeline-check", consume_from="first") as consumer:
        consumer.assign(consumer.queues(topic))
        while missing > 0:
            messages = consumer.poll(timeout_seconds=_POLL_SECONDS)
            if not messages:
                raise RuntimeError(f"topic {topic}: {missing} messages were not received")
            missing -= len(messages)
            for message in messages:
                append(path, {"row": message.properties.get(_ROW_ID), **json.loads(message.body)})


# --- expected results ---


def alerts_of(tally: Tally, rule: AlertRule) -> list[Alert]:
    """Return the alerts expected for these counts."""
    lines: Counter[datetime] = Counter()
    errors: Counter[datetime] = Counter()
    for (minute, status), count in tally.counts.items():
        lines[minute] += count
        errors[minute] += count if status >= 500 else 0
    return [
        (minute, count, errors[minute])
        for minute, count in sorted(lines.items())
        if rule.applies(count, errors[minute])
    ]


# --- comparison ---


def differences(work: Work, rule: AlertRule) -> Iterator[str]:
    """Yield a description of each difference."""
    with work.log.open("rb") as log:
        wanted = Tally.of(log)
    yield from _counts_differ("sent", wanted.counts, Tally.load(work.tally).counts)
    try:
        counted = aggregated(work.aggregates)
        missing = (wanted.counts - counted.counts).total()
        yield from _counts_differ("Parquet", wanted.counts, counted.counts)
    except ValueError as error:
        yield f"Parquet: {error}"
        missing = 0
    yield from _alerts_differ(alerts_of(wanted, rule), read_all(work.alerts))
    batches = read_all(work.job_progress)
    unreadable, late = (sum(batch[name] for batch in batches) for name in ("unreadable", "late"))
    # Unreadable lines have no time, by which duplicates are found: a line that was stored twice counts twice.
    surplus = sum(batch.get("duplicates", 0) for batch in batches)
    if not 0 <= unreadable - wanted.unreadable <= surplus:
        yield f"unreadable lines: {wanted.unreadable} in the log, {unreadable} in the job"
    if late:
        yield (
            f"late: {late} rows arrived after their minute was closed and were dropped, {missing} lines are "
            "missing in Parquet: the watermark of the run was too short, raise --watermark-minutes"
        )


def _counts_differ(where: str, wanted: Mapping[Key, int], found: Mapping[Key, int]) -> Iterator[str]:
    keys = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key, 0) != found.get(key, 0))
    for key in keys[:_SHOWN]:
        yield f"{where}: {_label(key)}: {found.get(key, 0)} lines, {wanted.get(key, 0)} in the log"
    if len(keys) > _SHOWN:
        yield f"{where}: {len(keys) - _SHOWN} more minutes and statuses differ"


def _alerts_differ(wanted: Iterable[Alert], found: list[Record]) -> Iterator[str]:
    # A batch that was repeated sends its alerts again under the same row ids.
    once = list({(one["row"], one["minute"], one["lines"], one["errors"]): one for one in found}.values())
    got = Counter((datetime.fromisoformat(one["minute"]), one["lines"], one["errors"]) for one in once)
    expected = Counter(wanted)
    yield from _listed("missing alert", expected - got)
    yield from _listed("unexpected alert", got - expected)
    yield from _listed("alert without row id", [one["minute"] for one in once if not one["row"]])
    rows = Counter(one["row"] for one in once)
    yield from _listed("row id of several alerts", [row for row, count in rows.items() if count > 1])


def _listed(what: str, those: Iterable[Hashable]) -> Iterator[str]:
    for one in those:
        shown = f"{one[0]:%H:%M}, {one[1]} lines, {one[2]} errors" if isinstance(one, tuple) else one
        yield f"alerts: {what}: {shown}"


def _label(key: Key) -> str:
    return f"{key[0]:%H:%M} status {key[1]}"


def summary(work: Work) -> str:
    """Return a summary on one line."""
    tally = aggregated(work.aggregates)
    minutes = {minute for minute, _ in tally.counts}
    unreadable = sum(batch["unreadable"] for batch in read_all(work.job_progress))
    return (
        f"{tally.total:,} lines counted in {len(minutes)} minutes, {unreadable} unreadable, "
        f"{len(read_all(work.alerts))} alerts"
    )


def main() -> int:
    usual = AlertRule()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="folder of a run")
    parser.add_argument("--namesrv", metavar="HOST:PORT", help="read the alerts from this cluster")
    parser.add_argument("--alerts-topic", default="alerts", help="default: %(default)s")
    parser.add_argument("--alert-percent", type=int, default=usual.percent, help="as given to the job")
    parser.add_argument("--alert-errors", type=int, default=usual.errors, help="as given to the job")
    options = parser.parse_args()
    work = Work(options.work)
    if options.namesrv:
        keep_alerts(options.namesrv, options.alerts_topic, work.alerts)
    found = list(differences(work, AlertRule(options.alert_percent, options.alert_errors)))
    for line in found:
        print(line)
    if found:
        print(f"check: FAILED, {len(found)} differences")
        return 1
    print(f"check: all counts are equal: {summary(work)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
