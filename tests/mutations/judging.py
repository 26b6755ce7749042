"""Run the tests that reach a mutation, nearest ones first, until one of them kills it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from tests.mutations.checkout import Checkout
from tests.mutations.mutations import Mutation
from tests.mutations.reach import TimedTest
from tests.mutations.tables import UNIT_TESTS, Stage

KILLED, SURVIVED, UNDECIDED = "killed", "survived", "undecided"
# A test that takes this long beyond ten times its duration without a mutation hangs.
_HANG_S: Final = 60.0
# Until tests are collected, or after the last one.
_OUTSIDE_OF_TESTS_S: Final = 300.0
# Files of the second run of pytest, after those of the folder that has the module's unit tests.
_SECOND_RUN_FILES: Final = 20


@dataclass(slots=True)
class Verdict:
    """The outcome of a mutation in a stage: KILLED, SURVIVED or UNDECIDED.

    `failure` says which test killed it and how. `reaching` is the number of tests that reach it, and `ran` of
    those that ran. `flaky` are tests that failed once and passed when they ran again with the mutation.
    """

    stage: str
    outcome: str
    bound_s: float
    reaching: int
    ran: int = 0
    failure: str = ""
    flaky: list[str] = field(default_factory=list)
    seconds: float = 0.0


def judge(
    checkout: Checkout, mutation: Mutation, stage: Stage, tests: Iterable[TimedTest], bound_s: float
) -> Verdict:
    """Run the tests of a stage that reach a mutation, as far as they take `bound_s` seconds without it."""
    start = time.monotonic()
    passing = [test for test in tests if test.outcome == "passed" and mutation.id in test.reaches]
    runs = in_runs(mutation.file, passing)
    chosen = within(bound_s, [test for run in runs for test in run])
    verdict = Verdict(stage.name, UNDECIDED, bound_s, len(passing))
    names = {test.name for test in chosen}
    with checkout.mutated(mutation):
        for run in runs:
            part = [test for test in run if test.name in names]
            if verdict.outcome != KILLED:
                _run(checkout, stage, part, verdict)
    if verdict.outcome != KILLED and verdict.ran == verdict.reaching:
        verdict.outcome = SURVIVED
    verdict.seconds = round(time.monotonic() - start, 1)
    return verdict


def _run(checkout: Checkout, stage: Stage, tests: Sequence[TimedTest], verdict: Verdict) -> None:
    """Run tests until one fails twice. One that passes the second time is flaky, and the others run then."""
    seconds = {test.name: test.seconds for test in tests}

    def limit_s(name: str) -> float:
        return _HANG_S + 10 * seconds[name] if name in seconds else _OUTSIDE_OF_TESTS_S

    left = [test.name for test in tests]
    while left:
        outcome = checkout.run(_files(left), options=("-x", *stage.options), selected=left, limit_s=limit_s)
        finished = outcome.finished
        if outcome.failure:
            again = [outcome.failed_test] if outcome.failed_test else left
            second = checkout.run(
                _files(again), options=("-x", *stage.options), selected=again, limit_s=limit_s
            )
            if second.failure:
                verdict.outcome = KILLED
                verdict.failure = f"{outcome.failure}: {outcome.failed_test or 'outside of tests'}"
            else:
                verdict.flaky += again
            finished |= second.finished
        verdict.ran += len(finished)
        if verdict.outcome == KILLED or not outcome.failure:
            return
        left = [name for name in left if name not in finished | set(again)]


def _files(names: Iterable[str]) -> list[str]:
    """Return the files of tests, each once and in the order of the tests."""
    return list(dict.fromkeys(name.partition("::")[0] for name in names))


def within(bound_s: float, tests: Iterable[TimedTest]) -> list[TimedTest]:
    """Return the first tests, as many as take `bound_s` seconds together."""
    chosen: list[TimedTest] = []
    for test in tests:
        bound_s -= test.seconds
        if bound_s < 0:
            break
        chosen.append(test)
    return chosen


def in_runs(module: str, tests: Sequence[TimedTest]) -> list[list[TimedTest]]:
    """Return tests in the order in which they should run, in up to three runs of pytest."""
    by_file: defaultdict[str, list[TimedTest]] = defaultdict(list)
    for test in tests:
        by_file[test.file].append(test)
    seconds = {file: sum(test.seconds for test in by_file[file]) for file in by_file}
    files = sorted(by_file, key=lambda file: (distance(module, file), seconds[file], file))
    near = sum(PurePosixPath(file).parent == _unit_tests_of(module).parent for file in files)
    parts = [files[:near], files[near : near + _SECOND_RUN_FILES], files[near + _SECOND_RUN_FILES :]]
    return [[test for file in part for test in by_file[file]] for part in parts if part]


def distance(module: str, test_file: str) -> tuple[int, int]:
    """Return how far a test file is from the unit tests of a module: by its folder, then by its name."""
    mirror, file = _unit_tests_of(module), PurePosixPath(test_file)
    shared = sum(folder in file.parents for folder in mirror.parents)
    if file.stem == mirror.stem:
        return -shared, 0
    return -shared, 1 if file.stem.startswith(f"{mirror.stem}_") else 2


def _unit_tests_of(module: str) -> PurePosixPath:
    """Return the file that has the unit tests of a module, by its name."""
    package = next(package for package in UNIT_TESTS if module.startswith(f"{package}/"))
    path = PurePosixPath(UNIT_TESTS[package], module.removeprefix(f"{package}/"))
    return path.with_name(f"test_{path.name}")
