"""The commands of the first pages, as they are printed: with their ports free, and with these taken.

A command is a step of `_FREE` or `_TAKEN`, or is in `_NOT_RUN`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from examples.pipeline.run import arguments as pipeline_arguments
from tests.pages.commands import first_commands
from tests.pages.private_network import private_network
from tests.pages.terminal import Terminal, inherited
from tests.support.code_blocks import ROOT, code_blocks

# By the beginning of the commands.
_NOT_RUN: Final = {
    "RMQ_BROKER_ADDRESS=192.168.1.20 docker ": "needs Docker; tests/deploy checks the compose files",
    "alias dc=": "needs Docker",
    "dc ": "needs Docker",
    "docker ": "needs Docker; tests/deploy checks the files, and runs the image's commands",
    "export GRAFANA_ADMIN_PASSWORD=": "is for Docker",
    "make bench": "measures for minutes to hours",
    "make docs": "downloads packages; it checks its result itself",
    "make pipeline": "starts Spark; tests/spark/test_pipeline.py runs it with few lines",
    "make test": "runs this test, too",
    "make wheel": "compiles for a minute; tests/unit/compiling tests the compiler",
    "pip install ": "downloads packages",
    "rmq --install-completion": "changes the start files of the shell",
    "rmq -n 10.0.0.1:9876 lag": "has the address of another machine",
    "rmq-broker  [": "is a synopsis",
    "rmq-broker --shards": "takes ports by number; tests/integration/test_broker_shards.py runs it",
    "rmq-health [": "is a synopsis",
    "rmq-namesrv [": "is a synopsis",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A command that ends. `replaced`: texts of the page, and what a reader types instead."""

    command: str
    shows: str = ""
    code: int = 0
    stdin: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Keep:
    """A command that changes the shell for the commands after it."""

    command: str
    replaced: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """A command that runs until Ctrl-C. The next steps come as soon as it shows a text."""

    command: str
    shows: str
    replaced: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C for a started command."""

    command: str


_MAKE_RUN_IS_READY: Final = "\nstop         Ctrl-C\n"
_ADDRESSES: Final = """\
name server  127.0.0.1:{namesrv}
metrics      http://127.0.0.1:{namesrv_metrics}/metrics
broker       127.0.0.1:{broker}
gRPC         127.0.0.1:{grpc}
metrics      http://127.0.0.1:{broker_metrics}/metrics
"""
_TOLD_PORTS: Final = "make run PORT=9877 BROKER_PORT=20911"
_OTHER_PORTS: Final = "make run PORT=9877 BROKER_PORT=20911 GRPC_PORT=8082 METRICS_PORT=5567"
_BROKER: Final = "rmq-broker -n 127.0.0.1:9876 --set "
_PROGRAM: Final = ".venv/bin/python FILE"
_NAMESRV: Final = "export NAMESRV_ADDR=127.0.0.1:9876"

_FREE: Final = (
    Run("make help", "make run"),
    Start(
        "make run",
        _ADDRESSES.format(namesrv=9876, namesrv_metrics=5558, broker=10911, grpc=8081, broker_metrics=5557),
    ),
    Run(".venv/bin/python examples/quickstart.py", "received 'hello 2'"),
    Run(_PROGRAM, "received hello", replaced={"FILE": "index-0.py"}),
    Keep(". .venv/bin/activate"),
    Keep(_NAMESRV),
    Run("rmq topic create orders --queues 8", "topic orders is there"),
    Run("rmq produce orders 'order 4711 paid' --tag paid", "sent 1 message to topic orders"),
    Run("rmq consume orders", "order 4711 paid"),
    Start("rmq lag --watch 2s", "quickstart"),
    Interrupt("rmq lag --watch 2s"),
    Run("rmq dlq list"),
    Run(_PROGRAM, "SEND_OK", replaced={"FILE": "tutorial-0.py"}),
    Run(_PROGRAM, replaced={"FILE": "tutorial-3.py"}),
    Run(_PROGRAM, replaced={"FILE": "tutorial-4.py > letter"}),
    Run(".venv/bin/rmq -n 127.0.0.1:9876 dlq list", "third-till"),
    Run(".venv/bin/rmq -n 127.0.0.1:9876 dlq show third-till", "order 3"),
    Run(
        ".venv/bin/rmq -n 127.0.0.1:9876 dlq resend third-till ID",
        "sent 1 dead letter again to group third-till",
        stdin="y\n",
        replaced={"ID": "$(cut -d ' ' -f 1 letter) --yes"},
    ),
    Run(".venv/bin/rmq -n 127.0.0.1:9876 lag", "third-till"),
    Run("rmq-store verify DIR", replaced={"DIR": "data"}),
    Run("rmq-store dump DIR --topic orders --key 4711 --output json --body", replaced={"DIR": "data"}),
    Run("rmq-store stats DIR", "orders", replaced={"DIR": "data"}),
    Interrupt("make run"),
    Run("rmq-store repair DIR", replaced={"DIR": "data"}),
    Start("make run BIND=0.0.0.0", _MAKE_RUN_IS_READY),
    Interrupt("make run BIND=0.0.0.0"),
    Start("make run DATA=FOLDER", "messages     other\n", replaced={"FOLDER": "other"}),
    Start(
        f"{_BROKER}brokerIP1=192.168.1.20",
        "ready ",
        replaced={"--set": "--set listenPort=20911 --store second --set"},
    ),
    Interrupt(f"{_BROKER}brokerIP1=192.168.1.20"),
    Interrupt("make run DATA=FOLDER"),
    Start("rmq-broker --standalone", " namesrv 127.0.0.1:9876 grpc 127.0.0.1:8081\n"),
    Interrupt("rmq-broker --standalone"),
    Run("python -m rmq_testing -- COMMAND", "127.0.0.1:", replaced={"COMMAND": "sh -c 'echo $NAMESRV_ADDR'"}),
    Run(".venv/bin/python -m examples.pipeline.run --help", "--lines"),
    Run("rmq --help", "Usage"),
    Run("rmq offset reset --help", "--dry-run"),
    Run("rmq config set production namesrv '10.0.0.1:9876;10.0.0.2:9876'"),
    Run("rmq config set production access_key admin"),
    Run("rmq config set production secret_key", stdin="secret\n"),
    Run("rmq config set laptop namesrv 127.0.0.1:9876"),
    Run("rmq config list", "production  yes      10.0.0.1:9876;10.0.0.2:9876"),
    Run("rmq config path", "config"),
)

_DEFAULT_PORTS: Final = (9876, 10911, 10909, 10912, 8081, 5557, 5558)
_PORT: Final = {"9876": "9877"}
_TAKEN: Final = (
    Run("make run", f"Other ports: {_TOLD_PORTS};", code=2),
    # The other ports are any free ones.
    Start("make run", _MAKE_RUN_IS_READY, replaced={"make run": _TOLD_PORTS}),
    Run(
        ".venv/bin/python examples/quickstart.py",
        "received 'hello 2'",
        replaced={"quickstart.py": "quickstart.py 127.0.0.1:9877"},
    ),
    Interrupt("make run"),
    Start(
        _OTHER_PORTS,
        _ADDRESSES.format(namesrv=9877, namesrv_metrics=5568, broker=20911, grpc=8082, broker_metrics=5567),
    ),
    Keep(_NAMESRV, replaced=_PORT),
    Run("rmq dlq list"),
    Run("rmq-broker --standalone", "--namesrv-port chooses the port", code=1),
    Start(
        f"{_BROKER}grpcServerPort=8081",
        " namesrv 127.0.0.1:9877 grpc 0.0.0.0:8083\n",
        replaced={**_PORT, "8081": "8083 --set brokerName=b --set listenPort=30911"},
    ),
    Interrupt(f"{_BROKER}grpcServerPort=8081"),
    Interrupt(_OTHER_PORTS),
)


@pytest.mark.timeout(400, func_only=True)
@pytest.mark.parametrize(
    ("taken", "steps"), [((), _FREE), (_DEFAULT_PORTS, _TAKEN)], ids=["ports-free", "ports-taken"]
)
def test_the_commands_do_what_the_pages_say(
    tmp_path: Path, taken: Sequence[int], steps: Sequence[Run | Keep | Start | Interrupt]
) -> None:
    for program in ("make", "sh"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no command {program}")
    with private_network(taken) as network, Terminal(tmp_path, network) as terminal:
        _save_programs(tmp_path)
        for step in steps:
            _do(terminal, step)


def _save_programs(folder: Path) -> None:
    """Save the programs of the pages under the names that the steps use."""
    for page in ("docs/index.md", "docs/client/tutorial.md"):
        programs = [block for block in code_blocks(ROOT / page) if block.language == "python"]
        for number, block in enumerate(programs):
            (folder / f"{block.page.stem}-{number}.py").write_text(block.text)


def _do(terminal: Terminal, step: Run | Keep | Start | Interrupt) -> None:
    if isinstance(step, Interrupt):
        terminal.interrupt(step.command)
        return
    command = step.command
    for text, typed in step.replaced.items():
        assert text in command
        command = command.replace(text, typed)
    if isinstance(step, Keep):
        terminal.keep(command)
    elif isinstance(step, Start):
        terminal.start(step.command, command, step.shows)
    else:
        code, output = terminal.run(command, step.stdin)
        assert (code, step.shows in output) == (step.code, True), f"{command}: exit code {code}\n{output}"


def test_every_command_is_run_or_has_a_reason() -> None:
    printed = first_commands()
    run = {step.command for step in (*_FREE, *_TAKEN)}
    not_run = {command: start for command in printed for start in _NOT_RUN if command.startswith(start)}
    assert printed.keys() - run - not_run.keys() == set(), "add a step, or a row of _NOT_RUN"
    assert run - printed.keys() == set(), "no page has these commands any more"
    assert run & not_run.keys() == set()
    assert set(_NOT_RUN) - set(not_run.values()) == set(), "no page has such commands any more"


@pytest.mark.parametrize("command", [command for command in first_commands() if command.startswith("make ")])
def test_make_knows_the_target_and_its_variables(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, *variables = command.removeprefix("make ").split()
    printed = subprocess.run(
        ["make", "--dry-run", target, *variables],
        cwd=ROOT,
        env=inherited(),
        capture_output=True,
        text=True,
        check=True,
    )
    (explained,) = re.findall(rf"^{target}:.*## (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for variable in variables:
        assert variable.partition("=")[0] in re.findall(r"\b([A-Z_]+)=", explained)
    _, module, options = printed.stdout.partition(" -m examples.pipeline.run")
    if module:
        monkeypatch.setattr(sys, "argv", ["run", *shlex.split(options.replace("\\\n", ""))])
        pipeline_arguments()
