"""Mutation testing: change lines of the code at random, one at a time, and see which tests notice.

python -m tests.mutations --list                          print the mutations that the seed draws
python -m tests.mutations --until unit                    judge them by the unit tests
python -m tests.mutations --until test                    let other tests judge those that survived
python -m tests.mutations --from RESULTS --until unit     replay the mutations of another run on this commit
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutations.checkout import ROOT, Checkout, commit_of, extract
from tests.mutations.judging import Verdict, judge
from tests.mutations.mutations import Mutation, Sources, draw, find, read, records, written
from tests.mutations.reach import ReachFile, TimedTest, reaching_tests
from tests.mutations.report import Results, differences, line, summary
from tests.mutations.tables import AREAS, STAGES, Stage
from tests.mutations.workers import Workers

_OUT: Final = ROOT / "build" / "mutations"


def main() -> None:
    """Draw or load mutations, and list or judge them."""
    arguments = _arguments()
    commit = commit_of(arguments.commit)
    # A short path: tests create sockets below it.
    with tempfile.TemporaryDirectory(prefix="rmqmut") as folder:
        extract(commit, Path(folder) / "sources")
        mutations, before = _mutations(arguments, Sources(Path(folder) / "sources"))
        if arguments.list:
            for mutation in mutations:
                print(json.dumps(written(mutation)) if arguments.json else f"{mutation.diff()}\n")
            return
        arguments.out.mkdir(parents=True, exist_ok=True)
        results = Results(arguments.out / "results.jsonl", commit)
        with Workers(commit, Path(folder), arguments.workers) as workers:
            _judge_all(arguments, commit, mutations, results, workers)
    if not arguments.map:
        print(f"\nCommit {commit}\n\n{summary(mutations, results)}")
        if changed := differences(before, results):
            print(f"\nOther outcomes than before\n\n{changed}")


def _mutations(
    arguments: argparse.Namespace, sources: Sources
) -> tuple[list[Mutation], list[tuple[dict[str, Any], Mutation]]]:
    """Return the mutations of this commit; of replayed ones also the earlier records."""
    if arguments.replay is None:
        return draw(sources, arguments.area or list(AREAS), arguments.number, arguments.seed), []
    stored = {record["id"]: record for record in records(arguments.replay)}
    found = [(record, find(sources, read(record))) for record in stored.values()]
    for record, mutation in found:
        if mutation is None:
            print(f"not found in this commit:\n{read(record).diff()}\n")
    before = [(record, mutation) for record, mutation in found if mutation is not None]
    return [mutation for _, mutation in before], before


def _judge_all(
    arguments: argparse.Namespace,
    commit: str,
    mutations: Sequence[Mutation],
    results: Results,
    workers: Workers,
) -> None:
    listed = hashlib.sha256("\n".join(mutation.id for mutation in mutations).encode()).hexdigest()[:8]
    names = [stage.name for stage in STAGES]
    for stage in STAGES[: names.index(arguments.until) + 1]:
        bound_s = arguments.bound or stage.bound_s
        left = [mutation for mutation in mutations if results.needs(mutation, stage.name, bound_s)]
        if left or arguments.map:
            stored = ReachFile(arguments.out / f"reach-{commit}-{listed}-{stage.name}.jsonl")
            tests = reaching_tests(workers, stage, mutations, stored)
            for test in tests:
                if test.outcome == "failed":
                    print(f"fails without a mutation, left out: {test.name}")
            if not arguments.map:
                _judge_stage(stage, bound_s, left, tests, results, workers)


def _judge_stage(
    stage: Stage,
    bound_s: float,
    mutations: Sequence[Mutation],
    tests: Sequence[TimedTest],
    results: Results,
    workers: Workers,
) -> None:
    def run(checkout: Checkout, mutation: Mutation) -> Verdict:
        return judge(checkout, mutation, stage, tests, bound_s)

    for mutation, verdict in workers.map(run, mutations):
        results.add(mutation, verdict)
        print(line(mutation, verdict), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw (1)")
    parser.add_argument("-n", "--number", type=int, default=60, help="number of mutations (60)")
    parser.add_argument("--area", action="append", choices=AREAS, help="only this area; may be repeated")
    parser.add_argument("--commit", default="HEAD", help="the commit whose code and tests are used (HEAD)")
    parser.add_argument(
        "--from",
        dest="replay",
        type=Path,
        metavar="FILE",
        help="replay the mutations of a list or of results",
    )
    parser.add_argument("--list", action="store_true", help="print the mutations, and run nothing")
    parser.add_argument("--json", action="store_true", help="print the list as JSON lines, for --from")
    parser.add_argument("--map", action="store_true", help="only find out which tests reach the mutations")
    parser.add_argument(
        "--until",
        choices=[stage.name for stage in STAGES],
        default="unit",
        help="the last stage of tests (unit)",
    )
    parser.add_argument(
        "--bound", type=float, metavar="SECONDS", help="time for the tests of one mutation in each stage"
    )
    parser.add_argument("-j", dest="workers", type=int, default=1, help="checkouts that run tests (1)")
    parser.add_argument(
        "--out",
        type=Path,
        default=_OUT,
        help="folder of the results; a further call continues (build/mutations)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
