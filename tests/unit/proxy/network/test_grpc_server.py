"""The gRPC server on gRPC's core, called by gRPC's own client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from grpc._cython import cygrpc

from rmq_proxy.event_failures import EventFailures
from rmq_proxy.network import grpc_server
from rmq_proxy.network.grpc_server import GrpcServer, new_server
from tests.support.failing_queue import FailingQueue, failing_queues
from tests.support.waiting import loop_passes, until, until_answer

_SERVICE = "test.Service"
_CALLS = 200
_ACCEPTED_AT_ONCE = 4
_UNANSWERED = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
_STOPPED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


class _Methods:
    """The methods of the service. Requests and responses are bytes."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.held = 0
        self.cancelled = 0
        self.context: Any = None

    async def echo(self, request: bytes, context: Any) -> bytes:
        self.context = context
        return request

    async def hold(self, request: bytes, context: Any) -> bytes:
        self.held += 1
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return request

    async def fail(self, request: bytes, context: Any) -> bytes:
        raise ValueError("no answer")

    async def abort(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "not here")
        return b"never sent"

    async def write(self, request: bytes, context: Any) -> None:
        for number in range(3):
            await context.write(request + b"%d" % number)

    async def write_forever(self, request: bytes, context: Any) -> None:
        try:
            while True:
                await context.write(bytes(100_000))
        finally:
            self.cancelled += 1

    async def generate(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request.upper()

    def handler(self) -> Any:
        """Return the handler of all of them."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            _SERVICE,
            {
                "Echo": unary(self.echo, _decode, _encode),
                "Hold": unary(self.hold, _decode, _encode),
                "Fail": unary(self.fail, _decode, _encode),
                "Abort": unary(self.abort, _decode, _encode),
                "Write": stream(self.write, _decode, _encode),
                "WriteForever": stream(self.write_forever, _decode, _encode),
                "Generate": grpc.stream_stream_rpc_method_handler(self.generate, _decode, _encode),
            },
        )


def _decode(data: bytes) -> bytes:
    if data == b"bad":
        raise ValueError("no request")
    return data


def _encode(response: bytes) -> bytes:
    return response


@pytest.fixture
async def methods() -> _Methods:
    return _Methods()


@pytest.fixture
async def server(methods: _Methods) -> AsyncIterator[GrpcServer]:
    created = GrpcServer()
    created.add_generic_rpc_handlers((methods.handler(),))
    yield created
    await created.stop(0)


@pytest.fixture
async def channel(server: GrpcServer) -> AsyncIterator[grpc.aio.Channel]:
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as connected:
        yield connected


def _unary(channel: grpc.aio.Channel, method: str) -> Any:
    return channel.unary_unary(f"/{_SERVICE}/{method}")


async def _status(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), str(failed.value.details())


# --- answers ---


async def test_more_calls_at_once_than_are_accepted_at_once_are_answered(channel: grpc.aio.Channel) -> None:
    echo = _unary(channel, "Echo")
    requests = [b"%d" % number for number in range(_CALLS)]
    assert await asyncio.gather(*(echo(request) for request in requests)) == requests


async def test_a_stream_is_written(channel: grpc.aio.Channel) -> None:
    stream = channel.unary_stream(f"/{_SERVICE}/Write")
    assert [response async for response in stream(b"a")] == [b"a0", b"a1", b"a2"]


async def test_a_stream_of_requests_is_answered_one_by_one(channel: grpc.aio.Channel) -> None:
    stream = channel.stream_stream(f"/{_SERVICE}/Generate")()
    for word in (b"one", b"two"):
        await stream.write(word)
        assert await stream.read() == word.upper()
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_context_has_metadata_peer_and_deadline(channel: grpc.aio.Channel, methods: _Methods) -> None:
    await _unary(channel, "Echo")(b"", metadata=(("key", "value"),), timeout=20)
    assert dict(methods.context.invocation_metadata())["key"] == "value"
    assert methods.context.peer().startswith("ipv4:127.0.0.1:")
    assert 0 < methods.context.time_remaining() < 21  # the library rounds up
    await _unary(channel, "Echo")(b"")
    assert methods.context.time_remaining() is None


# --- failures ---


async def test_an_unknown_method_is_unimplemented(channel: grpc.aio.Channel) -> None:
    code, _ = await _status(_unary(channel, "Other")(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_method_that_fails_ends_its_call_alone(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    assert await _status(_unary(channel, "Fail")(b"")) == (
        grpc.StatusCode.UNKNOWN,
        "Unexpected ValueError: no answer",
    )
    assert "gRPC call failed" in caplog.text
    assert await _unary(channel, "Echo")(b"a") == b"a"


async def test_a_method_aborts_its_call(channel: grpc.aio.Channel) -> None:
    assert await _status(_unary(channel, "Abort")(b"")) == (grpc.StatusCode.NOT_FOUND, "not here")


async def test_bytes_that_are_no_request_end_the_call_without_a_log_line(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    code, details = await _status(_unary(channel, "Echo")(b"bad"))
    assert (code, details) == (grpc.StatusCode.INTERNAL, "the request cannot be decoded: no request")
    stream = channel.stream_stream(f"/{_SERVICE}/Generate")()
    await stream.write(b"bad")
    assert await stream.code() is grpc.StatusCode.INTERNAL
    assert not [record for record in caplog.records if record.name == "rmq.proxy"]


async def test_a_method_is_cancelled_when_its_client_has_gone(
    channel: grpc.aio.Channel, methods: _Methods
) -> None:
    call = _unary(channel, "Hold")(b"")
    await until(lambda: methods.held == 1)
    call.cancel()
    await until(lambda: methods.cancelled == 1)
    assert await _unary(channel, "Echo")(b"a") == b"a"


async def test_a_write_waits_for_the_client_and_ends_with_it(
    channel: grpc.aio.Channel, methods: _Methods
) -> None:
    stream = channel.unary_stream(f"/{_SERVICE}/WriteForever")(b"")
    assert len(await stream.read()) == 100_000
    stream.cancel()
    await until(lambda: methods.cancelled == 1)


# --- the loop and the thread ---


async def test_the_loop_rests_while_a_call_is_held(
    failing: GrpcServer, queue: FailingQueue, methods: _Methods
) -> None:
    port = failing.add_insecure_port("127.0.0.1:0")
    await failing.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = _unary(channel, "Hold")(b"a")
        await until(lambda: methods.held == 1)

        async def rests() -> bool:
            polls = queue.polls
            await loop_passes(50)
            return queue.polls == polls

        await until_answer(rests)
        methods.answer.set()
        assert await call == b"a"


# --- a core that fails ---


@pytest.fixture
def queues() -> Iterator[list[FailingQueue]]:
    with failing_queues() as created:
        yield created


@pytest.fixture
async def failing(methods: _Methods, queues: list[FailingQueue]) -> AsyncIterator[GrpcServer]:
    created = GrpcServer((), EventFailures())
    created.add_generic_rpc_handlers((methods.handler(),))
    yield created
    async with asyncio.timeout(20):
        await created.stop(0)


@pytest.fixture
def queue(failing: GrpcServer, queues: list[FailingQueue]) -> FailingQueue:
    """The queue of the failing server."""
    (created,) = queues
    return created


async def test_calls_are_accepted_after_more_lost_events_than_calls_at_once(
    failing: GrpcServer, queue: FailingQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_ACCEPTED_AT_ONCE", _ACCEPTED_AT_ONCE)
    port = failing.add_insecure_port("127.0.0.1:0")
    await failing.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo = _unary(channel, "Echo")
        for _ in range(_ACCEPTED_AT_ONCE + 2):
            # The event of the call's arrival is lost.
            queue.lose = 1
            code, _ = await _status(echo(b"", timeout=0.2))
            assert code in _UNANSWERED
        assert await asyncio.gather(*(echo(b"a") for _ in range(_CALLS))) == [b"a"] * _CALLS


# gRPC's core takes some 11 s to end the held call.
@pytest.mark.long
async def test_a_core_without_events_ends_calls_and_refuses_others(
    failing: GrpcServer, queue: FailingQueue, methods: _Methods
) -> None:
    port = failing.add_insecure_port("127.0.0.1:0")
    await failing.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        held = asyncio.ensure_future(_status(_unary(channel, "Hold")(b"")))
        await until(lambda: methods.held == 1)
        queue.is_broken = True
        # The next event shows it.
        code, _ = await _status(_unary(channel, "Echo")(b"", timeout=20))
        assert code in _STOPPED
        assert (await held)[0] in _STOPPED
        await until(lambda: methods.cancelled == 1)
    with pytest.raises(OSError, match="refused"):
        await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        await failing.stop(60)


async def test_a_stop_ends_although_its_event_was_lost(
    failing: GrpcServer,
    queue: FailingQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(grpc_server, "_CANCEL_SECONDS", 0.1)
    failing.add_insecure_port("127.0.0.1:0")
    await failing.start()
    # Those of accepted calls, and that of the shutdown.
    queue.lose = 1000
    async with asyncio.timeout(20):
        await failing.stop(0)
    assert "gRPC server not shut down" in caplog.text


# --- start and stop ---


async def test_a_stop_waits_for_calls_and_accepts_no_others(
    server: GrpcServer, channel: grpc.aio.Channel, methods: _Methods
) -> None:
    call = _unary(channel, "Hold")(b"a")
    await until(lambda: methods.held == 1)
    stopping = asyncio.ensure_future(server.stop(60))
    code, _ = await _status(_unary(channel, "Echo")(b""))
    assert code in _STOPPED
    assert not stopping.done()
    methods.answer.set()
    assert await call == b"a"
    async with asyncio.timeout(20):
        await stopping


async def test_a_stop_cancels_calls_that_last_too_long(
    server: GrpcServer, channel: grpc.aio.Channel, methods: _Methods
) -> None:
    calls = [asyncio.ensure_future(_status(_unary(channel, "Hold")(b""))) for _ in range(3)]
    await until(lambda: methods.held == 3)
    await server.stop(0)
    assert methods.cancelled == 3
    assert {code for code, _ in await asyncio.gather(*calls)} <= _STOPPED


async def test_a_server_stops_before_its_start(server: GrpcServer) -> None:
    await server.stop(0)


async def test_a_taken_port_is_refused(server: GrpcServer) -> None:
    other = GrpcServer((("grpc.so_reuseport", 0),))
    port = other.add_insecure_port("127.0.0.1:0")
    with pytest.raises(RuntimeError, match=f"127.0.0.1:{port}"):
        GrpcServer((("grpc.so_reuseport", 0),)).add_insecure_port(f"127.0.0.1:{port}")


async def test_another_core_of_grpcio_leads_to_its_own_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, methods: _Methods
) -> None:
    assert isinstance(new_server(()), GrpcServer)
    monkeypatch.delattr(cygrpc, "ReceiveMessageOperation")
    with caplog.at_level(logging.WARNING):
        server = new_server(())
    assert not isinstance(server, GrpcServer)
    assert "ReceiveMessageOperation" in caplog.text
    monkeypatch.undo()
    server.add_generic_rpc_handlers((methods.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await _unary(channel, "Echo")(b"a") == b"a"
    await server.stop(0)
