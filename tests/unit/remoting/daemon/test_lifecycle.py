"""A daemon's process from its start to its exit code; each test runs one."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_remoting.daemon import lifecycle

_ROOT = Path(__file__).parents[4]
_COMMAND = (sys.executable, "-m", "tests.unit.remoting.daemon.small_daemon")


class Process:
    """A running small daemon; `said` is its standard error so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""

    async def ready(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    async def says(self, text: str) -> None:
        """Wait until the process has written `text` to standard error."""
        assert self._process.stderr is not None
        while text not in self.said:
            line = await self._process.stderr.readline()
            assert line, f"ended without {text!r}: {self.said}"
            self.said += line.decode()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ends(self) -> int:
        _, rest = await self._process.communicate()
        self.said += rest.decode()
        assert self._process.returncode is not None
        return self._process.returncode


@asynccontextmanager
async def _running(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=_ROOT,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_begins_a_graceful_shutdown(number: signal.Signals) -> None:
    async with _running() as process:
        assert await process.ready() == "ready small 127.0.0.1:80\n"
        process.signal(number)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "graceful shutdown begins" in process.said
        assert f"stopping signal={number.name}" in process.said


async def test_a_daemon_that_asks_for_it_is_started_again_by_its_own_process() -> None:
    async with _running("--fault", "restarts") as process:
        first = process.pid
        assert await process.ready() == "ready small 127.0.0.1:80\n"
        assert await process.ready() == "ready small 127.0.0.1:80\n"
        assert process.pid == first
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "restarting the daemon task=flush cause=its log is truncated" in process.said
        assert process.said.count("graceful shutdown begins") == 2


async def test_the_ready_file_has_the_facts_while_the_daemon_serves(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    async with _running("--ready-file", str(file)) as process:
        await process.ready()
        facts = json.loads(file.read_text())
        assert (facts["name"], facts["address"], facts["pid"]) == ("small", "127.0.0.1:80", process.pid)
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert not file.exists()


async def test_a_restart_writes_the_ready_file_again(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    async with _running("--ready-file", str(file), "--fault", "restarts") as process:
        await process.ready()
        await process.ready()
        assert json.loads(file.read_text())["pid"] == process.pid


async def test_a_daemon_that_does_not_start_leaves_the_ready_file_of_another(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_text("of another")
    async with _running("--ready-file", str(file), "--fault", "cannot start") as process:
        assert await process.ends() == lifecycle.EXIT_FAILURE
    assert file.read_text() == "of another"


async def test_a_ready_file_that_cannot_be_written_refuses_the_start(tmp_path: Path) -> None:
    async with _running("--ready-file", str(tmp_path / "missing" / "small.json")) as process:
        assert await process.ready() == ""
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert "cannot start: the file of --ready-file cannot be written: " in process.said
        assert "Traceback" not in process.said


async def test_a_second_signal_ends_the_process_at_once() -> None:
    async with _running("--fault", "loop hangs") as process:
        await process.ready()
        process.signal(signal.SIGTERM)
        await process.says("graceful shutdown begins")
        process.signal(signal.SIGTERM)
        assert await process.ends() == -signal.SIGTERM


async def test_a_signal_during_the_start_stops_the_daemon() -> None:
    async with _running("--fault", "starts slowly") as process:
        await process.says("starting")
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "stopped before the daemon was ready" in process.said
        assert "graceful shutdown begins" in process.said


async def test_a_signal_during_the_build_stops_the_daemon() -> None:
    async with _running("--fault", "is built slowly") as process:
        await process.says("building")
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "stopped before the daemon was ready" in process.said
        assert "graceful shutdown begins" not in process.said, "there was no daemon to be stopped"


async def test_a_failed_build_ends_it_with_1() -> None:
    async with _running("--fault", "cannot be built") as process:
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert "cannot start: brokerIP1=nowhere cannot be resolved" in process.said
        assert "Traceback" not in process.said
        assert "graceful shutdown begins" not in process.said


@pytest.mark.parametrize(
    ("fault", "says", "trace"),
    [
        ("cannot start", "cannot start: cannot listen on 0.0.0.0:80: it is in use", False),
        ("crashes at start", "ZeroDivisionError", True),
        ("task dies", "stopping, a task failed task=flush cause=no disk", True),
    ],
)
async def test_a_failure_gives_exit_code_1(fault: str, says: str, trace: bool) -> None:
    async with _running("--fault", fault) as process:
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert says in process.said
        assert ("Traceback" in process.said) is trace
        assert "graceful shutdown begins" in process.said


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("stop hangs", "graceful shutdown timed out, ending the process limit_s=0.3"),
        ("stop fails", "graceful shutdown failed"),
    ],
)
async def test_a_failed_shutdown_gives_exit_code_1(fault: str, says: str) -> None:
    async with _running("--fault", fault) as process:
        await process.ready()
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert says in process.said


@pytest.mark.parametrize("fault", ["thread stays", "loop hangs"])
async def test_a_hanging_process_is_killed_with_its_stacks_logged(fault: str) -> None:
    async with _running("--fault", fault) as process:
        await process.ready()
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert "process does not end, killing it" in process.said
        assert "most recent call first" in process.said


async def test_a_mapped_page_that_is_gone_ends_the_process_with_its_stacks_logged() -> None:
    async with _running("--fault", "page is gone") as process:
        assert await process.ends() == -signal.SIGBUS
        assert "Bus error" in process.said
        assert "_touch_missing_page" in process.said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "doors=1"], "  --set: doors=1: no such setting; did you mean door?\n"),
        (["--door", "70000"], "  --door: door=70000: must be a whole number from 0 to 65535\n"),
        (["-c", "nowhere.conf"], "  nowhere.conf: cannot be read: No such file or directory\n"),
        (["--set", "door"], "'door' is not of the form key=value"),
        (["--fly"], "unrecognized arguments: --fly"),
    ],
)
async def test_a_bad_configuration_gives_exit_code_2(arguments: list[str], says: str) -> None:
    async with _running(*arguments) as process:
        assert await process.ends() == lifecycle.EXIT_BAD_CONFIGURATION
        assert says in process.said
        assert "Traceback" not in process.said


async def test_a_closed_standard_output_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, "--print-config", stdout=write_end, stderr=asyncio.subprocess.PIPE, cwd=_ROOT
    )
    os.close(write_end)
    _, said = await process.communicate()
    assert (process.returncode, said) == (lifecycle.EXIT_FAILURE, b"")


def test_a_command_loads_its_modules_without_cycle_collections() -> None:
    during: list[bool] = []

    def command(arguments: Sequence[str]) -> int:
        during.append(gc.isenabled())
        return 0

    assert lifecycle.run_command(command, []) == 0
    assert (during, gc.isenabled()) == ([False], True)
