"""Results that a further call continues, and their summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.judging import KILLED, SURVIVED, UNDECIDED, Verdict
from tests.mutations.mutations import Mutation, records
from tests.mutations.report import Results, differences, summary

_FIRST = Mutation("pop", "broker/rmq_broker/pop/acks.py", 3, 4, "compare", "ack", "  a < b", "  a <= b")
_SECOND = Mutation("sdk", "client/rmq_client/tls.py", 7, 0, "return", "is_on", "return True", "return False")


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results.jsonl", "c0ffee")


def test_the_summary_has_a_row_of_each_area_and_the_survivors(results: Results) -> None:
    results.add(_FIRST, Verdict("unit", SURVIVED, 60, reaching=2, ran=2))
    results.add(_SECOND, Verdict("unit", KILLED, 60, reaching=1, ran=1, failure="failed: test"))
    assert (
        summary([_FIRST, _SECOND], results)
        == """\
| area | mutations | killed by unit | killed by test | killed by all | survived | undecided | not judged |
|---|---|---|---|---|---|---|---|
| pop | 1 | 0 | 0 | 0 | 1 | 0 | 0 |
| sdk | 1 | 1 | 0 | 0 | 0 | 0 | 0 |
| all | 2 | 1 | 0 | 0 | 1 | 0 | 0 |

survived unit: 2 of 2 reaching tests ran
broker/rmq_broker/pop/acks.py:3:4:compare (ack)
- a < b
+ a <= b"""
    )


def test_a_further_call_judges_what_is_not_decided(results: Results, tmp_path: Path) -> None:
    assert results.needs(_FIRST, "unit", 60)
    results.add(_FIRST, Verdict("unit", UNDECIDED, 60, reaching=2, ran=1))
    results.add(_SECOND, Verdict("test", KILLED, 60, reaching=2, ran=1))
    loaded = Results(tmp_path / "results.jsonl", "c0ffee")
    assert [loaded.needs(_FIRST, "unit", bound_s) for bound_s in (60, 61)] == [False, True]
    assert loaded.needs(_FIRST, "test", 60)
    assert not loaded.needs(_SECOND, "unit", 60)
    assert not loaded.needs(_SECOND, "all", 60)
    assert Results(tmp_path / "results.jsonl", "other commit").needs(_SECOND, "unit", 60)


def test_only_other_outcomes_than_before_are_differences(results: Results, tmp_path: Path) -> None:
    results.add(_FIRST, Verdict("unit", KILLED, 60, reaching=2, ran=2))
    results.add(_SECOND, Verdict("unit", KILLED, 60, reaching=1, ran=1))
    before = records(tmp_path / "results.jsonl")
    now = Results(tmp_path / "now.jsonl", "c0ffee")
    now.add(_FIRST, Verdict("unit", SURVIVED, 60, reaching=2, ran=2))
    now.add(_SECOND, Verdict("test", KILLED, 60, reaching=2, ran=2))
    assert differences(zip(before, [_FIRST, _SECOND], strict=True), now) == (
        f"before: killed by unit, now: survived\n{_FIRST.diff()}"
    )
