"""A daemon's process, from its start to its exit code: run as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_remoting.daemon import lifecycle

_ROOT = Path(__file__).parents[4]
_COMMAND = (sys.executable, "-m", "tests.unit.remoting.daemon.small_daemon")


class Process:
    """A small daemon that runs; `said` is what it wrote to standard error so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""

    async def ready(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    async def says(self, text: str) -> None:
        """Wait until it has written this to standard error."""
        assert self._process.stderr is not None
        while text not in self.said:
            line = await self._process.stderr.readline()
            assert line, f"ended without {text!r}: {self.said}"
            self.said += line.decode()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

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
async def test_a_signal_stops_in_order(number: signal.Signals) -> None:
    async with _running() as process:
        assert await process.ready() == "ready small 127.0.0.1:80\n"
        process.signal(number)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "in order" in process.said
        assert f"{number.name}: stopping" in process.said


async def test_a_second_signal_ends_it_at_once() -> None:
    async with _running("--fault", "loop hangs") as process:
        await process.ready()
        process.signal(signal.SIGTERM)
        await process.says("in order")
        process.signal(signal.SIGTERM)
        assert await process.ends() == -signal.SIGTERM


async def test_a_signal_during_the_start_stops_it_too() -> None:
    async with _running("--fault", "starts slowly") as process:
        await process.says("starting")
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "stopped before it was ready" in process.said
        assert "in order" in process.said


async def test_a_signal_during_the_build_stops_it_too() -> None:
    async with _running("--fault", "is built slowly") as process:
        await process.says("building")
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_CLEAN
        assert "stopped before it was ready" in process.said
        assert "in order" not in process.said, "there was no daemon to be stopped"


async def test_a_failed_build_ends_it_with_1() -> None:
    async with _running("--fault", "cannot be built") as process:
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert "cannot start: brokerIP1=nowhere cannot be resolved" in process.said
        assert "Traceback" not in process.said
        assert "in order" not in process.said


@pytest.mark.parametrize(
    ("fault", "says", "trace"),
    [
        ("cannot start", "cannot start: cannot listen on 0.0.0.0:80: it is in use", False),
        ("crashes at start", "ZeroDivisionError", True),
        ("task dies", "stopping: task flush died: no disk", True),
    ],
)
async def test_a_failure_ends_it_with_1(fault: str, says: str, trace: bool) -> None:
    async with _running("--fault", fault) as process:
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert says in process.said
        assert ("Traceback" in process.said) is trace
        assert "in order" in process.said


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("stop hangs", "the stop took longer than 0.3 s"),
        ("stop fails", "the stop failed"),
    ],
)
async def test_a_stop_that_goes_wrong_ends_it_with_1(fault: str, says: str) -> None:
    async with _running("--fault", fault) as process:
        await process.ready()
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert says in process.said


@pytest.mark.parametrize("fault", ["thread stays", "loop hangs"])
async def test_a_process_that_hangs_gives_up_and_says_where(fault: str) -> None:
    async with _running("--fault", fault) as process:
        await process.ready()
        process.signal(signal.SIGTERM)
        assert await process.ends() == lifecycle.EXIT_FAILURE
        assert "the process does not end" in process.said
        assert "most recent call first" in process.said


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
async def test_a_bad_configuration_ends_it_with_2(arguments: list[str], says: str) -> None:
    async with _running(*arguments) as process:
        assert await process.ends() == lifecycle.EXIT_BAD_CONFIGURATION
        assert says in process.said
        assert "Traceback" not in process.said


async def test_a_reader_that_has_gone_is_no_reason_to_complain() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, "--print-config", stdout=write_end, stderr=asyncio.subprocess.PIPE, cwd=_ROOT
    )
    os.close(write_end)
    _, said = await process.communicate()
    assert (process.returncode, said) == (lifecycle.EXIT_FAILURE, b"")
