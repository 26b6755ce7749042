"""The pages that are written from the settings and options themselves."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("script", "page"),
    [("make_configuration.py", "configuration.md"), ("make_spark_options.py", "spark_options.md")],
)
def test_the_page_is_what_its_script_writes(script: str, page: str) -> None:
    written = runpy.run_path(str(DOCS / script))["page"]
    assert (DOCS / page).read_text() == written(), f"run: python docs/{script}"
