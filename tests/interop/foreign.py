"""Apache's Java client, its admin tool, its Go client and ali-ons, as objects of the tests.

Each gets the address of any name server, and a folder for its files. `run` runs one sub-command to its end,
`start` starts one in the background. The sub-commands and their options are
those of `interop.Main` (Java), `main.go` and `main.js`; `--namesrv` is added here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.jvm import java_command
from tests.support.outcome import Option, Outcome, command_line, outcome_in_shell, outcome_of
from tests.support.processes import run_command
from tests.support.running import RunningProgram
from tests.support.toolchain import JavaProgram, NodeProgram

_DEFAULT_TIMEOUT_SECONDS = 60.0


class ForeignClient:
    """A program with sub-commands that prints events."""

    def __init__(self, namesrv: str, home: Path) -> None:
        self.namesrv = namesrv
        self.home = home
        home.mkdir(parents=True, exist_ok=True)

    def command(self, arguments: list[str]) -> list[str]:
        """The command line of the program with these arguments."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    async def run(
        self, *words: str, timeout_s: float = _DEFAULT_TIMEOUT_SECONDS, **options: Option
    ) -> Outcome:
        """`run("send", topic="T", count=3)`: run it to its end.

        The outcome is not ok if the client was refused. Raises ForeignProgramFailed if the program itself
        failed, and TimeoutError after `timeout_s`, which should exceed the time that the command waits for
        messages (`wait_s`).
        """
        finished = await run_command(
            self._command(words, options), timeout_s=timeout_s, environment=self.environment()
        )
        return outcome_of(finished)

    def start(self, *words: str, **options: Option) -> RunningProgram:
        """`with client.start("consume", topic="T", group="G") as consumer: …`"""
        return RunningProgram(
            self._command(words, options), self.home / "stderr.log", environment=self.environment()
        )

    def _command(self, words: tuple[str, ...], options: Mapping[str, Option]) -> list[str]:
        return self.command(command_line(words, {"namesrv": self.namesrv, **options}))


@dataclass(frozen=True, slots=True)
class AdminOutput:
    """The output of mqadmin. Its exit code says nothing, because it is 0 after most failures."""

    text: str

    @property
    def failed(self) -> bool:
        """Whether it printed an exception or refused the command line."""
        return any(sign in self.text for sign in ("Exception", "usage: mqadmin", "not exist"))

    @property
    def rows(self) -> list[list[str]]:
        """The rows of a table, split at white space, without the heading (lines that begin with #)."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        return [line.split() for line in lines if not line.startswith("#")]

    def check(self) -> AdminOutput:
        """Return the output; AssertionError with all of it if the command failed."""
        assert not self.failed, self.text
        return self


class JavaClient(ForeignClient):
    """org.apache.rocketmq:rocketmq-client and the admin API; sub-commands send, consume, pull, admin."""

    def __init__(
        self,
        program: JavaProgram,
        namesrv: str,
        home: Path,
        *,
        header: str = "JSON",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`header`: JSON or ROCKETMQ, the header serialization of its requests."""
        super().__init__(namesrv, home)
        self._program = program
        self._properties = {"rocketmq.serialize.type": header, **(properties or {})}

    def command(self, arguments: list[str]) -> list[str]:
        return java_command(
            self._program, "interop.Main", arguments, home=self.home, properties=self._properties
        )

    @contextmanager
    def shell(self) -> Iterator[JavaShell]:
        """One JVM for many commands in turn, which saves the second that each start takes."""
        command = self.command(["shell"])
        with RunningProgram(command, self.home / "stderr.log", self.environment()) as program:
            yield JavaShell(program, self.namesrv)


