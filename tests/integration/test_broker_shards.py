"""`rmq-broker --shards`: several brokers in processes of their own, under one supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmq_broker.shards.liveness import SILENT_SECONDS
from rmq_client import Message, Producer
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import create_topic, request, succeeded
from tests.support.own_servers import OwnNamesrv, OwnShards
from tests.support.ports import LOOPBACK, free_port, free_shards_port
from tests.support.processes import run_command
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client
from tests.support.signed_requests import AUTHENTICATION, ROOT, signed
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

_COMMAND = str(Path(sys.executable).parent / "rmq-broker")
_WAIT_SECONDS = 20
_POLL_SECONDS = 0.02
_GROUP = SubscriptionGroupConfig(group_name="G", retry_max_times=3)


async def _ask(shards: OwnShards, number: int, command: RemotingCommand) -> RemotingCommand:
    async with raw_client(shards.port_of(number)) as client:
        return await client.ask(command)


async def _queues(shards: OwnShards, number: int, topic: str) -> int | None:
    """The write queues of a topic on a shard; None if there is no such topic, or no such shard now."""
    try:
        answer = await _ask(shards, number, request(Code.GET_TOPIC_CONFIG, topic=topic))
    except (OSError, EOFError):
        return None
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return TopicConfig.decode(succeeded(answer).body).write_queue_nums


async def _retries(shards: OwnShards, number: int) -> int:
    """The retries of the group on a shard."""
    answer = await _ask(shards, number, request(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="G"))
    return SubscriptionGroupConfig.decode(succeeded(answer).body).retry_max_times


async def _until(value: object, current: Callable[[], Awaitable[object]]) -> None:
    """Wait until `current` returns the value."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            if await current() == value:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _until_queues(shards: OwnShards, number: int, topic: str, queues: int | None) -> None:
    await _until(queues, lambda: _queues(shards, number, topic))


