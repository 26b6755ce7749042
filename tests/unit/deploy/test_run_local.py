"""`make run`'s two processes, with daemons that only say what becomes of them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[3] / "deploy" / "run_local.py"

# Says when it starts and stops; its name, or what it is set to, tells whether something goes wrong.
_STUB = """#!{python}
import pathlib, signal, sys, time
name, said = pathlib.Path(sys.argv[0]).name, pathlib.Path({said!r})
def say(what):
    with said.open("a") as stream:
        stream.write(name + " " + what + "\\n")
def stop(*_):
    say("stops")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
*arguments, option, path = sys.argv[1:]
assert option == "--ready-file"
ready = pathlib.Path(path)
say("starts " + " ".join(arguments))
if "fault=start" in sys.argv:
    sys.exit(2)
ready.with_suffix(".new").write_text('{{"address": "127.0.0.1:1", "metrics": "127.0.0.1:2"}}')
ready.with_suffix(".new").rename(ready)
if "fault=later" in sys.argv:
    sys.exit(1)
while True:
    time.sleep(60)
"""


class Local:
    """`make run` in a folder of its own."""

    def __init__(self, process: asyncio.subprocess.Process, said: Path) -> None:
        self.process = process
        self._said = said

    async def shows(self, text: str) -> None:
        """Wait until a line with this text is on its standard output."""
        assert self.process.stdout is not None
        while True:
            line = (await self.process.stdout.readline()).decode()
            assert line, f"ended without {text!r}"
            if text in line:
                return

    async def ends(self) -> tuple[int, str]:
        _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()

    def events(self) -> list[str]:
        return self._said.read_text().splitlines()


@asynccontextmanager
async def _local(folder: Path, *arguments: str, python_path: Path | None = None) -> AsyncIterator[Local]:
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    said = folder / "said"
    for name in ("rmq-namesrv", "rmq-broker"):
        (programs / name).write_text(_STUB.format(python=sys.executable, said=str(said)))
        (programs / name).chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        programs / "python",
        _SCRIPT,
        "--port",
        "19876",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"PYTHONHOME": sys.base_prefix, "PYTHONPATH": str(python_path or "")},
    )
    try:
        yield Local(process, said)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_the_broker_before_the_name_server(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with _local(tmp_path) as local:
        await local.shows("name server  127.0.0.1:1")
        await local.shows("metrics      http://127.0.0.1:2/metrics")
        await local.shows("broker       127.0.0.1:1")
        await local.shows("reachable    from this machine only; from others with make run BIND=0.0.0.0")
        await local.shows("quickstart.py 127.0.0.1:19876")
        local.process.send_signal(number)
        assert (await local.ends())[0] == 0
        # 5558, unless that is taken on this machine.
        (metrics_port,) = re.findall(r"metricsPromExporterPort=(0|5558)", local.events()[0])
        assert local.events() == [
            "rmq-namesrv starts --port 19876 --set kvConfigPath=data/namesrv/kvConfig.json"
            f" --set bindAddress=127.0.0.1 --set metricsPromExporterPort={metrics_port}",
            "rmq-broker starts -n 127.0.0.1:19876 --store data --grpc --set bindAddress=127.0.0.1"
            " --set brokerIP1=127.0.0.1 --set brokerIP2=127.0.0.1",
            "rmq-broker stops",
            "rmq-namesrv stops",
        ]


async def test_other_ports_and_addresses_can_be_chosen(tmp_path: Path) -> None:
    ports = ("--broker-port", "20911", "--grpc-port", "8082", "--metrics-port", "5567")
    async with _local(tmp_path, "--bind", "0.0.0.0", *ports) as local:
        await local.shows("reachable    by every host that can reach 0.0.0.0")
        await local.shows("stop ")
        assert local.events()[1] == (
            "rmq-broker starts -n 127.0.0.1:19876 --store data --grpc --set bindAddress=0.0.0.0"
            " --set listenPort=20911 --set grpcServerPort=8082 --set metricsPromExporterPort=5567"
        )
        assert local.events()[0].endswith(" --set metricsPromExporterPort=5568")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("fault=start", "the broker ended with exit code 2; the lines above say why. (Other ports: make run"),
        ("fault=later", "the broker has ended by itself: stopping the other one"),
    ],
)
async def test_when_one_ends_so_does_the_other(tmp_path: Path, fault: str, says: str) -> None:
    async with _local(tmp_path, "--set", fault) as local:
        code, errors = await local.ends()
        assert code == 1
        assert says in errors
        assert local.events()[-1] == "rmq-namesrv stops"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells a child of its parent's end")
async def test_when_it_is_killed_both_end(tmp_path: Path) -> None:
    async with _local(tmp_path) as local:
        await local.shows("stop ")
        local.process.kill()
        await local.ends()  # when nobody holds its standard error any more: neither of the daemons
        assert sorted(local.events()[2:]) == ["rmq-broker stops", "rmq-namesrv stops"]
