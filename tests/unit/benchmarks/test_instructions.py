"""The table of Python versions that `python -m benchmarks.instructions --python ...` writes."""

from __future__ import annotations

import sys

from benchmarks.instructions import Build, Counted, Subject, table_of_pythons
from rmq_remoting.build_form import BUILD_FORM


def test_each_build_has_a_row_of_each_serialization_with_ratios_to_the_first_build() -> None:
    def results(factor: float) -> list[Counted]:
        return [
            Counted(load, serialization, factor * count, ())
            for load, count in (("send", 1000.0), ("pull", 3000.0))
            for serialization in ("ROCKETMQ", "JSON")
        ]

    table = table_of_pythons(
        [(Build("3.11.7, PGO", "interpreted"), results(1)), (Build("3.13.0, PGO", "compiled"), results(0.5))]
    )
    assert table.splitlines() == [
        "| Python | our code | headers | send | pull |",
        "|---|---|---|---|---|",
        "| 3.11.7, PGO | interpreted | binary headers | 1,000 (1.00) | 3,000 (1.00) |",
        "| 3.13.0, PGO | compiled | binary headers | 500 (0.50) | 1,500 (0.50) |",
        "| 3.11.7, PGO | interpreted | JSON headers | 1,000 (1.00) | 3,000 (1.00) |",
        "| 3.13.0, PGO | compiled | JSON headers | 500 (0.50) | 1,500 (0.50) |",
    ]


def test_an_interpreter_names_its_version_and_the_form_of_our_code() -> None:
    build = Subject.of_checkout(None).build()
    assert build.python.startswith(f"{sys.version.split()[0]}, ")
    assert build.form == BUILD_FORM