async def _metrics(port: int) -> dict[str, dict[str, float]]:
    """The values of metrics without further labels, by their name and the broker's."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    text = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
    writer.close()
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[sample.labels["node_id"]] = sample.value
    return values


async def _ups(port: int) -> dict[str, float]:
    """The shards that have answered a scrape, by broker name."""
    return (await _metrics(port))["rmq_shard_up"]


async def test_shards_share_topics_and_are_restarted(tmp_path: Path) -> None:
    metrics_port = free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(metrics_port)}
    async with (
        OwnNamesrv(home=tmp_path / "namesrv") as namesrv,
        OwnShards(namesrv.address, 2, home=tmp_path / "broker", settings=settings) as shards,
    ):
        line = f"ready broker-a {LOOPBACK}:{shards.port} namesrv {namesrv.address} shards 2\n"
        await until(lambda: line in shards.log_path.read_text())
        facts = json.loads(shards.ready_file.read_text())
        assert facts["shards"] == [f"{LOOPBACK}:{shards.port_of(number)}" for number in range(2)]
        assert facts["metrics"] == f"{LOOPBACK}:{metrics_port}"
        # A send creates a topic on one shard; the other one gets it, and clients use both.
        async with Producer(namesrv.address, group="g") as producer:
            await producer.send(Message("Sent", b"body"))
            for number in range(2):
                await _until_queues(shards, number, "Sent", 4)
        async with Producer(namesrv.address, group="g") as producer:
            brokers = {(await producer.send(Message("Sent", b"body"))).queue.broker_name for _ in range(16)}
        assert brokers == {"broker-a-0", "broker-a-1"}

        # Administration of one shard counts for both.
        succeeded(await _ask(shards, 1, create_topic("T", 3)))
        await _until_queues(shards, 0, "T", 3)
        succeeded(await _ask(shards, 0, create_topic("T", 5)))
        await _until_queues(shards, 1, "T", 5)
        update = RemotingCommand.request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_GROUP.encode())
        succeeded(await _ask(shards, 0, update))
        await _until(3, lambda: _retries(shards, 1))

        assert await _ups(metrics_port) == {"broker-a-0": 1, "broker-a-1": 1}

        # A shard that is killed is restarted, and gets the changes that it has missed.
        pids = shards.pids()
        os.kill(pids["broker-a-1"], signal.SIGSTOP)  # it answers nothing until it is killed
        succeeded(await _ask(shards, 0, create_topic("Missed", 2)))
        succeeded(await _ask(shards, 0, request(Code.DELETE_TOPIC_IN_BROKER, topic="T")))
        os.kill(pids["broker-a-1"], signal.SIGKILL)
        await _until_queues(shards, 1, "Missed", 2)
        await _until_queues(shards, 1, "T", None)
        assert await _queues(shards, 0, "T") is None
        assert shards.pids().keys() == {"broker-a-0", "broker-a-1"}
        assert shards.pids()["broker-a-0"] == pids["broker-a-0"]
        await _until({"broker-a-0": 1, "broker-a-1": 1}, lambda: _ups(metrics_port))
        values = await _metrics(metrics_port)
        assert values["rmq_shard_restarts_total"] == {"broker-a-0": 0, "broker-a-1": 1}
        assert values["rocketmq_broker_permission"] == {"broker-a-0": 6, "broker-a-1": 6}

        pids = shards.pids()
        await shards.stop()
        assert not any(map(_runs, pids.values()))
        log = shards.log_path.read_text()
        assert "shard ended, restarting it shard=broker-a-1 cause=signal SIGKILL" in log
        assert '"shard":"broker-a-0"' in log
        assert "Traceback" not in log

        # Everything is there after a restart of the whole.
        await shards.start()
        for number in range(2):
            assert await _queues(shards, number, "Missed") == 2
            assert await _queues(shards, number, "T") is None
        await shards.stop()


@pytest.mark.long
async def test_a_shard_that_hangs_is_restarted(tmp_path: Path) -> None:
    metrics_port = free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(metrics_port)}
    async with OwnShards("", 2, home=tmp_path / "broker", settings=settings) as shards:
        hung = shards.pids()["broker-a-1"]
        os.kill(hung, signal.SIGSTOP)
        await until(
            lambda: shards.pids().get("broker-a-1") not in (hung, None), SILENT_SECONDS + _WAIT_SECONDS
        )
        await _until_queues(shards, 1, "SCHEDULE_TOPIC_XXXX", 18)
        assert (await _metrics(metrics_port))["rmq_shard_hangs_total"] == {"broker-a-0": 0, "broker-a-1": 1}


async def test_shards_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    async with OwnShards("", 1, home=tmp_path) as shards:
        (pid,) = shards.pids().values()
        os.kill(shards.process.pid, signal.SIGKILL)
        await shards.process.wait(5)

        await _until(False, lambda: asyncio.to_thread(_runs, pid))
        log = shards.log_path.read_text()
        assert '"event":"stopped"' in log, "the shard's shutdown was not graceful"


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may still wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


async def test_access_control_does_not_keep_shards_apart(tmp_path: Path) -> None:
    settings = {key: str(text) for key, text in AUTHENTICATION.items()}
    settings |= {"adminAllowlist": LOOPBACK, "tls.server.mode": "permissive"}
    async with OwnShards("", 2, home=tmp_path, settings=settings) as shards:
        refused = await _ask(shards, 0, create_topic("T", 3))
        assert refused.code == ResponseCode.NO_PERMISSION

        succeeded(await _ask(shards, 0, signed(create_topic("T", 3), ROOT)))

        async def code_of_the_other() -> int:
            asked = request(Code.GET_TOPIC_CONFIG, topic="T")
            return (await _ask(shards, 1, signed(asked, ROOT))).code

        await _until(ResponseCode.SUCCESS, code_of_the_other)
        await shards.stop()


async def test_a_shard_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    damaged = tmp_path / "shard-0" / "config" / "topics.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    settings = {
        "bindAddress": LOOPBACK,
        "listenPort": str(free_shards_port(1)),
        "metricsExporterType": "DISABLE",
        "storePathRootDir": str(tmp_path),
    }
    words = [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]

    ended = await run_command([_COMMAND, "--shards", "1", *words], timeout_s=30)

    assert ended.exit_code == 1
    assert "Traceback" not in ended.stderr
    events = [json.loads(line)["event"] for line in ended.stderr.splitlines() if line.startswith("{")]
    assert any(event.startswith("cannot start:") and "topics.json is damaged" in event for event in events)
    assert any("has ended (exit code 1); its log lines say why" in event for event in events)
