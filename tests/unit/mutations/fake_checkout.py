"""A checkout whose runs of tests end as a test of the program wants them to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.mutations.checkout import Outcome


class FakeCheckout:
    """A checkout in which each run takes the next one of the given outcomes of each of its tests.

    `places` are the places that the rows reached. `runs` are the tests of each run. pytest does not
    know the test `unknown`.
    """

    def __init__(self, root: Path = Path(), places: Mapping[str, Sequence[int]] | None = None) -> None:
        self.root = root
        self.runs: list[list[str]] = []
        self.outcomes: dict[str, list[str]] = {}
        self.collected: list[str] = []
        self.unknown = ""
        self._places = places or {}

    @contextmanager
    def mutated(self, mutation: object) -> Iterator[None]:
        yield

    @contextmanager
    def changed(self, texts: Mapping[str, str]) -> Iterator[None]:
        yield

    def run(
        self, files: Sequence[str], *, options: Sequence[str], selected: Sequence[str] | None, **others: Any
    ) -> Outcome:
        names = list(self.collected if selected is None else selected)
        self.runs.append(names)
        names = [name for name in names if name != self.unknown]
        tests: list[dict[str, Any]] = []
        for row, name in enumerate(names, start=1):
            outcomes = self.outcomes.get(name, [])
            outcome = outcomes.pop(0) if outcomes else "passed"
            if outcome == "time-out":
                return Outcome(names, tests, {}, outcome, name)
            tests.append({"test": name, "outcome": outcome, "seconds": 1.0, "rows": [row]})
            if outcome == "failed" and "-x" in options:
                return Outcome(names, tests, self._places, outcome, name)
        return Outcome(names, tests, self._places, "", "")
