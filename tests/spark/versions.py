"""Runs all tests of the connector with other versions of PySpark and Python: `make test-spark-versions`.

Each combination has a virtual environment below `build/spark-versions`, created once. A PySpark takes half a
gigabyte, so continuous integration does not run them. A Python that is not installed is skipped with a
message.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
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


class EnvironmentFailed(Exception):
    """A virtual environment could not be created; the message has the end of the output."""


def main() -> int:
    """Run the tests in the selected combinations. Return 1 if one of them failed."""
    arguments = _arguments()
    home: Path = arguments.home
    home.mkdir(parents=True, exist_ok=True)
    verdicts: dict[Combination, str] = {}
    for combination in arguments.combinations or COMBINATIONS:
        try:
            verdicts[combination] = _verdict(combination, home, arguments.pytest)
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
    parser.add_argument("--home", type=Path, default=_ROOT / "build" / "spark-versions")
    parser.add_argument(
        "--pytest", action="append", default=[], help="an argument of pytest's, in place of all"
    )
    return parser.parse_args()


def _verdict(combination: Combination, home: Path, more: Sequence[str]) -> str:
    interpreter = _interpreter(combination.python)
    if interpreter is None:
        return f"not run: there is no Python {combination.python} on this machine"
    python = _environment(combination, interpreter, home)
    command: list[str | Path] = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    command += more or combination.tests()
    print(f"== {' '.join(map(str, command))}", flush=True)
    done = subprocess.run(command, cwd=_ROOT, check=False)
    return "passed" if done.returncode == 0 else f"failed: pytest ended with {done.returncode}"


def _interpreter(version: str) -> Path | None:
    """Find a Python of that version on the PATH, or among pyenv's, whose shims work for selected versions
    only.
    """
    found = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [Path(found)] if found else []
    candidates += sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    return next((path for path in candidates if _works(path)), None)


def _works(python: Path) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _environment(combination: Combination, interpreter: Path, home: Path) -> Path:
    """Return the Python of a complete environment. Raises EnvironmentFailed."""
    folder = home / str(combination)
    python = folder / "bin" / "python"
    complete = folder / ".installed"
    if complete.exists():
        return python
    print(f"== {combination}: making {folder}", flush=True)
    constraints = home / f"{combination}.txt"
    constraints.write_text("\n".join(_constraints(combination)) + "\n")
    _run([interpreter, "-m", "venv", "--clear", folder])
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        constraints,
    ]
    _run([*install, "-e", ".[dev]", "pyspark[connect]"])
    complete.touch()
    return python


def _constraints(combination: Combination) -> Iterable[str]:
    for line in (_ROOT / "constraints.txt").read_text().splitlines():
        if line.partition("==")[0].lower() not in _NOT_PINNED:
            yield line
    yield f"pyspark=={combination.pyspark}"


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, cwd=_ROOT, check=False)
    if done.returncode != 0:
        raise EnvironmentFailed(f"{' '.join(map(str, command))} ended with {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
