"""Every Python program of README and of the pages runs against a broker of ours, as printed.

Programs with a mark, and those for Spark, are tested elsewhere (tests/support/code_blocks.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import Message, Producer, PushConsumer
from tests.support.brokers import running_broker
from tests.support.certificates import make_certificate
from tests.support.code_blocks import ROOT, CodeBlock, How, python_blocks
from tests.support.fronts import fronted_cluster, needs_fronts
from tests.support.namesrv import running_namesrv

pytestmark = pytest.mark.thorough

_PROGRAMS = python_blocks(How.BESIDE_A_BROKER)
_SECURE_PAGE = "docs/client/how-to-secure-connections.md"
_ADDRESS = "127.0.0.1:9876"
_CA_FILE = "/etc/rmq/ca.pem"
# Broker settings that the pages require beyond the defaults.
_SETTINGS = {"recallMessageEnable": "true", "enablePropertyFilter": "true", "traceTopicEnable": "true"}
_CONSUMED_WITHIN_SECONDS = 20.0
# The programs of some pages run for a while, as a reader wants to see more than one message.
_LONG_SLEEP, _SHORT_SLEEP = "asyncio.sleep(10)", "asyncio.sleep(1)"


@asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[str]:
    """Yield the name server of a broker with messages in the topics that the pages consume."""
    async with (
        running_namesrv(folder) as namesrv,
        running_broker(folder, namesrvAddr=namesrv.address, **_SETTINGS),
        Producer(namesrv.address, group="before-the-page") as producer,
    ):
        for topic in ("orders", "bookings"):
            for number in range(6):
                await producer.send(Message(topic, b"%d" % number, tags="paid", keys=[f"{number}"]))
        yield namesrv.address


async def _wait_until_something_is_consumed(consumer: PushConsumer) -> None:
    """Replace `wait_stopped`, which would wait for Ctrl-C."""
    async with asyncio.timeout(_CONSUMED_WITHIN_SECONDS):
        while not any(topic.consumed for topic in (await consumer.statistics()).values()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _run(block: CodeBlock, replaced: Mapping[str, str]) -> None:
    """Run a program in a thread, since it runs a loop of its own."""
    program = block.text
    for text, replacement in {_LONG_SLEEP: _SHORT_SLEEP, **replaced}.items():
        program = program.replace(text, replacement)
    code = compile(program, block.name, "exec")
    await asyncio.to_thread(exec, code, {"__name__": "__main__"})


@pytest.fixture(autouse=True)
def _consumers_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushConsumer, "wait_stopped", _wait_until_something_is_consumed)
    # `rmq-broker` is in the folder of this Python.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("page", [page for page in _PROGRAMS if page != _SECURE_PAGE])
async def test_every_program_of_the_page_runs(page: str, tmp_path: Path) -> None:
    async with _cluster(tmp_path) as address:
        for block in _PROGRAMS[page]:
            await _run(block, {_ADDRESS: address})


@needs_fronts
async def test_the_secure_program_runs_with_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "servers")
    async with fronted_cluster(tmp_path, tls=certificate.server_context()) as address:
        for block in _PROGRAMS[_SECURE_PAGE]:
            await _run(block, {_ADDRESS: address, _CA_FILE: str(certificate.cert_file)})


def test_every_page_with_a_task_has_a_program() -> None:
    pages = {f"docs/client/{path.name}" for path in (ROOT / "docs" / "client").glob("*.md")}
    assert pages - _PROGRAMS.keys() == {"docs/client/README.md", "docs/client/reference.md"}
