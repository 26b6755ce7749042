"""The life of a broker: start, ready line, failures of the start, stop, and state after a restart."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_broker.standalone import Standalone, build_standalone
from rmq_remoting.bodies import fastjson
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.broker_load import Acknowledged, Load, read_all
from tests.support.broker_requests import create_topic, heartbeat, pull, pulled, request, send, sent
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.own_servers import OwnBroker
from tests.support.ports import LOOPBACK, free_broker_port
from tests.support.processes import Finished, run_command
from tests.support.raw_client import raw_client
from tests.support.unreadable_pages import unreadable_file
from tests.support.waiting import loop_passes, until

_COMMAND = Path(sys.executable).with_name("rmq-broker")


async def _run(*arguments: str | Path) -> Finished:
    return await run_command([str(_COMMAND), *map(str, arguments)], timeout_s=20)


# --- the command line ---


async def test_all_settings_can_be_printed() -> None:
    done = await _run("--print-config", "--set", "maxMessageSize=1234")

    assert (done.exit_code, done.stderr) == (0, "")
    assert "maxMessageSize=1234" in done.stdout.splitlines()
    assert any(line.lstrip("# ").startswith("listenPort=10911") for line in done.stdout.splitlines())


async def test_the_processor_table_can_be_printed() -> None:
    done = await _run("--print-processors")

    assert (done.exit_code, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()}
    assert "SEND_MESSAGE" in lines["10"] and "send" in lines["10"]
    assert "GET_TOPIC_STATS_INFO" in lines["202"] and "admin_reads" in lines["202"]
    assert "LITE_PULL_MESSAGE" in lines["361"]


async def test_all_bad_settings_are_named_with_suggestions(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerNmae=b\nlistenPort=70000\nflushDiskType=SYNC_FLUSHY\n")

    done = await _run("-c", file)

    assert done.exit_code == 2
    assert done.stdout == ""
    assert "broker.conf line 1: brokerNmae=b: no such setting; did you mean brokerName?" in done.stderr
    assert "broker.conf line 2: listenPort=70000: must be a whole number from 0 to 65535" in done.stderr
    assert "broker.conf line 3: flushDiskType" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_port_or_store_in_use_prevents_the_start(tmp_path: Path) -> None:
    port = free_broker_port()
    async with OwnBroker("", port=port, home=tmp_path / "first") as first:
        common = [
            *(
                "--set",
                f"bindAddress={LOOPBACK}",
                "--set",
                "metricsExporterType=DISABLE",
                "--set",
                "namesrvAddr=",
            ),
        ]
        same_port = await _run(*common, "--set", f"listenPort={port}", "--store", tmp_path / "second")
        same_store = await _run(
            *common, "--set", f"listenPort={free_broker_port()}", "--store", first.store_path
        )

        for done in (same_port, same_store):
            assert (done.exit_code, done.stdout) == (1, "")
            assert "Traceback" not in done.stderr
        assert f"cannot listen on {LOOPBACK}:{port}" in same_port.stderr
        assert "Address already in use" in same_port.stderr
        assert "in use by another broker" in same_store.stderr
        # The first one is none the worse for it.
        async with raw_client(port) as client:
            sent(await client.ask(send("T")))
        await first.stop()
    assert not (first.store_path / "abort").exists()
    assert not (tmp_path / "second" / "abort").exists()


async def test_a_port_in_use_leaves_no_socket_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        for keys in ({"listenPort": port}, {"listenPort": free_broker_port(), "fastListenPort": port}):
            broker = RunningBroker(broker_configuration(tmp_path, **keys))
            with pytest.raises(StartError, match=f"cannot listen on {LOOPBACK}"):
                await broker.start()
            await broker.stop()


async def test_an_address_that_cannot_be_resolved_is_named(tmp_path: Path) -> None:
    broker = RunningBroker(broker_configuration(tmp_path, brokerIP1="no.such.host.invalid"))
    with pytest.raises(StartError, match=r"brokerIP1=no\.such\.host\.invalid"):
        await broker.start()
    await broker.stop()


async def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text('{"topicConfigTable":{')
    broker = RunningBroker(broker_configuration(tmp_path))

    with pytest.raises(StartError, match=r"topics\.json is damaged"):
        await broker.start()
    await broker.stop()

    assert (config / "topics.json").read_text() == '{"topicConfigTable":{'


# --- name servers ---


@pytest.fixture
async def silent_address() -> AsyncIterator[str]:
    """A name server that takes connections and never says a word."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), LOOPBACK, 0)
    yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in writers:
        writer.transport.abort()


async def test_silent_name_servers_do_not_delay_the_start(tmp_path: Path, silent_address: str) -> None:
    addresses = f"{silent_address};{LOOPBACK}:1;192.0.2.1:9876"
    keys = {"namesrvAddr": addresses, "readyWaitMillis": 300, "registerBrokerTimeoutMills": 60_000}
    began = time.monotonic()
    async with running_broker(tmp_path, **keys) as broker:
        assert 0.3 <= time.monotonic() - began < 20.0
        assert broker.ready_text == f"broker-a {broker.address} namesrv {addresses}"
        async with broker.client() as client:
            sent(await client.ask(send("T")))
            began = time.monotonic()
            await client.ask(create_topic("U"))
            assert time.monotonic() - began < 20.0
        began = time.monotonic()
    assert time.monotonic() - began < 20.0


