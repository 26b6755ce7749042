"""Runs the tools that check the files in deploy/."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
_TIMEOUT_SECONDS = 60


def judged(command: Sequence[str | Path], cwd: Path = DEPLOY) -> str:
    """Run a tool and return its output; AssertionError with the output if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def yaml_of(path: Path) -> Any:
    """Parse a YAML file."""
    return pytest.importorskip("yaml", reason="PyYAML is not installed").safe_load(path.read_text())
