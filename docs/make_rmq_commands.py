"""Write docs/rmq_commands.md from the commands of `rmq` themselves: `python docs/make_rmq_commands.py`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args

import typer.main

from rmq_cli.main import app

_PAGE: Final = Path(__file__).with_name("rmq_commands.md")
_HEAD: Final = """\
# Commands of rmq

Arguments and options of every command of `rmq`. `rmq COMMAND --help` prints the same.
[The command line](command_line.md) shows the commands at work, and lists the
[exit codes](command_line.md#use-in-scripts).

This page is written by `python docs/make_rmq_commands.py`.

## Options of every command

They may stand after the command or before it. The commands of `rmq config` have only `--output` of them.

"""
_COLUMNS: Final = "| argument | default | meaning |\n|---|---|---|\n"
_LINE_CHARACTERS: Final = 118
# What an option takes, by its type.
_VALUES: Final = {str: "TEXT", int: "N", float: "NUMBER", Path: "FILE"}
_OF_THE_ROOT_ALONE: Final = frozenset({"--version", "--install-completion", "--show-completion"})


def page() -> str:
    """Return the whole page."""
    root = typer.main.get_command(app)
    return _HEAD + _table(root, frozenset()) + "".join(_sections(root, ("rmq",), frozenset(_names(root))))


def _sections(group: Any, path: tuple[str, ...], common: frozenset[str]) -> Iterator[str]:
    """Yield the sections of a group's commands, by name. `common`: options to leave out."""
    for name, command in sorted(group.commands.items()):
        place = (*path, name)
        title = f"\n{'#' * len(place)} {' '.join(place)}\n\n"
        if hasattr(command, "commands"):
            yield f"{title}{_text(command.help)}\n"
            yield from _sections(command, place, common)
        else:
            parts = (_text(command.help) + "\n", _table(command, common), _examples(command))
            yield title + "\n".join(part for part in parts if part)


def _text(help_text: str) -> str:
    paragraphs = inspect.cleandoc(help_text).split("\n\n")
    return "\n\n".join(textwrap.fill(" ".join(each.split()), _LINE_CHARACTERS) for each in paragraphs)


def _examples(command: Any) -> str:
    _, *examples = command.epilog.split("\n\n")
    return "```\n" + "".join(f"{example}\n" for example in examples) + "```\n"


def _names(command: Any) -> set[str]:
    return {parameter.name for parameter in command.params}


def _table(command: Any, common: frozenset[str]) -> str:
    rows = [_row(each) for each in command.params if each.name not in common and _is_shown(each)]
    return _COLUMNS + "".join(rows) if rows else ""


def _is_shown(parameter: Any) -> bool:
    is_hidden = getattr(parameter, "hidden", False) or "--help" in parameter.opts
    return not is_hidden and _OF_THE_ROOT_ALONE.isdisjoint(parameter.opts)


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
    else:
        name = ", ".join(parameter.opts)
        if parameter.secondary_opts:
            name += f" / {', '.join(parameter.secondary_opts)}"
        elif not parameter.is_flag:
            name += f" {_value(parameter)}"
    meaning = (parameter.help or "").replace("|", "\\|")
    return f"| `{name}` | {_default(parameter)} | {meaning} |\n".replace("|  |", "| |")


def _value(option: Any) -> str:
    """Return what an option takes."""
    kind = option.type_descriptor.annotation
    (kind,) = get_args(kind) or (kind,)  # an option that may be repeated is a list
    if issubclass(kind, Enum):
        return "\\|".join(str(each.value) for each in kind)
    return str(option.metavar or _VALUES[kind])


def _default(parameter: Any) -> str:
    default = parameter.default
    is_plain = isinstance(default, int | float | str) and not isinstance(default, bool) and default != ""
    return f"`{default}`" if is_plain else ""


if __name__ == "__main__":
    _PAGE.write_text(page())
