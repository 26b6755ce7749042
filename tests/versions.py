"""Runs the unit tests, and a broker with the SDK, on each Python of this machine: `make test-versions`.

Each version has a virtual environment below `build/versions`, of 400 MB. What the daemons need is installed
from wheels alone, as where there is no C compiler. The tests run interpreted, and then with the hot path
compiled. The results are written to docs/compatibility.md and README.md. Results of versions that this run
leaves out, or that this machine does not have, stay there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.report import commit, paragraph, write_between
from rmq_remoting.daemon.platforms import NEWEST_TESTED_PYTHON
from tests.support.pythons import ROOT, EnvironmentFailed, environment, find_python, run

VERSIONS: Final = tuple(f"3.{minor}" for minor in range(11, NEWEST_TESTED_PYTHON[1] + 1))
# All tests run on this one.
_MAIN_VERSION: Final = VERSIONS[0]
_FORMS: Final = ("interpreted", "compiled")
_WORKS: Final = "works"
_MARKS: Final = (
    "<!-- Python versions: written by `make test-versions` -->",
    "<!-- end of the Python versions -->",
)
PAGE: Final = ROOT / "docs" / "compatibility.md"
README: Final = ROOT / "README.md"
_HEADING: Final = (
    "| Python | form | unit tests | a broker, a send, a receive | tested |\n|---|---|---|---|---|\n"
)
# crcmod has wheels for no Python, and needs no compiler.
_FROM_WHEELS: Final = ("--only-binary", ":all:", "--no-binary", "crcmod,rmq", "-e", ".[cli,proxy]")
_FREE_PORTS: Final = (
    *("--namesrv-port=0", "--set=listenPort=0", "--set=grpcServerPort=0"),
    "--set=metricsExporterType=DISABLE",
)
_SMOKE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Result:
    """A row of the table: the outcome of the tests on a Python in one form."""

    python: str
    form: str
    unit_tests: str
    smoke_test: str
    tested: str

    @property
    def key(self) -> tuple[int, str]:
        """The place in the table: a newer Python of the same version replaces the row."""
        return int(self.python.split(".")[1]), self.form

    @property
    def version(self) -> str:
        return ".".join(self.python.split(".")[:2])

    @property
    def passed(self) -> bool:
        """Whether all of it passed."""
        return re.fullmatch(r"[\d,]+ passed(, [\d,]+ skipped)?", self.unit_tests) is not None and (
            self.smoke_test == _WORKS
        )


def main() -> int:
    """Test the selected versions, and write the results. Return 1 if one failed."""
    arguments = _arguments()
    results: list[Result] = []
    for version in arguments.versions or VERSIONS:
        interpreter = find_python(version)
        if interpreter is None:
            print(f"== there is no Python {version} on this machine", flush=True)
            continue
        for form in arguments.form or _FORMS:
            results.append(_tested(interpreter, arguments.home / version, form, arguments.tests))
            print(f"== {_row(results[-1])}", flush=True)
    if not arguments.dry_run:
        write_results(results)
    return not all(result.passed for result in results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)}")
    parser.add_argument("--form", action="append", choices=_FORMS, help="only this form")
    parser.add_argument("--home", type=Path, default=ROOT / "build" / "versions")
    parser.add_argument("--tests", default="tests/unit", help="folder or file of the unit tests")
    parser.add_argument("--dry-run", action="store_true", help="do not write the results to the pages")
    arguments = parser.parse_args()
    if unknown := set(arguments.versions) - set(VERSIONS):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(VERSIONS)}")
    if arguments.tests != "tests/unit" and not arguments.dry_run:
        parser.error("the pages need the results of all unit tests: add --dry-run")
    return arguments


def _tested(interpreter: Path, folder: Path, form: str, tests: str) -> Result:
    tested = f"{datetime.now(UTC):%Y-%m-%d}, {commit()}"
    try:
        constraints = (ROOT / "constraints.txt").read_text()
        python = environment(interpreter, folder, constraints, _FROM_WHEELS, ("-e", ".[dev]"))
        # Without the paths of the caller, the packages are those of the environment.
        variables = {"PYTHONPATH": "", "RMQ_COMPILE": "1" if form == "compiled" else "0"}
        run([python, "-m", "compiling"], variables)
        patch = _checked_version(python, form, variables)
    except EnvironmentFailed as failed:
        return Result(f"{folder.name}.x", form, f"not run: {failed}", "not run", tested)
    log = folder / f"{form}.log"
    return Result(patch, form, _unit_tests(python, tests, variables, log), _smoke(python, variables), tested)


def _checked_version(python: Path, form: str, variables: Mapping[str, str]) -> str:
    """Return the full version of a Python. Raises EnvironmentFailed if the broker runs in another form."""
    done = subprocess.run(
        [python, "-m", "rmq_broker", "--version"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.search(rf"\({form}, CPython (\S+)\)", done.stdout)
    if said is None:
        raise EnvironmentFailed(f"rmq-broker --version: {done.stdout.strip() or done.stderr.strip()}")
    return said[1]


def _unit_tests(python: Path, tests: str, variables: Mapping[str, str], log: Path) -> str:
    """Run the unit tests, and return their counts, as `counts` does."""
    options = ["--part", "quick", "-n", "0", "-q", "-p", "no:cacheprovider"]
    command = [str(python), "-m", "pytest", *options, tests]
    print(f"== {' '.join(command)} > {log}", flush=True)
    with log.open("w") as output:
        subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, stdout=output, check=False)
    return counts(log.read_text())


def counts(output: str) -> str:
    """Return the numbers of failed, passed and skipped tests in the last line of pytest's output."""
    last = output.strip().rpartition("\n")[2]
    found = re.findall(r"(\d+) (failed|passed|skipped|errors?)\b", last)
    return ", ".join(f"{int(number):,} {outcome}" for number, outcome in found) or f"not run: {last}"


