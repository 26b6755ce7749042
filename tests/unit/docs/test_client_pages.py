"""The pages of the SDK: complete contents, links that lead somewhere, and a reference that misses nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import rmq_client

_FOLDER = Path(__file__).parents[3] / "docs" / "client"
_PAGES = sorted(path.name for path in _FOLDER.glob("*.md"))
_MAX_LINE_CHARACTERS = 119


def _lines(page: str) -> Iterator[str]:
    """The lines of a page that are not in a block of code."""
    in_code = False
    for line in (_FOLDER / page).read_text().splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield line


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _section(heading: str) -> str:
    """The text of one section of the reference, without its subsections."""
    text = (_FOLDER / "reference.md").read_text()
    found = re.search(rf"^(#+) {heading}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[2]


@pytest.mark.parametrize("page", _PAGES)
def test_links_lead_to_a_page_and_a_heading(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", "\n".join(_lines(page))):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = (_FOLDER / name).resolve() if name else _FOLDER / page
        assert path.is_file(), target
        assert not anchor or anchor in _anchors(path), target


@pytest.mark.parametrize("page", _PAGES)
def test_lines_are_shorter_than_120_characters(page: str) -> None:
    long_lines = [
        line for line in (_FOLDER / page).read_text().splitlines() if len(line) > _MAX_LINE_CHARACTERS
    ]
    assert long_lines == []


@pytest.mark.parametrize("page", [page for page in _PAGES if page != "README.md"])
def test_the_contents_list_every_section(page: str) -> None:
    contents = (_FOLDER / "README.md").read_text()
    assert f"]({page})" in contents
    for line in _lines(page):
        if line.startswith("##"):
            heading = line.lstrip("# ")
            assert f"[{heading}]({page}#" in contents, heading


@pytest.mark.parametrize(
    "name", ["Producer", "PushConsumer", "PullConsumer", "SimpleConsumer", "RawPuller", "Admin"]
)
def test_the_reference_lists_every_constructor_parameter(name: str) -> None:
    section = _section(name)
    for parameter in inspect.signature(getattr(rmq_client, name)).parameters:
        assert f"| `{parameter}` |" in section, parameter


@pytest.mark.parametrize("name", ["Producer", "PushConsumer", "PullConsumer", "SimpleConsumer", "RawPuller"])
def test_the_reference_lists_every_call(name: str) -> None:
    section = _section(name)
    for call, _ in inspect.getmembers(getattr(rmq_client, name), inspect.isfunction):
        if not call.startswith("_") and call not in ("start", "stop", "next_messages"):
            assert re.search(rf"`{call}[`(]", section), call


@pytest.mark.parametrize(
    "name",
    [
        "RetryPolicy",
        "BatchPolicy",
        "Compression",
        "InFlightLimits",
        "FaultTolerance",
        "FlowControl",
        "PullSettings",
        "ConsumerTiming",
        "ClientSettings",
        "Tracing",
    ],
)
def test_the_reference_lists_every_field_of_the_settings(name: str) -> None:
    section = _section(name)
    for field in fields(getattr(rmq_client, name)):
        assert f"| `{field.name}` |" in section, field.name


def test_the_reference_lists_every_field_of_a_send_result_and_of_the_statistics() -> None:
    for name, heading in (("SendResult", "SendResult"), ("TopicStatistics", "Statistics of a consumer")):
        section = _section(heading)
        for field in fields(getattr(rmq_client, name)):
            assert f"`{field.name}`" in section, field.name
