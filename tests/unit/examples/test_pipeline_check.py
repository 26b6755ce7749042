"""The pipeline's check finds a single message that is missing, or too many."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from examples.pipeline.check import Work, differences
from examples.pipeline.lines import AlertRule, Tally
from tests.unit.examples.finished_run import finished_run, replace_line


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return finished_run(tmp_path)


def found(work: Work) -> list[str]:
    return list(differences(work, AlertRule()))


def test_all_agrees(work: Work) -> None:
    assert found(work) == []
    assert len(work.alerts.read_text().splitlines()) >= 1


def test_a_line_of_the_log_that_was_not_counted(work: Work) -> None:
    with work.log.open("ab") as log:
        log.write(b'1.2.3.4 - - [31/Jan/2026:12:02:59 +0000] "GET / HTTP/1.1" 403 1 "-" "-"\n')
    sent, parquet = found(work)
    assert sent.startswith("sent: 12:02 status 403: ")
    assert parquet.startswith("Parquet: 12:02 status 403: ")


def test_a_count_that_is_too_high_by_one(work: Work) -> None:
    path = next(work.aggregates.glob("batch=1/*.parquet"))
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.set_column(2, "lines", pc.add(table["lines"], 1)).slice(0, 1), path)
    assert any(line.startswith("Parquet: ") for line in found(work))
    assert any("more minutes and statuses differ" in line for line in found(work))


def test_a_minute_that_was_given_out_twice(work: Work) -> None:
    part = next(work.aggregates.glob("batch=0/*.parquet"))
    (work.aggregates / "batch=7").mkdir()
    (work.aggregates / "batch=7" / "part-0.parquet").write_bytes(part.read_bytes())
    assert [line for line in found(work) if "duplicate counts for" in line]


def test_alerts_that_are_missing_wrong_or_without_an_id(work: Work) -> None:
    kept = work.alerts.read_text().splitlines()
    work.alerts.write_text("\n".join(kept[1:]) + "\n")
    (missing,) = found(work)
    assert missing.startswith("alerts: missing alert: ")

    work.alerts.write_text("\n".join([*kept, kept[0]]) + "\n")
    assert found(work) == []  # a repeated batch: the same row id

    another = {**json.loads(kept[0]), "lines": 1}
    work.alerts.write_text("\n".join([*kept, json.dumps(another)]) + "\n")
    assert [line.split(": ")[1] for line in found(work)] == [
        "unexpected alert",
        "row id of several alerts",
    ]

    work.alerts.write_text("\n".join(kept) + "\n")
    replace_line(work.alerts, 0, row=None)
    (without,) = found(work)
    assert without.startswith("alerts: alert without row id: ")


def test_lines_that_were_late_or_unreadable(work: Work) -> None:
    replace_line(work.job_progress, 0, late=3)
    replace_line(work.job_progress, 1, unreadable=0)
    unreadable, late = found(work)
    assert unreadable.endswith("in the log, 0 in the job")
    assert late == (
        "late: 3 rows arrived after their minute was closed and were dropped, 0 lines are missing in "
        "Parquet: the watermark of the run was too short, raise --watermark-minutes"
    )


def test_unreadable_lines_that_were_stored_twice_are_no_difference(work: Work) -> None:
    wanted = Tally.load(work.tally).unreadable
    replace_line(work.job_progress, 1, unreadable=wanted + 1)
    (surplus,) = found(work)
    assert surplus.startswith("unreadable lines: ")
    replace_line(work.job_progress, 0, duplicates=1)
    assert found(work) == []


def test_what_was_sent_is_compared(work: Work) -> None:
    tally = Tally.load(work.tally)
    tally.counts[min(tally.counts)] -= 1
    tally.save(work.tally)
    (sent,) = found(work)
    assert sent.startswith("sent: ")
