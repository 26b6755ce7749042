"""Every command has help with an example that it accepts, and a test."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from rmq_cli.main import app
from tests.support.rows import each_row

_TESTS = "\n".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


_COMMANDS = dict(_commands(typer.main.get_command(app)))


@each_row("name", _COMMANDS)
def test_every_command_has_examples_that_it_accepts(name: str) -> None:
    command = _COMMANDS[name]
    title, *examples = command.epilog.split("\n\n")
    assert title == "Examples:" and examples
    for example in examples:
        assert f"rmq {name}" in example
        words = shlex.split(re.sub(r"  \(.*\)$", "", example).partition("rmq ")[2])[len(name.split()) :]
        command.make_context("rmq", words)  # raises for an unknown option or a wrong value


@each_row("name", _COMMANDS)
def test_every_command_says_what_it_does(name: str) -> None:
    first = _COMMANDS[name].help.partition("\n")[0]
    assert first[0].isupper() and len(first) < 100


@each_row("name", _COMMANDS)
def test_every_command_has_a_test_against_a_broker(name: str) -> None:
    assert re.search(rf"""["']{name}\b""", _TESTS), f"no test runs rmq {name}"


def test_every_command_that_destroys_asks_and_can_be_tried() -> None:
    for name, command in _COMMANDS.items():
        options = {option for parameter in command.params for option in parameter.opts}
        if "--yes" in options:
            assert "--dry-run" in options, name
