"""Mutations of one commit: draw them at random, store them, and find stored ones in another commit."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutations.places import Place, places, replaced
from tests.mutations.tables import AREAS


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one line of a file. Line, column (from 0 on) and kind identify it within the file."""

    area: str
    file: str
    line: int
    column: int
    kind: str
    function: str
    before: str
    after: str

    @property
    def id(self) -> str:
        return f"{self.file}:{self.line}:{self.column}:{self.kind}"

    def diff(self) -> str:
        """Return the change, with its place and function."""
        return f"{self.id} ({self.function})\n- {self.before.strip()}\n+ {self.after.strip()}"


class Sources:
    """The modules of all areas below a root, and the places in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mutations = cache(self._mutations_of)

    def mutations(self, area: str, file: str) -> list[Mutation]:
        """Return all possible mutations of a file, which belongs to an area."""
        return self._mutations(area, file)

    def files(self, area: str) -> Iterator[str]:
        """Yield the modules of an area, in alphabetical order within each of its folders."""
        for name in AREAS[area]:
            path = self.root / name
            for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                if module.is_file() and module.name != "__main__.py":
                    yield module.relative_to(self.root).as_posix()

    def place(self, mutation: Mutation) -> Place:
        """Return the place that a mutation changes."""
        for place in places((self.root / mutation.file).read_text()):
            if (place.line, place.column, place.kind) == (mutation.line, mutation.column, mutation.kind):
                return place
        raise LookupError(f"{mutation.id} is not a place of a mutation in {self.root}")

    def _mutations_of(self, area: str, file: str) -> list[Mutation]:
        source = (self.root / file).read_text()
        lines = source.split("\n")
        return [
            Mutation(
                area=area,
                file=file,
                line=place.line,
                column=place.column,
                kind=place.kind,
                function=place.function,
                before=lines[place.line - 1],
                after=replaced(lines, place),
            )
            for place in places(source)
        ]


def draw(sources: Sources, areas: Sequence[str], number: int, seed: int) -> list[Mutation]:
    """Return mutations of `number` different lines, equally many of each area, drawn with a seed.

    The draw of an area does not depend on the other areas. All lines of an area have the same chance, and so
    have all mutations of a line.
    """
    drawn: list[Mutation] = []
    for position, area in enumerate(areas):
        share = number // len(areas) + (position < number % len(areas))
        by_line: defaultdict[tuple[str, int], list[Mutation]] = defaultdict(list)
        for file in sources.files(area):
            for mutation in sources.mutations(area, file):
                by_line[file, mutation.line].append(mutation)
        generator = random.Random(f"{seed} {area}")
        lines = generator.sample(list(by_line), min(share, len(by_line)))
        drawn += [generator.choice(by_line[line]) for line in lines]
    return drawn


def written(mutation: Mutation) -> dict[str, Any]:
    """Return a mutation as it is stored."""
    return {"id": mutation.id, **asdict(mutation)}


def read(record: Mapping[str, Any]) -> Mutation:
    """Return the mutation of a stored list or of a stored result."""
    return Mutation(**{field.name: record[field.name] for field in fields(Mutation)})


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines. A line that a kill cut off is ignored."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def find(sources: Sources, stored: Mutation) -> Mutation | None:
    """Return the same mutation in these sources, or None if there is none or more than one.

    Its line has the same text, apart from the indentation. Of several such lines in the file, the nearest one
    in the same function is taken. If the file is gone, all areas are searched.
    """
    if (sources.root / stored.file).exists():
        same = _same(stored, sources.mutations(stored.area, stored.file))
    else:
        same = [
            mutation
            for area in AREAS
            for file in sources.files(area)
            for mutation in _same(stored, sources.mutations(area, file))
        ]
    function = stored.function.rpartition(".")[2]
    in_function = [mutation for mutation in same if mutation.function.rpartition(".")[2] == function]
    if in_function:
        return min(in_function, key=lambda mutation: abs(mutation.line - stored.line))
    return same[0] if len(same) == 1 else None


def _same(stored: Mutation, mutations: Iterable[Mutation]) -> list[Mutation]:
    return [mutation for mutation in mutations if _key(mutation) == _key(stored)]


def _key(mutation: Mutation) -> tuple[str, str, int]:
    indentation = len(mutation.before) - len(mutation.before.lstrip())
    return mutation.before.strip(), mutation.kind, mutation.column - indentation