def _smoke(python: Path, variables: Mapping[str, str]) -> str:
    """Start `rmq-broker --standalone`, send and receive, and stop it. Return `works`, or the failure."""
    environment_variables = {**os.environ, **variables}
    with tempfile.TemporaryDirectory() as store:
        command = [str(python.with_name("rmq-broker")), "--standalone", f"--store={store}", *_FREE_PORTS]
        broker = subprocess.Popen(command, env=environment_variables, stdout=subprocess.PIPE, text=True)
        try:
            return _sent_and_received(python, environment_variables, broker)
        finally:
            broker.kill()
            broker.communicate()


def _sent_and_received(python: Path, variables: Mapping[str, str], broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    ready = re.search(r"namesrv (\S+)", broker.stdout.readline())
    if ready is None:
        return "the broker does not start"
    quickstart = [python, ROOT / "examples" / "quickstart.py", ready[1]]
    try:
        subprocess.run(
            quickstart, env=variables, timeout=_SMOKE_SECONDS, check=True, stdout=subprocess.DEVNULL
        )
        broker.terminate()
        code = broker.wait(_SMOKE_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
        return f"failed: {failed}"
    return _WORKS if code == 0 else f"the broker ends with exit code {code}"


def write_results(results: Iterable[Result], page: Path = PAGE, readme: Path = README) -> None:
    """Write new rows to the table, which keeps its others, and the sentence by all of them to README.md."""
    rows = {result.key: result for result in rows_of(page.read_text())}
    rows.update({result.key: result for result in results})
    ordered = [rows[key] for key in sorted(rows, key=lambda key: (key[0], _FORMS.index(key[1])))]
    write_between(page, _MARKS, _HEADING + "\n".join(map(_row, ordered)))
    write_between(readme, _MARKS, paragraph(sentence(ordered)))


def rows_of(page: str) -> Iterator[Result]:
    table = page.partition(_MARKS[0])[2].partition(_MARKS[1])[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("3."):
            yield Result(*cells)


def _row(result: Result) -> str:
    return f"| {' | '.join(astuple(result))} |"


def sentence(results: Iterable[Result]) -> str:
    """Return the sentences of README.md on the versions of Python."""
    passed: dict[str, list[str]] = {}
    failed: list[str] = []
    for result in results:
        if result.passed:
            passed.setdefault(result.version, []).append(result.form)
        else:
            failed.append(f"{result.version} ({result.form})")
    both = [version for version, forms in passed.items() if len(forms) == len(_FORMS)]
    one = [f"{version} ({forms[0]})" for version, forms in passed.items() if len(forms) < len(_FORMS)]
    clauses = [f"{_listed(both)}, interpreted and compiled"] if both else []
    clauses += [_listed(one)] if one else []
    text = f"You need Python {VERSIONS[0]} or newer, and `make`. All tests run on {_MAIN_VERSION}."
    if clauses:
        text += f" The unit tests, and a broker with the SDK, have passed on {', and on '.join(clauses)}"
        text += " ([versions](docs/compatibility.md#python-versions))."
    if failed:
        text += f" They have not all passed on {_listed(failed)}."
    return text


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


if __name__ == "__main__":
    sys.exit(main())
