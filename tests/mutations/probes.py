"""Probes in the source: calls that record which test reaches the place of a mutation.

Probes keep the lines of the source. They record in a table that all processes of a test run share
(tests/mutations/injected/probe.py), so they also show what daemons do for a test.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

from tests.mutations.places import Place


def with_probes(source: str, probed: Mapping[int, Place]) -> str:
    """Return the source with a probe of each number at its place."""
    # The order at one position: ends of inner and of outer expressions, then starts of outer and inner ones.
    insertions: defaultdict[tuple[int, int], list[tuple[tuple[int, int, int], str]]] = defaultdict(list)
    for number, place in probed.items():
        start, end = place.reached
        call = f"__import__('rmq_mutation_probe').reached({number})"
        if end is None:
            insertions[start].append(((1, 0, 0), f"{call}; "))
        else:
            insertions[start].append(((2, -end.line, -end.column), f"({call} or "))
            insertions[end].append(((0, -start.line, -start.column), ")"))
    lines = source.split("\n")
    for (line, column), texts in sorted(insertions.items(), reverse=True):
        text = "".join(text for _, text in sorted(texts))
        lines[line - 1] = lines[line - 1][:column] + text + lines[line - 1][column:]
    probed_source = "\n".join(lines)
    ast.parse(probed_source)
    return probed_source
