"""The results of mutations: one JSON line for each mutation and stage, and a summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutations.judging import KILLED, SURVIVED, UNDECIDED, Verdict
from tests.mutations.mutations import Mutation, records, written
from tests.mutations.tables import STAGES

Record = Mapping[str, Any]


class Results:
    """The results for a commit in a file of JSON lines. The last line of a mutation counts."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        self._last = {record["id"]: record for record in records(path) if record["commit"] == commit}

    def add(self, mutation: Mutation, verdict: Verdict) -> None:
        record = {**written(mutation), "commit": self._commit, **asdict(verdict)}
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self._last[mutation.id] = record

    def last(self, mutation: Mutation) -> Record | None:
        return self._last.get(mutation.id)

    def needs(self, mutation: Mutation, stage: str, bound_s: float) -> bool:
        """Return whether a stage has to judge a mutation."""
        record = self._last.get(mutation.id)
        if record is None:
            return True
        if record["outcome"] == KILLED:
            return False
        names = [each.name for each in STAGES]
        if record["stage"] != stage:
            return names.index(record["stage"]) < names.index(stage)
        return bool(record["outcome"] == UNDECIDED and record["bound_s"] < bound_s)


def line(mutation: Mutation, verdict: Verdict) -> str:
    """Return one line about a verdict."""
    detail = verdict.failure or f"{verdict.ran} of {verdict.reaching} reaching tests passed"
    return f"{verdict.outcome} in {verdict.seconds:.0f} s: {mutation.id}: {detail}"


def summary(mutations: Sequence[Mutation], results: Results) -> str:
    """Return a table of the areas, and the changes that no test noticed."""
    stages = [stage.name for stage in STAGES]
    columns = [f"{KILLED} by {stage}" for stage in stages] + [SURVIVED, UNDECIDED, "not judged"]
    rows: dict[str, Counter[str]] = {}
    for mutation in mutations:
        record = results.last(mutation)
        rows.setdefault(mutation.area, Counter())[_column(record)] += 1
    rows["all"] = sum(rows.values(), Counter())
    table = [f"| area | mutations | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for area, counts in rows.items():
        cells = [str(counts[column]) for column in columns]
        table.append(f"| {area} | {counts.total()} | {' | '.join(cells)} |")
    parts = ["\n".join(table)]
    for mutation in mutations:
        record = results.last(mutation)
        if record is not None and record["outcome"] != KILLED:
            parts.append(f"{_fate(record)}\n{mutation.diff()}")
    return "\n\n".join(parts)


def _column(record: Record | None) -> str:
    if record is None:
        return "not judged"
    return f"{KILLED} by {record['stage']}" if record["outcome"] == KILLED else str(record["outcome"])


def _fate(record: Record) -> str:
    return (
        f"{record['outcome']} {record['stage']}: {record['ran']} of {record['reaching']} reaching tests ran"
    )


def differences(before: Iterable[tuple[Record, Mutation]], results: Results) -> str:
    """Return the mutations whose outcome differs from an earlier one."""
    lines = []
    for old, mutation in before:
        new = results.last(mutation)
        if new is not None and "outcome" in old and (new["outcome"] == KILLED) != (old["outcome"] == KILLED):
            lines.append(f"before: {_column(old)}, now: {_column(new)}\n{mutation.diff()}")
    return "\n\n".join(lines)
