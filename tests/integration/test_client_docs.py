"""Every program of the SDK's pages runs against a broker of ours, as printed."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import Message, Producer, PushConsumer
from tests.support.brokers import running_broker
from tests.support.certificates import make_certificate
from tests.support.fronts import fronted_cluster, needs_fronts
from tests.support.namesrv import running_namesrv

_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "client"
_PAGES = [path.name for path in sorted(_FOLDER.glob("*.md")) if "```python" in path.read_text()]
_SECURE_PAGE = "how-to-secure-connections.md"
_ADDRESS = "127.0.0.1:9876"
_CA_FILE = "/etc/rmq/ca.pem"
# Broker settings that the pages require beyond the defaults.
_SETTINGS = {"recallMessageEnable": "true", "enablePropertyFilter": "true", "traceTopicEnable": "true"}
_CONSUMED_WITHIN_SECONDS = 20.0


def _programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (_FOLDER / page).read_text(), re.MULTILINE | re.DOTALL)


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


def _run(program: str, name: str) -> None:
    exec(compile(program, name, "exec"), {"__name__": "__main__"})


@pytest.fixture(autouse=True)
def _consumers_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushConsumer, "wait_stopped", _wait_until_something_is_consumed)
    # `rmq-broker` is in the folder of this Python.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("page", [page for page in _PAGES if page != _SECURE_PAGE])
async def test_every_program_of_the_page_runs(page: str, tmp_path: Path) -> None:
    async with _cluster(tmp_path) as address:
        for number, program in enumerate(_programs(page), 1):
            await asyncio.to_thread(_run, program.replace(_ADDRESS, address), f"{page} program {number}")


@needs_fronts
async def test_the_secure_program_runs_with_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "servers")
    async with fronted_cluster(tmp_path, tls=certificate.server_context()) as address:
        for program in _programs(_SECURE_PAGE):
            secure = program.replace(_ADDRESS, address).replace(_CA_FILE, str(certificate.cert_file))
            await asyncio.to_thread(_run, secure, _SECURE_PAGE)


def test_every_page_with_a_task_has_a_program() -> None:
    tasks = {path.name for path in _FOLDER.glob("*.md")} - {"README.md", "reference.md"}
    assert tasks == set(_PAGES)
