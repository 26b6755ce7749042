"""The command `rmq`, run in this process."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main

from rmq_cli.main import app


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command has written, and its exit code."""

    code: int
    text: str
    errors: str

    @property
    def json(self) -> Any:
        """The output as one JSON document."""
        return json.loads(self.text)

    @property
    def json_lines(self) -> list[Any]:
        """The output as a JSON document on each line."""
        return [json.loads(line) for line in self.text.splitlines()]


class CommandLine:
    """Runs `rmq` against a cluster, with profiles in a file of its own."""

    def __init__(self, namesrv: str, profiles: Path) -> None:
        self.namesrv = namesrv
        self.profiles = profiles

    def run(self, line: str, *, given: str | None = None, **environment: str) -> Outcome:
        """Run a line such as `topic list`; `given` is standard input. The exit code may be any."""
        variables = {"NAMESRV_ADDR": self.namesrv, "RMQ_CONFIG": str(self.profiles), "COLUMNS": "200"}
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as errors,
            mock.patch("sys.stdin", io.StringIO(given or "")),
            mock.patch.dict("os.environ", {**variables, **environment}),
        ):
            try:
                _command().main(args=shlex.split(line), prog_name="rmq")
            except SystemExit as end:
                return Outcome(int(end.code or 0), out.getvalue(), errors.getvalue())
        raise AssertionError("a command ends by SystemExit")

    def ok(self, line: str, *, given: str | None = None) -> Outcome:
        """Run a line that must succeed."""
        outcome = self.run(line, given=given)
        assert outcome.code == 0, f"{line}: {outcome.errors}{outcome.text}"
        return outcome

    def refused(self, line: str, code: int, *, given: str | None = None) -> str:
        """Run a line that must end with this exit code; return what it writes on standard error."""
        outcome = self.run(line, given=given)
        assert outcome.code == code, f"{line}: {outcome.code} {outcome.errors}{outcome.text}"
        return outcome.errors


@cache
def _command() -> Any:
    """Return the whole tree of commands: to build it takes 50 ms."""
    return typer.main.get_command(app)
