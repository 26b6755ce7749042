"""The examples of docs/testing.md run as printed, and the page lists everything that the code has."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest

from rmq_testing import OPERATIONS, BrokerForTests, Faults, blocking, plugin

pytest_plugins = ["pytester"]

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text()


def _files() -> dict[str, str]:
    """Return the blocks of the page by the file name in their first lines."""
    blocks = re.findall(r"^```python\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    return {re.match(r"# (\w+\.py)\n", block)[1]: block for block in blocks}  # type: ignore[index]


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    files = _files()
    for name, block in files.items():
        (pytester.path / name).write_text(block)
    tests = sum(len(re.findall(r"^(?:async )?def test_", block, re.MULTILINE)) for block in files.values())
    assert tests > 5
    result = pytester.runpytest_inprocess(
        *("-p", "rmq_testing.plugin", "-p", "no:xdist", "-p", "no:timeout"),
        "--asyncio-mode=auto",
        *("-o", "asyncio_default_fixture_loop_scope=function"),
    )
    result.assert_outcomes(passed=tests)


def test_the_program_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "standalone.py"
    program.write_text(_files()[program.name])
    runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out == "b'4711'\n"


def test_the_page_lists_every_fixture() -> None:
    fixtures = [name for name in vars(plugin) if name.startswith("rmq_") and name != "rmq_server"]
    assert len(fixtures) == 9
    assert [name for name in fixtures if f"\n| `{name}` |" not in _PAGE] == []


def test_the_page_lists_every_member_of_a_broker() -> None:
    members = [name for name, _ in inspect.getmembers(BrokerForTests) if not name.startswith("_")]
    assert [name for name in members if name != "sharing" and not re.search(rf"`{name}[`(]", _PAGE)] == []


def test_the_page_lists_every_fault_and_operation() -> None:
    faults = [name for name, _ in inspect.getmembers(Faults) if not name.startswith("_")]
    missing = [name for name in faults if name not in ("install", "clear") and f"`{name}(" not in _PAGE]
    assert missing == []
    assert [name for name in OPERATIONS if f"`{name}`" not in _PAGE] == []


def test_both_faces_have_the_same_members() -> None:
    assert {name for name in dir(BrokerForTests) if not name.startswith("_")} == {
        name for name in dir(blocking.BrokerForTests) if not name.startswith("_")
    }
