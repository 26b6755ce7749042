"""Which tests reach the places of mutations, found by one run of a stage's tests without any mutation."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tests.mutations.checkout import Checkout, Outcome
from tests.mutations.mutations import Mutation, Sources, records
from tests.mutations.places import Place
from tests.mutations.probes import with_probes
from tests.mutations.tables import Stage
from tests.mutations.workers import Workers

# Files of one run of pytest. The results of each run are stored at its end.
_FILES_PER_RUN: Final = 20
_LONGEST_TEST_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class TimedTest:
    """A test, its duration without a mutation, and the ids of the mutations whose places it reaches.

    `outcome` is "passed", "failed" or "skipped".
    """

    name: str
    seconds: float
    outcome: str
    reaches: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class SuiteFailed(Exception):
    """The tests of some files cannot be run at all; the message has the output of pytest."""


def files_of(root: Path, stage: Stage) -> list[str]:
    """Return the test files of a stage, in alphabetical order."""
    paths = [path for folder in stage.folders for path in (root / folder).rglob("test_*.py")]
    return sorted(path.relative_to(root).as_posix() for path in paths)


def probed(root: Path, mutations: Sequence[Mutation]) -> dict[str, str]:
    """Return the texts of the mutated files with a probe at the place of each mutation, by its position."""
    sources = Sources(root)
    by_file: defaultdict[str, dict[int, Place]] = defaultdict(dict)
    for number, mutation in enumerate(mutations):
        by_file[mutation.file][number] = sources.place(mutation)
    return {file: with_probes((root / file).read_text(), numbers) for file, numbers in by_file.items()}


def run_probed(
    checkout: Checkout, stage: Stage, files: Sequence[str], mutations: Sequence[Mutation]
) -> list[TimedTest]:
    """Run test files with probes. Tests that fail then run once more without probes."""
    excluded: set[str] = set()
    selected: list[str] | None = None
    while True:
        with checkout.changed(probed(checkout.root, mutations)):
            outcome = checkout.run(
                files,
                options=("--continue-on-collection-errors", *stage.options),
                selected=selected,
                places=len(mutations),
                limit_s=lambda _: _LONGEST_TEST_S,
            )
        if len(outcome.tests) == len(outcome.collected) and outcome.places:
            break
        if not outcome.failed_test:
            raise SuiteFailed(checkout.output())
        excluded.add(outcome.failed_test)
        selected = [name for name in outcome.collected if name not in excluded]
    tests = _tests(outcome, [mutation.id for mutation in mutations])
    failed = [str(record["test"]) for record in outcome.tests if record["outcome"] == "failed"]
    if failed:
        passing = _passing_without_probes(checkout, stage, failed)
        tests = [replace(test, outcome="passed") if test.name in passing else test for test in tests]
    return tests + [TimedTest(name, _LONGEST_TEST_S, "failed", ()) for name in sorted(excluded)]


def _tests(outcome: Outcome, ids: Sequence[str]) -> list[TimedTest]:
    # Row 0: what runs when tests are imported, for all of them.
    return [
        TimedTest(
            name=record["test"],
            seconds=record["seconds"],
            outcome=record["outcome"],
            reaches=tuple(
                ids[place]
                for place in sorted(
                    {place for row in (0, *record["rows"]) for place in outcome.places[str(row)]}
                )
            ),
        )
        for record in outcome.tests
    ]


def _passing_without_probes(checkout: Checkout, stage: Stage, names: Sequence[str]) -> set[str]:
    files = sorted({name.partition("::")[0] for name in names})
    outcome = checkout.run(files, options=stage.options, selected=names, limit_s=lambda _: _LONGEST_TEST_S)
    return {str(record["test"]) for record in outcome.tests if record["outcome"] == "passed"}


class ReachFile:
    """The tests of a stage in a file of JSON lines, so that an interrupted collection can continue."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> tuple[set[str], list[TimedTest]]:
        """Return the test files that have been run, and their tests."""
        groups = records(self._path)
        files = {file for group in groups for file in group["files"]}
        stored = [test for group in groups for test in group["tests"]]
        return files, [TimedTest(**test | {"reaches": tuple(test["reaches"])}) for test in stored]

    def add(self, files: Sequence[str], tests: Iterable[TimedTest]) -> None:
        with self._path.open("a") as stored:
            stored.write(json.dumps({"files": files, "tests": [asdict(test) for test in tests]}) + "\n")


def reaching_tests(
    workers: Workers, stage: Stage, mutations: Sequence[Mutation], stored: ReachFile
) -> list[TimedTest]:
    """Return the tests of a stage; those of files that `stored` does not have are run."""
    known, tests = stored.load()
    files = [file for file in files_of(workers.root, stage) if file not in known]
    groups = [files[start : start + _FILES_PER_RUN] for start in range(0, len(files), _FILES_PER_RUN)]

    def run(checkout: Checkout, group: list[str]) -> list[TimedTest]:
        return run_probed(checkout, stage, group, mutations)

    for done, (group, found) in enumerate(workers.map(run, groups), start=1):
        stored.add(group, found)
        tests += found
        print(
            f"{stage.name}: {done} of {len(groups)} groups of test files run without a mutation", flush=True
        )
    return tests