async def test_routes_exist_from_the_creation_of_a_topic_until_the_stop(
    tmp_path: Path,
) -> None:
    async with running_namesrv(tmp_path) as namesrv, raw_client(namesrv.port) as clients:

        async def route(topic: str) -> str | None:
            answer = await clients.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic))
            return answer.body.decode() if answer.code == ResponseCode.SUCCESS else None

        async with running_broker(tmp_path, namesrvAddr=namesrv.address) as broker:
            assert broker.ready_text == f"broker-a {broker.address} namesrv {namesrv.address}"
            assert broker.address in str(await route("TBW102"))
            async with broker.client() as client:
                await client.ask(create_topic("Made", 3))
                assert '"readQueueNums":3' in str(await route("Made"))

                sent(await client.ask(send("Sent")))
                async with asyncio.timeout(20):
                    while await route("Sent") is None:  # noqa: ASYNC110 (asked over the network)
                        await asyncio.sleep(0.01)

                await client.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Made"))
        async with asyncio.timeout(20):
            while await route("TBW102") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_two_brokers_of_one_name_report_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmq.broker.registration")

    def logged(beginning: str) -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        return [message for message in found if message.startswith(beginning)]

    async with running_namesrv(tmp_path) as namesrv:
        keys = {"namesrvAddr": namesrv.address}
        first = RunningBroker(broker_configuration(tmp_path / "first", **keys))
        await first.start()
        assert len(logged("registered with")) == 1
        async with running_broker(tmp_path / "second", **keys) as second:
            assert second.ready_text == (
                f"broker-a {second.address} namesrv {namesrv.address} route-held-by {first.address}"
            )
            (error,) = logged("route conflict")
            assert f"broker=broker-a holder={first.address} address={second.address}" in error

            first.topics.next_data_version()  # registers again, as it does every 30 s
            await until(lambda: len(logged("route conflict")) == 2)
            assert f"holder={second.address} address={first.address}" in logged("route conflict")[1]
            assert len(logged("registered with")) == 1

            await first.stop()
            second.topics.next_data_version()
            await until(lambda: len(logged("registered with")) == 2)


async def test_a_standalone_broker_starts_its_own_name_server(tmp_path: Path) -> None:
    supervisor = TaskSupervisor(lambda name, error: None)
    both = await build_standalone(broker_configuration(tmp_path), supervisor, namesrv_port=0)
    try:
        ready_text = (await both.start()).line()
        namesrv_address = f"{LOOPBACK}:{both.namesrv.port}"
        assert ready_text == f"broker-a {LOOPBACK}:{both.broker.port} namesrv {namesrv_address}"
        async with raw_client(both.namesrv.port) as client:
            answer = await client.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102"))
            assert f"{LOOPBACK}:{both.broker.port}" in answer.body.decode()
    finally:
        await both.stop()
        await supervisor.stop()


async def _standalone(folder: Path) -> tuple[Standalone, TaskSupervisor]:
    """Build one whose operator has not chosen a port for gRPC."""
    configuration = broker_configuration(folder)
    configuration.settings.model_fields_set.discard("grpc_server_port")
    supervisor = TaskSupervisor(lambda name, error: None)
    return await build_standalone(configuration, supervisor, namesrv_port=0), supervisor


async def test_a_standalone_broker_serves_grpc_on_a_free_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = socket.socket()
    with suppress(OSError):  # another process has it
        taken.bind((LOOPBACK, 8081))
        taken.listen()
    with taken:
        both, supervisor = await _standalone(tmp_path)
        try:
            ready_text = (await both.start()).line()
            assert re.search(rf" grpc {LOOPBACK}:\d+$", ready_text)
            assert not ready_text.endswith(":8081")
            assert "gRPC port taken port=8081; any free port is used" in caplog.text
        finally:
            await both.stop()
            await supervisor.stop()


async def test_a_standalone_broker_goes_without_grpc_if_it_is_not_installed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    caplog.set_level(logging.INFO)
    both, supervisor = await _standalone(tmp_path)
    try:
        assert (await both.start()).grpc is None
        text = "gRPC is off, the package grpc is not installed; pip install 'rmq[proxy]' adds it"
        assert caplog.text.count(text) == 1
    finally:
        await both.stop()
        await supervisor.stop()


async def test_the_taken_port_of_a_standalone_name_server_has_its_own_cure(tmp_path: Path) -> None:
    supervisor = TaskSupervisor(lambda name, error: None)
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"name server cannot listen on .*:{port}: .*--namesrv-port"):
            await build_standalone(broker_configuration(tmp_path), supervisor, namesrv_port=port)
    await supervisor.stop()


