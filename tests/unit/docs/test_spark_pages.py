"""The pages of the Spark connector: complete contents, valid links, and a complete reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_rocketmq.columns import COLUMNS
from pyspark_rocketmq.lag.metrics import LagCollector
from pyspark_rocketmq.sink import schema

_DOCS = Path(__file__).parents[3] / "docs"
_FOLDER = _DOCS / "spark"
_PAGES = sorted(_FOLDER.glob("*.md"))
_LINKING_PAGES = [*_PAGES, *(_DOCS / name for name in ("spark_examples.md", "performance_spark.md"))]
_MAX_LINE_CHARACTERS = 119


def _lines(page: Path) -> Iterator[str]:
    """Yield the lines of a page outside code blocks."""
    in_code = False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield line


def _anchors(page: Path) -> set[str]:
    headings = [line.lstrip("# ") for line in _lines(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _section(heading: str) -> str:
    text = (_FOLDER / "reference.md").read_text()
    found = re.search(rf"^## {heading}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


@pytest.mark.parametrize("page", _LINKING_PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", "\n".join(_lines(page))):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path), target


@pytest.mark.parametrize("page", [*_PAGES, _DOCS / "spark_examples.md"], ids=lambda page: page.name)
def test_lines_are_shorter_than_120_characters(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > _MAX_LINE_CHARACTERS] == []


@pytest.mark.parametrize(
    "page", [page for page in _PAGES if page.name != "README.md"], ids=lambda page: page.name
)
def test_the_contents_list_every_section(page: Path) -> None:
    contents = (_FOLDER / "README.md").read_text()
    assert f"]({page.name})" in contents
    for line in _lines(page):
        if line.startswith("##"):
            heading = line.lstrip("# ")
            assert f"[{heading}]({page.name}#" in contents, heading


def test_the_reference_lists_every_column_of_a_read() -> None:
    section = _section("Columns of a read")
    assert [column.name for column in COLUMNS if f"`{column.name}`" not in section] == []


def test_the_reference_lists_every_column_of_a_write() -> None:
    section = _section("Columns of a write")
    names = [value for name, value in vars(schema).items() if name.isupper() and isinstance(value, str)]
    assert len(names) == 10
    assert [name for name in names if f"`{name}`" not in section] == []


def test_the_reference_lists_every_metric() -> None:
    section = _section("Metrics")
    families = list(LagCollector(list, per_queue=True).describe())
    assert len(families) == 9
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in section, name
