"""The Pythons of this machine, and virtual environments with them, for tests on several versions."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_INSTALL: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class EnvironmentFailed(Exception):
    """A command that prepares an environment failed; its output is on the terminal."""


def find_python(version: str) -> Path | None:
    """Find a Python of a version such as "3.12": named by RMQ_PYTHONS, on the PATH, or installed by pyenv.

    RMQ_PYTHONS has paths of interpreters, separated like those of PATH. The shims of pyenv work for selected
    versions only, so its folders are searched, too.
    """
    return next((python for python in _candidates(version) if _version(python) == version), None)


def _candidates(version: str) -> Iterator[Path]:
    yield from map(Path, filter(None, os.environ.get("RMQ_PYTHONS", "").split(os.pathsep)))
    found = shutil.which(f"python{version}")
    if found:
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(pyenv.glob(f"{version}.*/bin/python{version}"))


def _version(python: Path) -> str:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def environment(interpreter: Path, folder: Path, constraints: str, *installs: Sequence[str]) -> Path:
    """Return the Python of a virtual environment. It is created again if the pins or pyproject.toml changed.

    `installs` has the arguments of each call of pip, which gets `constraints`, too. Raises EnvironmentFailed.
    """
    python, complete = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join([str(interpreter), constraints, (ROOT / "pyproject.toml").read_text()])
    if complete.exists() and complete.read_text() == wanted:
        return python
    print(f"== making {folder}", flush=True)
    run([interpreter, "-m", "venv", "--clear", folder])
    pins = folder / "constraints.txt"
    pins.write_text(constraints)
    for arguments in installs:
        run([python, *_INSTALL, "-c", pins, *arguments])
    complete.write_text(wanted)
    return python


def run(command: Sequence[str | Path], variables: Mapping[str, str] | None = None) -> None:
    """Run a command in the checkout, with more environment variables. Raises EnvironmentFailed."""
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(variables or {})}, check=False)
    if done.returncode != 0:
        raise EnvironmentFailed(f"{' '.join(map(str, command))} ended with {done.returncode}")
