"""Clients of the gRPC port that send too much, read nothing, vanish, or make up what they send."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest

from rmq_proxy import clients as clients_module
from rmq_proxy.calls import Peers
from rmq_proxy.clients import ClientRegistry
from rmq_proxy.latencies import RpcLatencies
from rmq_proxy.network import metadata_log
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.service import NAME, Admission, streaming
from rmq_proxy.statuses import Refusal
from rmq_remoting.daemon import grpc_health
from rmq_remoting.daemon.http2_frames import HEADERS
from rmq_remoting.repeated_event import RepeatedEvent
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, grpc_client, message, resource
from tests.support.ports import LOOPBACK
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until

BODY = os.urandom(512 * 1024)
_METADATA = (("x-mq-client-id", "client-1"), ("x-mq-client-version", "5.0.7"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[GrpcClient]:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as connected:
        yield connected


# --- metadata ---


@pytest.mark.parametrize("size", [20_000, 200_000])
async def test_oversized_metadata_is_refused_and_the_proxy_serves_on(client: GrpcClient, size: int) -> None:
    client.further_metadata = [("x-mq-namespace", "n" * size)]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _heartbeat(client)
    assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
    client.further_metadata = []
    assert (await _heartbeat(client)).code == pb.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(("size", "is_served"), [(7_000, True), (8_200, False), (12_000, False)])
async def test_the_limit_of_metadata_is_no_matter_of_chance(
    client: GrpcClient, size: int, is_served: bool
) -> None:
    """All metadata count, and 32 bytes for each."""
    client.further_metadata = [("x-mq-namespace", "n" * size)]
    for _ in range(20):
        try:
            assert (await _heartbeat(client)).code == pb.UNRECOGNIZED_CLIENT_TYPE
            assert is_served
        except grpc.aio.AioRpcError as error:
            assert (error.code(), is_served) == (grpc.StatusCode.RESOURCE_EXHAUSTED, False)


async def test_metadata_that_is_no_text_does_not_fill_the_log(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """grpcio logs each value with a stack trace."""
    monkeypatch.setattr(metadata_log._LIMIT, "_event", RepeatedEvent(60.0))
    async with running_proxy(cluster.address) as proxy:

        def ask() -> None:
            with socket.create_connection((LOOPBACK, proxy.port), timeout=20) as connection:
                connection.sendall(grpc_health.request("test", "http", [(b"x-bad", b"\xff" * 100)]))
                frames = grpc_health.frames(connection, time.monotonic() + 20)
                assert any(kind == HEADERS for kind, _, _ in frames)

        for _ in range(3):
            await asyncio.to_thread(ask)
    lines = [record for record in caplog.records if record.name == "grpc._cython.cygrpc"]
    assert [(record.levelname, record.exc_info) for record in lines] == [("WARNING", None)]
    assert "not in UTF-8" in lines[0].getMessage()


async def _heartbeat(client: GrpcClient) -> pb.Status:
    answer = await client.call("Heartbeat", rpc.HeartbeatRequest())
    status: pb.Status = answer.status
    return status


async def test_an_oversized_request_is_refused(cluster: RunningCluster) -> None:
    async with (
        running_proxy(cluster.address, grpcMaxInboundMessageSize=100_000) as proxy,
        grpc_client(proxy.address) as client,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.send(message("T", BODY))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.send(message("T"))).status.code == pb.OK


async def test_bytes_that_are_no_request_end_the_call_alone(client: GrpcClient) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.channel.unary_unary(f"/{NAME}/SendMessage")(b"\xff" * 100, metadata=_METADATA)
    assert refused.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    assert (await client.send(message("T"))).status.code == pb.OK


# --- clients and their settings ---


async def test_settings_that_fill_the_memory_end_the_stream(client: GrpcClient) -> None:
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.SetInParent()
    settings.user_agent.hostname = "h" * 300_000
    stream = client.channel.stream_stream(
        f"/{NAME}/Telemetry", request_serializer=rpc.TelemetryCommand.SerializeToString
    )(metadata=_METADATA)
    await stream.write(rpc.TelemetryCommand(settings=settings))
    assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_there_is_a_limit_of_clients() -> None:
    registry = ClientRegistry(10, clock=lambda: 0.0, most=2)
    for name in ("a", "b", "a"):
        registry.report(name, pb.Settings(client_type=pb.PRODUCER))
    with pytest.raises(Refusal, match="has 2 clients, which is its limit") as refused:
        registry.report("c", pb.Settings(client_type=pb.PRODUCER))
    assert refused.value.code == pb.TOO_MANY_REQUESTS
    registry.leave("a")
    registry.report("c", pb.Settings(client_type=pb.PRODUCER))


async def test_receives_of_ever_new_clients_are_bounded(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientRegistry.__init__, "__defaults__", (lambda: 0.0, 2))
    async with running_proxy(cluster.address) as proxy:
        codes = []
        for number in range(3):
            async with grpc_client(proxy.address, f"client-{number}") as client:
                status, _ = await client.receive("G", "T")
                codes.append(status.code)
        assert codes == [pb.MESSAGE_NOT_FOUND, pb.MESSAGE_NOT_FOUND, pb.TOO_MANY_REQUESTS]


async def test_a_client_without_heartbeats_loses_its_stream(cluster: RunningCluster) -> None:
    """The host may have vanished, without an end of its connection."""
    times = {"channelExpiredTimeout": 50, "renewSchedulePeriodMillis": 20}
    async with running_proxy(cluster.address, **times) as proxy, grpc_client(proxy.address) as client:
        await client.produce("T")
        async with asyncio.timeout(20):
            assert await client.status_of_stream() is grpc.StatusCode.OK
        assert (await _heartbeat(client)).code == pb.UNRECOGNIZED_CLIENT_TYPE


# --- streams that are not read ---


async def test_a_stream_that_is_not_read_gives_up_its_messages() -> None:
    """gRPC buffers some megabytes of a stream, so the context of this test takes nothing."""
    given_up: list[str] = []

    async def responses(call: object, request: object) -> AsyncGenerator[rpc.ReceiveMessageResponse, None]:
        try:
            yield rpc.ReceiveMessageResponse()
        finally:
            given_up.append("messages")

    class Stalled:
        code: grpc.StatusCode | None = None

        async def write(self, response: object) -> None:
            await asyncio.get_running_loop().create_future()

        async def abort(self, code: grpc.StatusCode, text: str) -> None:
            self.code = code

        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return _METADATA

        def time_remaining(self) -> None:
            return None

        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

    context = Stalled()
    admission = Admission(Peers())
    handle = streaming(
        "ReceiveMessage", responses, rpc.ReceiveMessageResponse, RpcLatencies(), admission, write_seconds=0.05
    )
    await handle(rpc.ReceiveMessageRequest(), context)
    assert (given_up, context.code) == (["messages"], grpc.StatusCode.ABORTED)


async def test_a_receive_that_is_refused_before_its_method_is_counted() -> None:
    """Metrics tell of users without a signature, too."""

    async def never(call: object, request: object) -> AsyncGenerator[rpc.ReceiveMessageResponse, None]:
        raise AssertionError("the call was admitted")
        yield rpc.ReceiveMessageResponse()

    class Closed(Admission):
        async def admitted(self, context: Any, request: Any, slot: Any) -> Any:
            raise Refusal(pb.UNAUTHORIZED, "who?")

    class Context:
        codes: ClassVar[list[int]] = []

        async def write(self, response: rpc.ReceiveMessageResponse) -> None:
            self.codes.append(response.status.code)

    latencies = RpcLatencies()
    handle = streaming("ReceiveMessage", never, rpc.ReceiveMessageResponse, latencies, Closed(Peers()))
    await handle(rpc.ReceiveMessageRequest(), Context())
    assert Context.codes == [pb.UNAUTHORIZED]
    assert [labels[:2] for labels in latencies.series()] == [("receive_message", "unauthorized")]


async def test_an_unread_telemetry_stream_ends(
    client: GrpcClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rmq.proxy")
    monkeypatch.setattr(clients_module, "_WRITE_SECONDS", 0.3)
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.SetInParent()
    settings.user_agent.hostname = "h" * 200_000
    command = rpc.TelemetryCommand(settings=settings)
    stream = client.channel.stream_stream(
        f"/{NAME}/Telemetry", request_serializer=rpc.TelemetryCommand.SerializeToString
    )(metadata=_METADATA)

    async def write() -> None:
        while True:  # the proxy answers each command
            await stream.write(command)

    writing = asyncio.ensure_future(write())
    await until(lambda: "telemetry stream ended" in caplog.text, 60)
    writing.cancel()
    stream.cancel()
    await asyncio.wait([writing])


# --- receipts ---


async def _received(client: GrpcClient) -> pb.Message:
    await client.consume("G", "T")
    await client.receive("G", "T")
    await client.send(message("T"))
    (received,) = await client.receive_all("G", "T", 1)
    return received


FORGED = ("", "x", "0 0 0 0 0 b 0 0 0", "-1 " * 9, "9" * 400, "0 1 1 0 0 nowhere 0 0 0", "1 2 3 4 5 6 7 8 9")


async def test_a_forged_receipt_is_refused_by_each_method(client: GrpcClient) -> None:
    group, topic = resource("G"), resource("T")
    for handle in FORGED:
        acknowledge = rpc.AckMessageRequest(group=group, topic=topic)
        acknowledge.entries.add(message_id="id", receipt_handle=handle)
        answer = await client.call("AckMessage", acknowledge)
        assert [entry.status.code for entry in answer.entries] == [pb.INVALID_RECEIPT_HANDLE], handle
        fields: dict[str, Any] = {
            "group": group,
            "topic": topic,
            "receipt_handle": handle,
            "message_id": "id",
        }
        for request in (
            rpc.ChangeInvisibleDurationRequest(**fields),
            rpc.ForwardMessageToDeadLetterQueueRequest(**fields),
        ):
            name = type(request).__name__.removesuffix("Request")
            answer = await client.call(name, request)
            assert answer.status.code == pb.INVALID_RECEIPT_HANDLE, (name, handle)


async def test_a_receipt_acknowledges_nothing_of_another_group(client: GrpcClient) -> None:
    received = await _received(client)
    foreign = await client.acknowledge("H", "T", received)
    assert foreign.entries[0].status.code in (pb.OK, pb.INTERNAL_SERVER_ERROR)
    own = await client.acknowledge("G", "T", received)
    assert own.entries[0].status.code == pb.OK


async def test_a_receipt_with_another_offset_acknowledges_nothing_of_its_own(client: GrpcClient) -> None:
    received = await _received(client)
    parts = received.system_properties.receipt_handle.split(" ")
    parts[7] = "999999"
    forged = pb.Message()
    forged.CopyFrom(received)
    forged.system_properties.receipt_handle = " ".join(parts)
    answer = await client.acknowledge("G", "T", forged)
    assert answer.entries[0].status.code == pb.INTERNAL_SERVER_ERROR
    own = await client.acknowledge("G", "T", received)
    assert own.entries[0].status.code == pb.OK


# --- many clients ---


async def test_hundreds_of_clients_are_served_at_once(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:

        async def one(number: int) -> int:
            async with grpc_client(proxy.address, f"client-{number}") as client:
                await client.produce("T")
                sent = await client.send(message("T", b"%d" % number, message_id=f"{number:04}"))
                return int(sent.status.code)

        codes = await asyncio.gather(*(one(number) for number in range(200)))
    assert codes == [pb.OK] * 200
    assert len(cluster.broker.messages("T")) == 200
