"""The page of the settings says what the settings say."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "make_configuration.py"))["page"]
    assert (DOCS / "configuration.md").read_text() == page(), "run: python docs/make_configuration.py"
