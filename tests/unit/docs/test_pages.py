"""The form of all pages: links that lead somewhere, short lines, complete contents."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.rows import each_row
from tests.unit.docs.pages import DOCS, ROOT, anchors, prose_lines

_PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
# The folders whose README.md is the table of contents of their pages.
_FOLDERS = ("client", "spark")
_FOLDER_PAGES = [page for page in _PAGES if page.parent.name in _FOLDERS]
_MAX_LINE_CHARACTERS = 119


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@each_row("page", _PAGES, ids=_name)
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", "\n".join(prose_lines(page))):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        # Pages name folders of the repository, too; those of the SDK and the connector name files only.
        assert path.is_file() or (path.is_dir() and page not in _FOLDER_PAGES), target
        assert not anchor or anchor in anchors(path), target


@each_row("page", [*_FOLDER_PAGES, DOCS / "spark_examples.md"], ids=_name)
def test_lines_are_shorter_than_120_characters(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > _MAX_LINE_CHARACTERS] == []


@each_row("page", _PAGES, ids=_name)
def test_lines_outside_tables_are_shorter_than_120_characters(page: Path) -> None:
    lines = page.read_text().splitlines()
    prose = [line for line in lines if not line.startswith("|")]  # a row of a table is one line
    assert [line for line in prose if len(line) > _MAX_LINE_CHARACTERS] == []


@each_row("page", [page for page in _FOLDER_PAGES if page.name != "README.md"], ids=_name)
def test_the_contents_list_every_section(page: Path) -> None:
    contents = (page.parent / "README.md").read_text()
    assert f"]({page.name})" in contents
    for line in prose_lines(page):
        if line.startswith("##"):
            heading = line.lstrip("# ")
            assert f"[{heading}]({page.name}#" in contents, heading
