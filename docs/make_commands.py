"""Write docs/commands.md from the parsers of the commands themselves: `python docs/make_commands.py`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).with_name("commands.md")
_HEAD: Final = """\
# Commands

Options of the commands that this project installs. `COMMAND --help` prints the same.

- [Settings](configuration.md) lists the keys of `--set` and `--config`.
- [Commands of rmq](rmq_commands.md) lists the commands of `rmq`.
- [The command line](command_line.md) shows them at work.
- [rmq-store](store_tool.md) explains what its commands check and change.
- [Deployment](deployment.md) shows the commands in containers and under systemd.

The daemons print one line that begins with `ready` on standard output as soon as they serve. They exit with
0 after a graceful shutdown, with 1 after a failure, and with 2 for an invalid command line or configuration.

This page is written by `python docs/make_commands.py`.

## The ready file

The ready line is for people. A program that starts a daemon reads the file of `--ready-file` instead.

- The daemon replaces the file in one step once it serves, just before it prints the line. A daemon that
  cannot write the file does not start.
- The daemon removes the file when its shutdown begins. A process that is killed leaves its file: remove the
  file before a start, or compare `pid`.

```json
{
  "version": "0.1.0",
  "pid": 4711,
  "form": "interpreted",
  "name": "broker-a",
  "address": "127.0.0.1:10911",
  "namesrv": "127.0.0.1:9876",
  "grpc": "127.0.0.1:8081",
  "metrics": "127.0.0.1:5557"
}
```

| key | value |
|---|---|
| `version`, `form` | version of the package; `compiled` or `interpreted` ([compiling](compiling.md)) |
| `pid` | process id; with `--shards` that of the supervisor |
| `name` | name of the broker, `namesrv` or `proxy` |
| `address` | main port: of the name server, of the broker as clients get it, of the proxy for gRPC |
| `namesrv` | name servers, separated by `;`; with `--standalone` the broker's own is the first |
| `grpc` | the broker's port for gRPC |
| `remoting` | the proxy's port for remoting clients |
| `metrics` | port of `/metrics` and `/health` |
| `shards` | addresses of all shards |
| `route_held_by` | other brokers of [the same name and id](compatibility.md#name-server) |

A key is missing if the daemon has no such port or fact. An address is `HOST:PORT`. For `grpc` and `metrics`,
`HOST` is 127.0.0.1 if the daemon listens on every interface.
"""
_ROOT: Final = Path(__file__).parents[1]
_LINE_CHARACTERS: Final = 118
# `rmq` has no parser of argparse.
_HAS_A_PAGE: Final = (
    "Administer clusters, send and read messages. [Commands of rmq](rmq_commands.md) lists its commands."
)


def page() -> str:
    """Return the whole page."""
    parsers: list[argparse.ArgumentParser] = []
    for command, place in _scripts().items():
        # Commands that need Linux begin in `__main__`, and have their parser in `main`.
        module = importlib.import_module(place.partition(":")[0].replace(".__main__", ".main"))
        make = getattr(module, "argument_parser", None)
        parsers.append(make() if make else argparse.ArgumentParser(command, description=_HAS_A_PAGE))
    return _HEAD + "".join(_section(parser, "##") for parser in parsers)


def _scripts() -> dict[str, str]:
    """Return the installed commands, and module and function of each."""
    scripts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert isinstance(scripts, dict)
    return scripts


def _section(parser: argparse.ArgumentParser, level: str) -> str:
    description = inspect.cleandoc(parser.description or "").split("\n\n")[0]
    text = f"\n{level} {parser.prog}\n\n{textwrap.fill(description, _LINE_CHARACTERS)}\n"
    rows = [_row(action) for action in _shown(parser)]
    if rows:
        text += "\n| argument | default | meaning |\n|---|---|---|\n" + "".join(rows)
    return text + "".join(_section(command, f"{level}#") for command in _commands(parser))


def _shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            yield action


def _commands(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _row(action: argparse.Action) -> str:
    values = "\\|".join(map(str, action.choices or ())) or str(action.metavar or action.dest.upper())
    if action.option_strings:
        name = ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {values}")
    else:
        name = f"[{values}]" if action.nargs == "?" else values
    meaning = (action.help or "").replace("|", "\\|")
    return f"| `{name}` | {_default(action)} | {meaning} |\n"


def _default(action: argparse.Action) -> str:
    is_plain = isinstance(action.default, int | float | str) and not isinstance(action.default, bool)
    return f"`{action.default}`" if is_plain and action.default != argparse.SUPPRESS else ""


if __name__ == "__main__":
    _PAGE.write_text(page())
