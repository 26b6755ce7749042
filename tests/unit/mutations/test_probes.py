"""Probes record which code ran, and change nothing else."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.mutations.places import places
from tests.mutations.probes import with_probes

_SOURCE = '''
def sign(number: int, calls: list[str]) -> int:
    """Return -1, 0 or 1."""
    calls.append("sign"); size = (
        abs(number)
        + 0
    )
    if number < 0 or size == 0 and number != 0:
        return 0 - 1
    return 1 if number > 0 else 0
'''


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers: list[int] = []
    module = ModuleType("rmq_mutation_probe")
    module.reached = numbers.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rmq_mutation_probe", module)
    return numbers


def test_probes_record_the_places_that_run(reached: list[int]) -> None:
    found = dict(enumerate(places(_SOURCE)))
    probed = with_probes(_SOURCE, found)
    assert probed.count("\n") == _SOURCE.count("\n")
    namespace: dict[str, object] = {}
    exec(probed, namespace)
    assert reached == []
    for number, sign in ((3, 1), (-3, -1), (0, 0)):
        assert namespace["sign"](number, []) == sign  # type: ignore[operator]
    assert set(reached) == set(found)


def test_a_place_that_is_not_evaluated_is_not_recorded(reached: list[int]) -> None:
    found = dict(enumerate(places(_SOURCE)))
    namespace: dict[str, object] = {}
    exec(with_probes(_SOURCE, found), namespace)
    namespace["sign"](-3, [])  # type: ignore[operator]
    assert {(found[number].line, found[number].old) for number in set(found) - set(reached)} == {
        (8, "and"),
        (8, "=="),
        (8, "!="),
        (8, "0"),
        (10, ">"),
        (10, "1"),
        (10, "0"),
    }
