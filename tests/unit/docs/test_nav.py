"""The nav of the site (mkdocs.yml) has every page of the documentation once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

from tests.unit.docs.pages import DOCS, ROOT

# Pages that the site makes of files outside of docs/ (docs/site_tools/hooks.py).
_SOURCE = "source/"


def _listed(entry: Any) -> Iterator[str]:
    """Yield the pages of a part of the nav, which is a page, a list, or a mapping of titles to parts."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list):
        for each in entry:
            yield from _listed(each)
    else:
        for part in entry.values():
            yield from _listed(part)


def test_the_nav_lists_every_page_once() -> None:
    counts = Counter(_listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    pages |= {
        f"{_SOURCE}{path.relative_to(ROOT).as_posix()}"
        for path in ROOT.glob("*.md")
        if f"{_SOURCE}{path.name}" in counts
    }
    missing, gone = sorted(pages - counts.keys()), sorted(counts.keys() - pages)
    assert not missing, f"add these pages of docs/ to the nav in mkdocs.yml: {missing}"
    assert not gone, f"the nav in mkdocs.yml lists pages that do not exist: {gone}"
    assert [page for page, count in counts.items() if count > 1] == []
