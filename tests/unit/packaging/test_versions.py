"""`make test-versions`: finding a Python, and writing the results to the pages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.pythons import find_python
from tests.versions import PAGE, README, Result, counts, rows_of, sentence, write_results

_HERE = ".".join(map(str, sys.version_info[:2]))


def _result(
    python: str, form: str = "interpreted", unit_tests: str = "9 passed", smoke: str = "works"
) -> Result:
    return Result(python, form, unit_tests, smoke, "2026-01-02, abc")


def test_an_interpreter_is_named_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", "/none")
    monkeypatch.delenv("RMQ_PYTHONS", raising=False)
    assert find_python(_HERE) is None
    monkeypatch.setenv("RMQ_PYTHONS", f"/none/python:{sys.executable}")
    assert find_python(_HERE) == Path(sys.executable)
    assert find_python("3.9") is None


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "...\n26 failed, 16739 passed, 3 skipped in 448.28s (0:07:28)\n",
            "26 failed, 16,739 passed, 3 skipped",
        ),
        ("1 error in 15.10s", "1 error"),
        ("no tests ran in 0.01s", "not run: no tests ran in 0.01s"),
        ("9 passed, 4 deselected, 2 warnings in 1s", "9 passed"),
    ],
)
def test_counts_of_a_run(output: str, expected: str) -> None:
    assert counts(output) == expected


@pytest.mark.parametrize(
    ("unit_tests", "smoke", "passed"),
    [
        ("16,739 passed, 3 skipped", "works", True),
        ("9 passed", "the broker does not start", False),
        ("1 failed, 9 passed", "works", False),
        ("1 error", "works", False),
    ],
)
def test_what_counts_as_passed(unit_tests: str, smoke: str, passed: bool) -> None:
    assert _result("3.14.1", unit_tests=unit_tests, smoke=smoke).passed is passed


def test_rows_that_a_run_leaves_out_stay(tmp_path: Path) -> None:
    page, readme = tmp_path / "page.md", tmp_path / "readme.md"
    page.write_text("# Page\n")
    readme.write_text("# Readme\n")
    first = [_result("3.9.1", "compiled"), _result("3.12.1"), _result("3.12.1", "compiled")]
    write_results(first, page, readme)
    newer = _result("3.12.9", unit_tests="1 failed, 8 passed")
    write_results([newer], page, readme)
    assert list(rows_of(page.read_text())) == [first[0], newer, first[2]]
    assert "passed on 3.9 (compiled) and 3.12 (compiled)" in readme.read_text().replace("\n", " ")
    assert "They have not all passed on 3.12 (interpreted)." in readme.read_text().replace("\n", " ")


def test_a_version_that_passed_in_both_forms() -> None:
    rows = [_result(python, form) for python in ("3.11.7", "3.12.1") for form in ("interpreted", "compiled")]
    assert "passed on 3.11 and 3.12, interpreted and compiled (" in sentence(rows)
    rows.append(_result("3.13.0"))
    assert "compiled, and on 3.13 (interpreted) (" in sentence(rows)


def test_the_readme_says_what_the_table_says() -> None:
    assert sentence(rows_of(PAGE.read_text())) in README.read_text().replace("\n", " ")
