"""Apache Kafka's server: one node in KRaft mode, with files in a folder of its own."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.support import toolchain
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import ServerProcess, run_command
from tests.support.toolchain import JavaProgram, ToolMissing

KAFKA_BROKER: Final = Path(__file__).parent / "kafka_broker"
KAFKA_SOURCE: Final = Path(__file__).parent / "kafka_source"

_READY_WITHIN_SECONDS: Final = 60.0
_FORMAT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
# As in kafka-server-start.sh and kafka-run-class.sh of Apache Kafka 3.9.
_JVM: Final = (
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def pom_property(project: Path, name: str) -> str:
    """Return a property of a Maven project, such as its `kafka.version`."""
    found = ElementTree.parse(project / "pom.xml").findtext(f"./properties/{name}")
    if found is None:
        raise KeyError(f"{project / 'pom.xml'} has no property {name}")
    return found


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """A running server."""

    address: str
    process: ServerProcess


def source_jars(folder: Path | None) -> list[Path]:
    """Return the jars of Spark's Kafka source, from a folder or resolved by Maven.

    Raises ToolMissing, also for a folder without jars, and BuildFailed.
    """
    if folder is None:
        toolchain.libraries(KAFKA_SOURCE)
        folder = KAFKA_SOURCE / "target" / "lib"
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise ToolMissing(f"the jars of Spark's Kafka source are needed: there are none in {folder}")
    return jars


@asynccontextmanager
async def kafka_server() -> AsyncIterator[KafkaServer]:
    """Start a server with empty logs and the default settings, except those that a single node needs.

    Its files are deleted when the block ends.
    """
    program = toolchain.libraries(KAFKA_BROKER)
    home = Path(tempfile.mkdtemp(prefix="rmq-bench-kafka-"))
    port, controller_port = free_port(), free_port()
    properties = home / "server.properties"
    properties.write_text(_properties(home, port, controller_port))
    process: ServerProcess | None = None
    try:
        await _format(program, properties)
        command = [*_java(program), "kafka.Kafka", str(properties)]
        process = ServerProcess(command, log_path=home / "server.log", environment=dict(os.environ))
        await _until_listens(process, port)
        yield KafkaServer(f"{LOOPBACK}:{port}", process)
    except Exception:
        if process is not None:
            print(f"Kafka's log ends so:\n{process.log_tail()}", file=sys.stderr)
        raise
    finally:
        if process is not None:
            process.kill()
        shutil.rmtree(home, ignore_errors=True)


def _java(program: JavaProgram) -> list[str]:
    return [str(program.java), *_JVM, "-cp", program.class_path]


def _properties(home: Path, port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(home / "logs"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


async def _format(program: JavaProgram, properties: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    # An id that begins with a dash would be parsed as an option.
    words = ["format", f"--cluster-id={cluster}", "--config", str(properties)]
    command = [*_java(program), "kafka.tools.StorageTool", *words]
    finished = await run_command(command, timeout_s=_FORMAT_SECONDS)
    if finished.exit_code != 0:
        raise RuntimeError(f"Kafka's storage could not be formatted: {finished}")


async def _until_listens(process: ServerProcess, port: int) -> None:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    while True:
        if process.exit_code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Kafka is not ready: {process.log_tail()}")
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        await asyncio.sleep(_POLL_SECONDS)
