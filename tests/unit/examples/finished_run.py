"""The folder of a run that went well, made without a broker and without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from examples.pipeline.check import Work, alerts_of
from examples.pipeline.lines import AlertRule, Tally
from examples.pipeline.make_log import write_log
from examples.pipeline.records import append

LINES = 6000
_BEGAN = 1_700_000_000.0


def finished_run(folder: Path) -> Work:
    """A log, the counts and alerts that belong to it, and records of a replay and two batches."""
    work = Work(folder)
    write_log(work.log, LINES, hours=0.2)
    with work.log.open("ab") as log:
        log.write(b"1.2.3.4 - - [31/Jan\n")
    tally = Tally.of(work.log.read_bytes().splitlines())
    tally.save(work.tally)
    rows = [(minute.replace(tzinfo=None), status, n) for (minute, status), n in sorted(tally.counts.items())]
    for number, part in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        write_counts(work, number, part)
    for row, (minute, lines, errors) in enumerate(alerts_of(tally, AlertRule())):
        alert = {"minute": minute.isoformat(), "lines": lines, "errors": errors}
        append(work.alerts, {"row": f"q:0:0:{row}", **alert})
    for second, sent in enumerate((0, 3000, LINES + 1)):
        append(work.replay_progress, {"time": _BEGAN + second, "sent": sent})
    for second, read in ((2, 3000), (4, LINES + 1)):
        batch = {"time": _BEGAN + second, "read": read, "late": 0, "unreadable": 0}
        append(work.job_progress, {**batch, "unreadable": tally.unreadable if second == 4 else 0})
    return work


def write_counts(work: Work, batch: int, rows: Sequence[tuple[datetime, int, int]]) -> None:
    """Parquet as the job writes it."""
    names = ("minute", "status", "lines")
    columns = {name: [row[number] for row in rows] for number, name in enumerate(names)}
    folder = work.aggregates / f"batch={batch}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()


def replace_line(path: Path, number: int, **values: object) -> None:
    """Change a record in a file of records."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **values})
    path.write_text("\n".join(lines) + "\n")
