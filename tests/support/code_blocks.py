"""The code blocks of the documentation, and which test runs each Python block.

A Python block is a program that a test runs beside a broker or in a Spark session. A comment in the line
before a block says where that is impossible, and why:

    <!-- not run: REASON -->       the block is only compiled
    <!-- excerpt of PATH -->       the lines of the block are in this file, in the same order
    <!-- run by PATH -->           this test runs the block with what it needs beyond a broker

`<!-- each block is run by PATH -->` stands for a mark at every block of its page.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_FENCE: Final = re.compile(r"^( *)```(\w*)")
_MARK: Final = re.compile(r"^ *<!-- (not run:|excerpt of|run by) (.+) -->$")
_PAGE_MARK: Final = re.compile(r"^<!-- each block is run by (.+) -->$", re.MULTILINE)
# Programs that use a Spark session take it from the variable `spark`, as a PySpark shell has it.
_SPARK: Final = re.compile(r"\bspark\b|\.option\(|Stream\b")


class How(Enum):
    """How a Python block is tested."""

    BESIDE_A_BROKER = "run beside a broker"
    IN_SPARK = "run in a Spark session"
    COMPILED = "not run:"
    COMPARED = "excerpt of"
    ELSEWHERE = "run by"


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of a page.

    `line` is the number of its first line in the page, from 1. `note` is the reason or path of its mark.
    """

    page: Path
    line: int
    language: str
    text: str
    how: How
    note: str = ""

    @property
    def name(self) -> str:
        """Page and line, for failures."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def code_blocks(page: Path) -> Iterator[CodeBlock]:
    """Yield all fenced blocks of a page."""
    text_of_page = page.read_text()
    lines = text_of_page.splitlines()
    of_page = _PAGE_MARK.search(text_of_page)
    begin: int | None = None
    language = ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if begin is None:
            begin, language = number, fence[2]
            continue
        text = textwrap.dedent("\n".join(lines[begin + 1 : number])) + "\n"
        mark = _MARK.match(lines[begin - 1]) if begin else None
        if mark is not None:
            how, note = How(mark[1]), mark[2]
        else:
            how, note = (How.ELSEWHERE, of_page[1]) if of_page else (_default(page, text), "")
        yield CodeBlock(page, begin + 2, language, text, how, note)
        begin = None


def all_blocks() -> list[CodeBlock]:
    """Return the blocks of README and of all pages."""
    return [block for page in _PAGES for block in code_blocks(page)]


def python_blocks(how: How) -> dict[str, list[CodeBlock]]:
    """Return the Python blocks that are tested in this way, by the name of their page below the root."""
    found: dict[str, list[CodeBlock]] = {}
    for block in all_blocks():
        if block.language == "python" and block.how is how:
            found.setdefault(str(block.page.relative_to(ROOT)), []).append(block)
    return found


def _default(page: Path, text: str) -> How:
    is_spark = page.parent.name == "spark" or _SPARK.search(text) is not None
    return How.IN_SPARK if is_spark else How.BESIDE_A_BROKER
