"""The shell commands of the pages that a reader begins with."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.code_blocks import ROOT, code_blocks

# Each page, and the heading before which its first commands end.
_FIRST_PAGES: Final = {
    "README.md": None,
    "docs/index.md": None,
    "docs/client/tutorial.md": None,
    "docs/spark/tutorial.md": None,
    "docs/pipeline.md": None,
    "docs/command_line.md": "## Topics and groups",
    "docs/deployment.md": "## systemd",
}
_SHELLS: Final = ("", "sh", "bash")
_BLOCK: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`]+)`")
# A program with an argument: its name alone is no command.
_COMMAND: Final = re.compile(r"(make|pip|docker|python3?|rmq[a-z-]*|\.venv/bin/\S+|\.) [^\s]")


def first_commands() -> dict[str, str]:
    """Return the commands as they are printed, each with the first page that has it."""
    found: dict[str, str] = {}
    for name, end in _FIRST_PAGES.items():
        for command in page_commands(ROOT / name, end):
            found.setdefault(command, name)
    return found


def page_commands(page: Path, end: str | None = None) -> Iterator[str]:
    """Yield the commands of a page, up to the line `end`: those of blocks, then those within the text."""
    text = page.read_text()
    if end is not None:
        text, found, _ = text.partition(f"\n{end}\n")
        assert found, f"{page} has no heading {end!r}"
    lines = text.count("\n") + 1
    for block in code_blocks(page):
        if block.language in _SHELLS and block.line <= lines:
            yield from _of_block(block.text)
    for match in _INLINE.finditer(_BLOCK.sub("", text)):
        command = " ".join(match[1].split())
        if _COMMAND.match(command):
            yield command


def _of_block(text: str) -> Iterator[str]:
    """Yield the commands of a block. In a block with prompts, the other lines are output."""
    joined = re.sub(r"\s*\\\n\s*|\n +", " ", textwrap.dedent(text))
    lines = [re.sub(r" {2,}#.*", "", line).strip() for line in joined.splitlines()]
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    yield from (line for line in prompted or lines if line)
