"""Runs of pytest in a small checkout, from the search for reaching tests to a verdict."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.mutations.checkout import Checkout
from tests.mutations.judging import KILLED, SURVIVED, judge
from tests.mutations.mutations import Mutation, Sources
from tests.mutations.reach import run_probed
from tests.mutations.tables import Stage

_MODULE = "broker/rmq_broker/offsets/table.py"
_TESTS = "tests/unit/broker/offsets/test_table.py"
_FILES = {
    "pyproject.toml": '[tool.hatch.build]\ndev-mode-dirs = ["broker"]\n[tool.pytest.ini_options]\n',
    "broker/rmq_broker/__init__.py": "",
    "broker/rmq_broker/offsets/__init__.py": "",
    _MODULE: """
def count_down(number):
    while number > 0:
        number -= 1
    return number


def unused(number):
    return number + 1


def opened(calls):
    calls.append(1)
    return calls
""",
    _TESTS: """
import subprocess, sys, pytest
from rmq_broker.offsets.table import count_down, opened


@pytest.fixture(scope="module")
def calls():
    return opened([])


def test_fails(): assert False
def test_counts(): assert count_down(2) == 0
def test_first(calls, subtests):
    with subtests.test("skipped"):
        pytest.skip("does not matter")
def test_skipped(calls): pytest.skip("without a JDK")
def test_second(calls): assert calls == [1]
def test_counts_in_another_process():
    code = "from rmq_broker.offsets.table import count_down; print(count_down(0))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"0\\n"
""",
}
# pytest starts sooner without the plugins of this project.
_STAGE = Stage("unit", ("tests/unit",), bound_s=60, options=("-p", "xdist.plugin"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path, threading.Event())
    for name, text in _FILES.items():
        path = checkout.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return checkout


def test_tests_that_reach_a_mutation_kill_it_or_not(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr("tests.mutations.judging._HANG_S", 0.5)
    by_kind: dict[tuple[int, str], Mutation] = {
        (mutation.line, mutation.kind): mutation
        for mutation in Sources(checkout.root).mutations("offsets", _MODULE)
    }
    comparison, endless, unreached, dropped = (
        by_kind[3, "compare"],
        by_kind[4, "arithmetic"],
        by_kind[9, "arithmetic"],
        by_kind[13, "drop-call"],
    )
    tests = run_probed(checkout, _STAGE, [_TESTS], [comparison, endless, unreached, dropped])
    reaches = {test.name.partition("::")[2]: test.reaches for test in tests}
    assert reaches == {
        "test_fails": (),
        "test_counts": (comparison.id, endless.id),
        "test_first": (dropped.id,),
        "test_skipped": (dropped.id,),
        "test_second": (dropped.id,),
        "test_counts_in_another_process": (comparison.id,),
    }
    others = {test.name: test.outcome for test in tests if test.outcome != "passed"}
    assert others == {f"{_TESTS}::test_fails": "failed", f"{_TESTS}::test_skipped": "skipped"}

    def outcome(mutation: Mutation) -> tuple[str, str]:
        verdict = judge(checkout, mutation, _STAGE, tests, 60)
        return verdict.outcome, verdict.failure

    assert outcome(comparison) == (KILLED, f"failed: {_TESTS}::test_counts")
    assert outcome(endless) == (KILLED, f"time-out: {_TESTS}::test_counts")
    assert outcome(dropped) == (KILLED, f"failed: {_TESTS}::test_second")
    assert outcome(unreached) == (SURVIVED, "")
    assert (checkout.root / _MODULE).read_text() == _FILES[_MODULE]
