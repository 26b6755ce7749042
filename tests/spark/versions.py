"""Runs all tests of the connector with other versions of PySpark and Python: `make test-spark-versions`.

Each combination has a virtual environment below `build/spark-versions`. A PySpark takes half a gigabyte, so
continuous integration does not run them. A Python that is not installed is skipped with a message.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.pythons import ROOT, EnvironmentFailed, environment, find_python

# Tests for every PySpark 4, and how to run them; the others need features of 4.2.
_CONNECTOR: Final = ("tests/unit/spark", "tests/spark")
_CONNECTOR_BEFORE_LIMITS: Final = (
    "tests/unit/spark",
    "--ignore=tests/unit/spark/lag",
    "tests/spark/test_batch_read.py",
    "tests/spark/test_stream_read.py",
    "tests/spark/test_sink.py",
    "tests/spark/deployments",
    # Other PySparks leave sockets of their own open.
    "-Wignore:unclosed <socket:ResourceWarning",
    "-Wignore::pytest.PytestUnraisableExceptionWarning",
)
# Filters are pushed to sources since 4.1.
_BEFORE_FILTERS: Final = ("--ignore=tests/unit/spark/driver/test_pushed_filters.py",)
_SDK: Final = ("tests/unit/client", "tests/unit/remoting")
_TESTED_PYTHON: Final = "3.11"
# Pinned for the newest PySpark; an older one has pins of its own.
_NOT_PINNED: Final = {"pyspark", "py4j"}


@dataclass(frozen=True, slots=True)
class Combination:
    """A PySpark on a Python, with the packages that a client of Spark Connect needs."""

    pyspark: str
    python: str

    def tests(self) -> Sequence[str]:
        """Return the arguments for pytest. Tests of the SDK do not depend on Spark: one run per Python is
        enough.
        """
        version = tuple(map(int, self.pyspark.split(".")))
        connector = _CONNECTOR_BEFORE_LIMITS if version < (4, 2) else _CONNECTOR
        if version < (4, 1):
            connector = (*connector, *_BEFORE_FILTERS)
        return connector if self.python == _TESTED_PYTHON else (*connector, *_SDK)

    def __str__(self) -> str:
        return f"pyspark-{self.pyspark}-python-{self.python}"


COMBINATIONS: Final = (
    Combination("4.3.0", "3.11"),
    Combination("4.3.0", "3.12"),
    Combination("4.3.0", "3.13"),
    Combination("4.2.0", "3.11"),
    Combination("4.1.4", "3.11"),
    Combination("4.0.5", "3.11"),
)


def main() -> int:
    """Run the tests in the selected combinations. Return 1 if one of them failed."""
    arguments = _arguments()
    verdicts: dict[Combination, str] = {}
    for combination in arguments.combinations or COMBINATIONS:
        try:
            verdicts[combination] = _verdict(combination, arguments.home, arguments.pytest)
        except EnvironmentFailed as failed:
            verdicts[combination] = f"failed: {failed}"
        print(f"== {combination}: {verdicts[combination]}", flush=True)
    print("\n".join(["", *(f"{name}: {verdict}" for name, verdict in verdicts.items())]))
    return any(verdict.startswith("failed") for verdict in verdicts.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions", description=__doc__)
    known = {str(combination): combination for combination in COMBINATIONS}

    def combination(text: str) -> Combination:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
        return known[text]

    parser.add_argument(
        "combinations", nargs="*", type=combination, metavar="NAME", help=f"of {', '.join(known)}"
    )
    parser.add_argument("--home", type=Path, default=ROOT / "build" / "spark-versions")
    parser.add_argument(
        "--pytest", action="append", default=[], help="an argument of pytest's, in place of all"
    )
    return parser.parse_args()


def _verdict(combination: Combination, home: Path, more: Sequence[str]) -> str:
    interpreter = find_python(combination.python)
    if interpreter is None:
        return f"not run: there is no Python {combination.python} on this machine"
    constraints = "\n".join(_constraints(combination)) + "\n"
    installed = ("-e", ".[dev]", "pyspark[connect]")
    python = environment(interpreter, home / str(combination), constraints, installed)
    command: list[str | Path] = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    command += more or combination.tests()
    print(f"== {' '.join(map(str, command))}", flush=True)
    done = subprocess.run(command, cwd=ROOT, check=False)
    return "passed" if done.returncode == 0 else f"failed: pytest ended with {done.returncode}"


def _constraints(combination: Combination) -> Iterable[str]:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.partition("==")[0].lower() not in _NOT_PINNED:
            yield line
    yield f"pyspark=={combination.pyspark}"


if __name__ == "__main__":
    sys.exit(main())
