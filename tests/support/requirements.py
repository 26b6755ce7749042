"""Tools that tests need and that a machine may lack.

A test whose tool is missing is skipped, visibly, on a developer's machine. With `CI=true` in the environment
it fails, so that continuous integration never passes by leaving tests out. `RMQ_MISSING_TOOLS` (names
separated by commas) lists the tools that this machine cannot install: their tests are skipped in CI, too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from tests.support.toolchain import BuildFailed, ToolMissing

T = TypeVar("T")


def fail_or_skip(reason: str, tool: str = "") -> NoReturn:
    """End the test: skip it, or fail it in CI unless `tool` is one that this machine cannot install."""
    unavailable = os.environ.get("RMQ_MISSING_TOOLS", "").split(",")
    if os.environ.get("CI") == "true" and tool not in unavailable:
        pytest.fail(f"{reason} (CI=true: a missing tool is a failure)", pytrace=False)
    pytest.skip(reason)


def built_or_skip(build: Callable[[], T]) -> T:
    """Return the built program. A missing tool or a failing build (no network on a laptop) skips the test."""
    try:
        return build()
    except (ToolMissing, BuildFailed) as problem:
        fail_or_skip(str(problem))


def tool_or_skip(name: str, source: str) -> Path:
    """Return a program from the PATH or this Python's environment; `source` says how to install it."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        fail_or_skip(f"there is no `{name}` on the PATH ({source})", tool=name)
    return Path(found)


def java_or_skip() -> None:
    """End the test where Spark finds no Java."""
    if shutil.which("java") is None:
        fail_or_skip("Spark needs Java 17 or later: there is no `java` on the PATH", tool="java")
