"""The warning for a Python that is newer than the tested ones."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from rmq_remoting.daemon import platforms

_PROJECT = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module whose `main` returns 0."""
    module = ModuleType("some_daemon")
    module.main = lambda: 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_a_newer_python_gets_one_line(
    daemon: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 1))
    assert platforms.run_on_linux("rmq-broker", daemon) == 0
    assert capsys.readouterr().err == (
        "rmq-broker: Python 3.99 has not been tested; if a package fails on it, use Python 3.15\n"
    )


def test_a_tested_python_gets_none(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert platforms.run_on_linux("rmq-broker", daemon) == 0
    assert capsys.readouterr().err == ""


def test_the_newest_tested_python_is_that_of_the_package() -> None:
    newest = ".".join(map(str, platforms.NEWEST_TESTED_PYTHON))
    versions = [each for each in _PROJECT["classifiers"] if "Python :: 3." in each]
    assert versions[-1] == f"Programming Language :: Python :: {newest}"