class JavaShell:
    """A JVM that reads commands; made by JavaClient.shell()."""

    def __init__(self, program: RunningProgram, namesrv: str) -> None:
        self._program = program
        self._namesrv = namesrv

    async def run(
        self, *words: str, timeout_s: float = _DEFAULT_TIMEOUT_SECONDS, **options: Option
    ) -> Outcome:
        """As ForeignClient.run()."""
        return await self._run(command_line(words, {"namesrv": self._namesrv, **options}), timeout_s)

    async def admin(self, action: str, **options: Option) -> Outcome:
        """One call of DefaultMQAdminExt: `admin("examineTopicRouteInfo", topic="T")`."""
        arguments = command_line(("admin", action), {"namesrv": self._namesrv, **options})
        return await self._run(arguments, _DEFAULT_TIMEOUT_SECONDS)

    async def mqadmin(
        self, name: str, *arguments: str, timeout_s: float = _DEFAULT_TIMEOUT_SECONDS
    ) -> AdminOutput:
        """As MqAdmin.run(), in this JVM. An invalid command line of mqadmin ends the shell."""
        outcome = await self._run(["mqadmin", name, "-n", self._namesrv, *arguments], timeout_s)
        return AdminOutput(str(outcome.check().result["text"]))

    async def _run(self, arguments: list[str], timeout_s: float) -> Outcome:
        before = len(self._program.events)
        results = len(self._program.named("result"))
        self._program.write_line(json.dumps(arguments))
        try:
            await self._program.wait_for("result", results + 1, timeout_s)
        except TimeoutError:
            # Otherwise its result would be read as that of the next command.
            self._program.kill()
            raise
        return outcome_in_shell(self._program.events[before:], arguments)


class GoClient(ForeignClient):
    """github.com/apache/rocketmq-client-go/v2; sub-commands send and consume."""

    def __init__(self, executable: Path, namesrv: str, home: Path, *, options: Sequence[str] = ()) -> None:
        """`options` are added to every command line."""
        super().__init__(namesrv, home)
        self._executable = executable
        self._options = options

    def command(self, arguments: list[str]) -> list[str]:
        return [str(self._executable), *arguments, *self._options]


class NodeClient(ForeignClient):
    """ali-ons; sub-commands send and consume."""

    def __init__(
        self, program: NodeProgram, namesrv: str, home: Path, *, options: Sequence[str] = ()
    ) -> None:
        """`options` are added to every command line."""
        super().__init__(namesrv, home)
        self._program = program
        self._options = options

    def command(self, arguments: list[str]) -> list[str]:
        return [str(self._program.node), str(self._program.script), *arguments, *self._options]


class MqAdmin:
    """Apache's command-line tool: `await mqadmin.run("topicRoute", "-t", "T")`; `-n` is added here."""

    def __init__(
        self,
        program: JavaProgram,
        namesrv: str,
        home: Path,
        *,
        header: str = "JSON",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._program = program
        self._namesrv = namesrv
        self._home = home
        self._properties = {"rocketmq.serialize.type": header, **(properties or {})}
        home.mkdir(parents=True, exist_ok=True)

    async def run(
        self, name: str, *arguments: str, timeout_s: float = _DEFAULT_TIMEOUT_SECONDS
    ) -> AdminOutput:
        command = self._command([name, "-n", self._namesrv, *arguments])
        finished = await run_command(command, timeout_s=timeout_s)
        return AdminOutput(finished.stdout + finished.stderr)

    async def commands(self) -> list[str]:
        """Return the names of all commands, as the tool lists them."""
        finished = await run_command(self._command([]), timeout_s=_DEFAULT_TIMEOUT_SECONDS)
        return re.findall(r"^ {3}(\w+) ", finished.stdout, re.MULTILINE)

    def start(self, name: str, *arguments: str) -> RunningProgram:
        """Start a command that does not end by itself."""
        command = self._command([name, "-n", self._namesrv, *arguments])
        return RunningProgram(command, self._home / "stderr.log")

    def _command(self, words: Sequence[str]) -> list[str]:
        return java_command(
            self._program,
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            words,
            home=self._home,
            properties=self._properties,
        )
