"""The tests that reach mutations: their rows, and tests that fail, hang or are known already."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tests.mutations.checkout import Checkout
from tests.mutations.mutations import Mutation, Sources
from tests.mutations.reach import ReachFile, TimedTest, files_of, run_probed
from tests.mutations.tables import Stage
from tests.unit.mutations.fake_checkout import FakeCheckout

_STAGE = Stage("unit", ("tests/unit",), bound_s=60)
_FILE = "tests/unit/test_pop.py"
_NAMES = [f"{_FILE}::test_{number}" for number in range(3)]


def _mutations(root: Path) -> list[Mutation]:
    path = root / "broker/rmq_broker/pop/acks.py"
    path.parent.mkdir(parents=True)
    path.write_text("def run(a):\n    a.b()\n    a.c()\n    return a + 1\n")
    return Sources(root).mutations("pop", "broker/rmq_broker/pop/acks.py")[:3]


def _found(checkout: FakeCheckout, mutations: list[Mutation]) -> list[TimedTest]:
    checkout.collected = _NAMES
    return run_probed(cast(Checkout, checkout), _STAGE, [_FILE], mutations)


def test_a_test_reaches_the_places_of_its_rows_and_of_imports(tmp_path: Path) -> None:
    mutations = _mutations(tmp_path)
    places = {"0": [2], "1": [], "2": [0], "3": [1, 2]}
    tests = _found(FakeCheckout(tmp_path, places), mutations)
    first, second, third = (mutation.id for mutation in mutations)
    assert [test.reaches for test in tests] == [(third,), (first, third), (second, third)]
    assert {test.outcome for test in tests} == {"passed"}


def test_a_test_that_fails_with_probes_alone_counts_as_passing(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path, {str(row): [] for row in range(4)})
    checkout.outcomes = {_NAMES[0]: ["failed"], _NAMES[1]: ["failed", "failed"], _NAMES[2]: ["skipped"]}
    tests = _found(checkout, _mutations(tmp_path))
    assert [test.outcome for test in tests] == ["passed", "failed", "skipped"]
    assert checkout.runs == [_NAMES, _NAMES[:2]]


def test_a_test_that_hangs_is_left_out_and_the_others_run_again(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path, {str(row): [] for row in range(4)})
    checkout.outcomes = {_NAMES[1]: ["time-out"]}
    tests = _found(checkout, _mutations(tmp_path))
    assert {test.name: test.outcome for test in tests} == {
        _NAMES[0]: "passed",
        _NAMES[2]: "passed",
        _NAMES[1]: "failed",
    }


def test_found_tests_are_stored_for_a_further_call(tmp_path: Path) -> None:
    stored = ReachFile(tmp_path / "reach.jsonl")
    assert stored.load() == (set(), [])
    test = TimedTest(_NAMES[0], 0.5, "passed", ("a:1:2:compare",))
    stored.add([_FILE], [test])
    assert stored.load() == ({_FILE}, [test])


def test_files_of_a_stage_are_in_its_folders(tmp_path: Path) -> None:
    for name in (
        "tests/unit/pop/test_b.py",
        "tests/unit/test_a.py",
        "tests/unit/c.py",
        "tests/spark/test_d.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files_of(tmp_path, _STAGE) == ["tests/unit/pop/test_b.py", "tests/unit/test_a.py"]