async def test_a_broker_that_acts_for_its_master_sends_heartbeats(tmp_path: Path) -> None:
    async with (
        running_namesrv(tmp_path) as namesrv,
        running_broker(
            tmp_path, namesrvAddr=namesrv.address, enableSlaveActingMaster=True, brokerHeartbeatInterval=20
        ),
    ):
        rows = {row.code: row for row in namesrv.dispatcher.registrations()}
        heartbeats = (rows[RequestCode.BROKER_HEARTBEAT], rows[RequestCode.QUERY_DATA_VERSION])
        await until(lambda: sum(sum(row.answered.values()) for row in heartbeats) >= 3)


# --- stop and start again ---


async def test_state_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic("T", 7))
        for number in range(10):
            sent(await client.ask(send("T", b"%d" % number, queue_id=6)))
        await client.ask(pull("T", "CG", queue_id=6, offset=10, commit=4))
        await client.ask(heartbeat("c1", "Beating", {"T": "*"}))
        store_at = broker.store.max_phy_offset()
    assert not (tmp_path / "store" / "abort").exists()

    async with running_broker(tmp_path) as broker, broker.client() as client:
        topic = broker.topics.get("T")
        assert topic is not None
        assert topic.read_queue_nums == 7
        assert "%RETRY%Beating" in broker.topics
        assert {"CG", "Beating"} <= {config.group_name for config in broker.groups.configs()}
        assert broker.offsets.query("CG", "T", 6) == 4
        assert broker.store.max_phy_offset() == store_at
        messages = pulled(await client.ask(pull("T", queue_id=6)))
        assert [message.body for message in messages] == [b"%d" % number for number in range(10)]
        assert sent(await client.ask(send("T", queue_id=6))).queue_offset == 10
        assert (tmp_path / "store" / "abort").exists()
    assert fastjson.loads((tmp_path / "store" / "config" / "consumerOffset.json").read_bytes())


async def test_a_failed_write_of_a_file_does_not_prevent_the_store_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = RunningBroker(broker_configuration(tmp_path))
    await broker.start()
    async with broker.client() as client:
        sent(await client.ask(send("T")))
        await until((tmp_path / "store" / "config" / "topics.json").exists)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rmq_remoting.daemon.config_file.replace_file", refuse)
        broker.offsets.commit("CG", "T", 0, 1)
        broker.groups.find("CG")
        with pytest.raises(OSError, match="No space left"):
            await broker.broker.stop()
    await broker.supervisor.stop()

    assert not (tmp_path / "store" / "abort").exists()


async def test_a_store_that_could_not_be_opened_is_left_untouched(tmp_path: Path) -> None:
    """The mark of the crash before stays: the next start has to know of it."""
    async with running_broker(tmp_path):
        pass
    abort = tmp_path / "store" / "abort"
    abort.write_text("1")
    broker = RunningBroker(broker_configuration(tmp_path))
    await broker.build()
    queues = tmp_path / "store" / "rmq_queues.json"
    with unreadable_file(queues), pytest.raises(StartError, match="Input/output error"):
        await broker.start()
    await broker.stop()

    assert abort.exists()


async def test_a_stop_during_recovery_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        sent(await client.ask(send("T")))
    broker = RunningBroker(broker_configuration(tmp_path))
    await broker.build()
    store = broker.store
    opening, go_on = threading.Event(), threading.Event()
    plain_open = store.open

    def slow_open() -> None:
        opening.set()
        assert go_on.wait(10)
        plain_open()

    monkeypatch.setattr(store, "open", slow_open)
    starting = asyncio.ensure_future(broker.start())
    await asyncio.to_thread(opening.wait)
    starting.cancel()
    stopping = asyncio.ensure_future(broker.stop())
    await loop_passes()
    assert not stopping.done()
    go_on.set()
    await stopping

    assert not (tmp_path / "store" / "abort").exists()
    async with running_broker(tmp_path) as broker:
        assert broker.store.max_offset("T", 0) == 1


async def test_a_request_that_waits_for_a_write_is_answered_before_the_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        plain_save = broker.services.topics.file.save

        async def slow_save() -> None:
            await asyncio.sleep(0.2)
            await plain_save()

        monkeypatch.setattr(broker.services.topics.file, "save", slow_save)
        command = create_topic("T")
        client.send(command)
        await until(lambda: "T" in broker.topics)
        stopping = asyncio.ensure_future(broker.broker.stop())

        answers = await client.until_closed()
        await stopping

    assert [(answer.opaque, answer.code) for answer in answers] == [(command.opaque, ResponseCode.SUCCESS)]


async def test_sigterm_during_sends_loses_no_acknowledged_message(tmp_path: Path) -> None:
    async with OwnBroker("", home=tmp_path) as broker:
        async with Load(broker.port, connections=4, topics=3) as load:
            await load.until_acknowledged(2000)
            await broker.stop()  # ends with exit code 0
        acknowledged: Acknowledged = load.acknowledged
        assert len(acknowledged) >= 2000
        assert not (broker.store_path / "abort").exists()

        await broker.start()
        stored = await read_all(broker.port, load.queues)

    acknowledged.check(stored)
