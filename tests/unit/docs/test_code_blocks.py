"""Code blocks of all pages: each Python block is run by a test, or says why it cannot be."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.code_blocks import ROOT, CodeBlock, How, all_blocks, code_blocks, python_blocks

_PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
}
_LANGUAGES = {"", "bash", "c", "java", "properties", "python", "sh", "text", *_PARSERS}
_ELLIPSIS = "…"


def _statements(text: str) -> list[str]:
    """Return the lines of a program without indentation, blank lines and whole-line comments."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line not in ("", _ELLIPSIS) and not line.startswith("#")]


def _marked(how: How) -> list[CodeBlock]:
    return [block for blocks in python_blocks(how).values() for block in blocks]


@pytest.mark.parametrize("how", [how for how in How if how is not How.COMPARED], ids=lambda how: how.name)
def test_python_compiles(how: How) -> None:
    for block in _marked(how):
        compile(block.text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def test_python_has_one_name() -> None:
    """A block of another name, such as `py`, would be run by no test."""
    names = {block.language for block in all_blocks()}
    assert names - _LANGUAGES == set(), "add the language to _LANGUAGES, unless it is Python"


def test_data_can_be_parsed() -> None:
    for block in all_blocks():
        if block.language in _PARSERS:
            assert _PARSERS[block.language](block.text), block.name


def test_an_excerpt_is_in_its_file() -> None:
    for block in _marked(How.COMPARED):
        rest = iter(_statements((ROOT / block.note).read_text()))
        # Each search continues after the line that the last one found.
        assert [line for line in _statements(block.text) if line not in rest] == [], block.name


def test_a_block_that_is_not_run_says_why() -> None:
    for block in _marked(How.COMPILED):
        assert len(block.note.split()) >= 3, block.name


def test_a_test_runs_what_it_is_said_to_run() -> None:
    for block in _marked(How.ELSEWHERE):
        assert block.page.name in (ROOT / block.note).read_text(), block.name


def test_blocks_are_found_with_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "- item\n\n  ```python\n  if a:\n      b\n  ```\n\n"
        "<!-- not run: needs a second machine -->\n```python\nc\n```\n"
        "```\nplain\n```\n"
    )
    found = [(each.line, each.language, each.text, each.how, each.note) for each in code_blocks(page)]
    assert found == [
        (4, "python", "if a:\n    b\n", How.BESIDE_A_BROKER, ""),
        (10, "python", "c\n", How.COMPILED, "needs a second machine"),
        (13, "", "plain\n", How.BESIDE_A_BROKER, ""),
    ]


def test_a_mark_may_be_for_a_whole_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- each block is run by tests/x.py -->\n\n```python\na\n```\n")
    assert [(each.how, each.note) for each in code_blocks(page)] == [(How.ELSEWHERE, "tests/x.py")]
