"""Reads the Markdown pages of the documentation for the tests of their form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


def prose_lines(page: Path) -> Iterator[str]:
    """Yield the lines of a page outside code blocks."""
    in_code = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield line


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = [line.lstrip("# ") for line in prose_lines(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section_of(page: Path, heading: str) -> str:
    """Return the text of one section, without its subsections."""
    found = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]
