"""`rmq-namesrv` as a process: command line, ready line, signals."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.own_servers import OwnNamesrv
from tests.support.ports import LOOPBACK
from tests.support.processes import Finished, run_command

_COMMAND = str(Path(sys.executable).parent / "rmq-namesrv")


async def ran(*arguments: str) -> Finished:
    return await run_command([_COMMAND, *arguments], timeout_s=30)


async def test_it_serves_and_ends_cleanly(tmp_path: Path) -> None:
    async with OwnNamesrv(home=tmp_path) as namesrv:
        client = RemotingClient()
        request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        response = await client.request(namesrv.address, request, 5.0)
        assert response.code == ResponseCode.SUCCESS
        await namesrv.stop()
        await client.stop()
        log = namesrv.log_path.read_text()
        assert f"ready namesrv {namesrv.address}\n" in log
        assert "stopping signal=SIGTERM" in log
        assert "Traceback" not in log


async def test_the_table_is_printed() -> None:
    printed = await ran("--print-processors")
    assert printed.exit_code == 0
    assert "105   GET_ROUTEINFO_BY_TOPIC              route\n" in printed.stdout
    assert "lists         pool" in printed.stdout


async def test_the_printed_settings_can_be_loaded(tmp_path: Path) -> None:
    printed = await ran("--print-config", "--port", "1234")
    assert printed.exit_code == 0
    assert "\nlistenPort=1234\n" in printed.stdout
    assert "\n# kvConfigPath=" in printed.stdout
    file = tmp_path / "namesrv.conf"
    file.write_text(printed.stdout)
    again = await ran("-c", str(file), "--print-config")
    assert again.stdout == printed.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "enableTopicsList=true"], "did you mean enableTopicList?"),
        (["--port", "many"], "must be a whole number from 0 to 65535"),
        (["-c", "/nowhere/namesrv.conf"], "cannot be read"),
    ],
)
async def test_a_bad_configuration_is_refused(arguments: list[str], told: str) -> None:
    refused = await ran(*arguments)
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert refused.stdout == ""


async def test_a_port_that_is_taken_is_a_failure_to_start() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        settings = ["--set", f"bindAddress={LOOPBACK}", "--set", "metricsExporterType=DISABLE"]
        failed = await ran("--port", str(port), *settings)
    assert failed.exit_code == 1
    assert "listenPort chooses the port" in failed.stderr
    assert "Traceback" not in failed.stderr


async def test_apaches_file_is_taken_with_notes(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("enableControllerInNamesrv=false\nserverWorkerThreads=8\nclusterTest=true\n")
    process = await asyncio.create_subprocess_exec(
        _COMMAND,
        *("-c", str(file), "--port", "0", "--set", f"kvConfigPath={tmp_path / 'kv.json'}"),
        *("--set", f"bindAddress={LOOPBACK}", "--set", "metricsExporterType=DISABLE"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"ready namesrv 127.0.0.1:")
    process.terminate()
    _, errors = await process.communicate()
    assert process.returncode == 0
    for note in ("serverWorkerThreads", "clusterTest"):
        assert note in errors.decode()
