"""The page of the command line: what `rmq` has in place of each command of Apache's mqadmin."""

from __future__ import annotations

import re

import typer.main

from rmq_cli.main import app
from tests.unit.docs.pages import DOCS

_ROW = re.compile(r"^\| [^|]* \| ([^|]*) \| [^|]*\|$", re.MULTILINE)


def _commands_of_mqadmin() -> set[str]:
    """Return the commands that the page on compatibility lists, without their options in parentheses."""
    page = (DOCS / "compatibility.md").read_text()
    section = page.partition("## mqadmin, command by command\n")[2].partition("\n## ")[0]
    cells = re.sub(r"\([^)]*\)", "", " ".join(_ROW.findall(section)))
    prose = " ".join(
        re.findall(r"were not tried.*?\.|The commands of the controller \((.*?)\)", section, re.DOTALL)
    )
    return set(re.findall(r"\b[a-z]+[A-Z]\w+|\bproducer\b", f"{cells} {prose}"))


def test_every_command_of_mqadmin_is_on_the_page() -> None:
    commands = _commands_of_mqadmin()
    assert {"updateTopic", "electMaster", "copyAcl", "producer", "statsAll"} <= commands
    page = (DOCS / "command_line.md").read_text().partition("## Commands of mqadmin\n")[2]
    assert [each for each in sorted(commands) if not re.search(rf"\b{each}\b", page)] == []


def test_the_commands_of_rmq_on_the_page_exist() -> None:
    page = (DOCS / "command_line.md").read_text().partition("## Commands of mqadmin\n")[2]
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for text in re.findall(r"`([a-z][a-z-]+(?: [a-z-]+)?)[^`]*`", page):
        name, _, subcommand = text.partition(" ")
        assert name in groups, text
        assert not subcommand or subcommand.startswith("-") or subcommand in groups[name].commands, text
