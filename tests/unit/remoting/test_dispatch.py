"""The dispatcher: its table, responses, refusals and failures, on connections without a network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import BodyError, CommandError, HeaderError
from rmq_remoting.framing import MAX_FRAME_BYTES, encode_frame
from rmq_remoting.tiers import PoolTier
from tests.support.dispatching import SECRET, Clock, echo, inline, raising, request, returning
from tests.support.frames import binary_header, raw_frame
from tests.support.peers import Peer
from tests.support.rows import each_row
from tests.support.waiting import loop_passes, until


def test_the_table_is_listed_by_code() -> None:
    dispatcher, first, second = Dispatcher(), inline("b"), inline("a")
    dispatcher.register([RequestCode.PULL_MESSAGE, 10], echo, first)
    dispatcher.register([99_999], echo, second)

    assert [(row.code, row.name, row.tier) for row in dispatcher.registrations()] == [
        (10, "SEND_MESSAGE", first),
        (11, "PULL_MESSAGE", first),
        (99_999, "99999", second),
    ]
    assert dispatcher.tiers() == [second, first]
    third = PoolTier("c", threads=1, capacity=1, max_wait_ms=1000)
    dispatcher.add_tier(third)
    assert dispatcher.tiers() == [second, first, third]
    dispatcher.stop()
    with pytest.raises(CommandError, match="tier c is shutting down"):
        third.submit(lambda: None)


def test_a_code_has_one_processor() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    with pytest.raises(ValueError, match="request code 10 is registered already"):
        dispatcher.register([10], echo, inline())


async def test_a_code_cut_to_16_bits_by_the_java_client_is_known() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([RequestCode.POP_MESSAGE], echo, inline())
    peer = Peer(dispatcher)
    cut, whole = request(3442, binary=True, a="b"), request(RequestCode.POP_MESSAGE, a="c")

    peer.send(cut, whole)

    assert peer.answers[cut.opaque].ext_fields == {"a": "b"}
    assert peer.answers[whole.opaque].ext_fields == {"a": "c"}
    assert [(row.code, row.answered) for row in dispatcher.registrations()] == [(200050, {0: 2})]


async def test_a_processor_returns_a_response_or_an_encoded_frame() -> None:
    dispatcher = Dispatcher()
    first, second = request(10, a="b"), request(11)
    dispatcher.register([10], echo, inline())
    dispatcher.register([11], returning(encode_frame(second.response(7))), inline())
    peer = Peer(dispatcher)

    peer.send(first, second)

    assert peer.answers[first.opaque].ext_fields == {"a": "b"}
    assert peer.answers[second.opaque].code == 7
    assert {row.code: row.answered for row in dispatcher.registrations()} == {10: {0: 1}, 11: {0: 1}}


async def test_each_response_has_the_serialization_of_its_request() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10, 200_050], echo, inline())
    peer = Peer(dispatcher)
    requests = [
        request(10, binary=True),
        request(10),
        request(200_050, binary=True),
        request(10, binary=True),
    ]

    peer.send(*requests)

    assert [(answer.opaque, answer.serialization) for answer in peer.received] == [
        (requests[0].opaque, Serialization.BINARY),
        (requests[1].opaque, Serialization.JSON),
        (requests[2].opaque, Serialization.JSON),
        (requests[3].opaque, Serialization.BINARY),
    ]


@pytest.mark.parametrize("binary", [False, True])
async def test_an_unknown_code_is_refused_and_the_connection_lives(binary: bool) -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)
    unknown, known = request(4711, binary=binary), request(10)

    peer.send(unknown, request(4711, oneway=True), known)

    assert peer.answers[unknown.opaque].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert peer.answers[unknown.opaque].remark == "request code 4711 is not supported by this server"
    assert peer.answers[known.opaque].code == 0
    assert len(peer.answers) == 2
    assert dispatcher.unsupported_requests == 2
    assert not peer.connection.is_closed


async def test_a_processor_may_return_no_response() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], returning(None), inline())
    peer = Peer(dispatcher)

    peer.send(request())

    await loop_passes()
    assert peer.received == []
    assert next(dispatcher.registrations()).answered == {-1: 1}


@each_row("code", [0, 10, 11, 4711])
@each_row("place", ["first", "last", "alone"])
async def test_a_late_response_is_not_run_as_a_request(code: int, place: str) -> None:
    # A response's code may be the number of a registered request (10 is FLUSH_DISK_TIMEOUT and SEND_MESSAGE).
    dispatcher = Dispatcher()
    dispatcher.register([10, 11], echo, inline())
    peer = Peer(dispatcher)
    late, asked = request().response(code), request()

    peer.send(*{"first": [late, asked], "last": [asked, late], "alone": [late]}[place])

    await loop_passes()
    assert list(peer.answers) == ([] if place == "alone" else [asked.opaque])
    assert dispatcher.unsupported_requests == 0


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (CommandError(17, "no such topic"), 17, "no such topic"),
        (HeaderError("XHeader: a is missing"), 1, "SEND_MESSAGE: XHeader: a is missing"),
        (BodyError("XBody: b is missing"), 1, "SEND_MESSAGE: XBody: b is missing"),
    ],
)
@pytest.mark.parametrize("tier", ["inline", "pool", "deferred"])
async def test_a_refusal_is_answered_and_not_logged(
    error: Exception,
    code: int,
    remark: str,
    tier: str,
    pools: Callable[..., PoolTier],
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer, asked = peer_of_tier(tier, error, pools), request()

    peer.send(asked)

    await until(lambda: peer.answers)
    assert (peer.answers[asked.opaque].code, peer.answers[asked.opaque].remark) == (code, remark)
    assert not caplog.records


@pytest.mark.parametrize("tier", ["inline", "pool", "deferred"])
@pytest.mark.parametrize(
    ("error", "detail"),
    [(KeyError(SECRET), "KeyError"), (OSError(28, "No space left"), "[Errno 28] No space left")],
)
async def test_a_failure_is_answered_without_details_and_logged_with_its_traceback(
    error: Exception,
    detail: str,
    tier: str,
    pools: Callable[..., PoolTier],
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer, asked = peer_of_tier(tier, error, pools), request()

    peer.send(asked, request(oneway=True), last := request(11))

    await until(lambda: len(peer.answers) == 2)
    answer = peer.answers[asked.opaque]
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"SEND_MESSAGE failed: {detail}; the server's log has the details"
    assert peer.answers[last.opaque].code == 0
    await until(lambda: len(caplog.records) == 2)
    for record in caplog.records:
        assert (record.name, record.levelno) == ("rmq_remoting.dispatch", logging.ERROR)
        assert record.message == "processor failed request=SEND_MESSAGE"
        assert record.exc_info is not None
        assert record.exc_info[1] is error
    assert not peer.connection.is_closed


def peer_of_tier(tier: str, error: Exception, pools: Callable[..., PoolTier]) -> Peer:
    """Return a peer of a dispatcher whose code 10 fails with the error and whose code 11 works."""
    dispatcher = Dispatcher()
    if tier == "deferred":
        dispatcher.register([10], lambda connection, request: failed_future(error), inline())
    else:
        dispatcher.register([10], raising(error), pools() if tier == "pool" else inline())
    dispatcher.register([11], echo, inline("other"))
    return Peer(dispatcher)


def failed_future(error: Exception) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


@pytest.mark.parametrize("answer", ["text", 5, bytearray(b"x"), object()])
async def test_a_result_of_another_type_is_a_failure(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher, asked, last = Dispatcher(), request(), request(11)
    dispatcher.register([10], returning(answer), inline())
    dispatcher.register([11], echo, inline())
    peer = Peer(dispatcher)

    peer.send(asked, last)

    assert peer.answers[asked.opaque].code == ResponseCode.SYSTEM_ERROR
    assert peer.answers[last.opaque].code == 0
    assert len(caplog.records) == 1
    assert {row.code: row.answered for row in dispatcher.registrations()} == {10: {1: 1}, 11: {0: 1}}


async def test_a_response_too_large_for_a_frame_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher, asked = Dispatcher(), request()
    dispatcher.register([10], returning(asked.response(0, body=bytes(MAX_FRAME_BYTES))), inline())
    peer = Peer(dispatcher)

    peer.send(asked)

    assert peer.answers[asked.opaque].code == ResponseCode.SYSTEM_ERROR
    assert "over the limit" in caplog.text


@pytest.mark.parametrize("tier", ["inline", "pool", "deferred"])
async def test_a_request_with_damaged_fields_ends_the_connection(
    tier: str, pools: Callable[..., PoolTier], caplog: pytest.LogCaptureFixture
) -> None:
    async def answer_later(asked: RemotingCommand) -> RemotingCommand:
        return asked.response(0, ext_fields=asked.ext_fields)

    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    if tier == "deferred":
        dispatcher.register(
            [11], lambda connection, asked: asyncio.ensure_future(answer_later(asked)), inline("deferred")
        )
    else:
        dispatcher.register([11], echo, pools() if tier == "pool" else inline("other"))
    peer, before = Peer(dispatcher), request()
    damaged = raw_frame(binary_header(code=11, ext=b"\xff\xff\xff"), serialization=1)

    peer.send_bytes(encode_frame(before) + damaged)

    await until(lambda: peer.connection.is_closed)
    assert list(peer.answers) == [before.opaque]
    assert peer.statistics.protocol_errors == 1
    assert [record.name for record in caplog.records] == ["rmq_remoting.connection"]


async def test_no_request_after_a_damaged_one_runs() -> None:
    seen = []

    def processor(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        seen.append(dict(asked.ext_fields))
        return asked.response(0)

    dispatcher = Dispatcher()
    dispatcher.register([10], processor, inline())
    peer = Peer(dispatcher)
    damaged = raw_frame(binary_header(code=10, ext=b"\x00\x01\xff\x00\x00\x00\x01a"), serialization=1)

    peer.send_bytes(encode_frame(request(a="1")) + damaged + encode_frame(request(a="2")))

    assert seen == [{"a": "1"}]
    assert len(peer.answers) == 1
    assert peer.connection.is_closed


async def test_oneway_requests_never_get_a_response(
    pools: Callable[..., PoolTier], caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher, ran = Dispatcher(), []
    full = inline("full", capacity=0)

    def note(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        ran.append(asked.code)
        return asked.response(0)

    dispatcher.register([10], note, inline())
    dispatcher.register([11], raising(ValueError()), inline())
    dispatcher.register([12], raising(CommandError(2, "no")), inline())
    dispatcher.register([13], echo, full)
    dispatcher.register([14], note, pools())
    dispatcher.register([15], lambda connection, asked: failed_future(ValueError()), inline())
    dispatcher.register([16], returning(encode_frame(request().response(0))), inline())
    peer = Peer(dispatcher)

    peer.send(*[request(code, oneway=True) for code in (10, 11, 12, 13, 14, 15, 16, 4711)])

    rows = {row.code: row for row in dispatcher.registrations()}
    await until(lambda: all(rows[code].answered == {-1: 1} for code in range(10, 17)))
    await loop_passes()
    assert sorted(ran) == [10, 14]
    assert peer.received == []
    assert full.statistics.rejected_full == 1


async def test_a_long_body_is_refused() -> None:
    dispatcher, tier = Dispatcher(Clock()), inline()
    dispatcher.register([10], echo, tier, max_body_bytes=3)
    peer = Peer(dispatcher)
    requests = [request(10), request(10)]
    requests[0].body, requests[1].body = b"123", b"1234"

    dispatcher.dispatch_all(peer.connection, requests, 0.0, 0.0)
    await loop_passes()

    fitting, refusal = (peer.answers[sent.opaque] for sent in requests)
    assert (fitting.code, fitting.body) == (0, b"123")
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert refusal.remark == "SEND_MESSAGE: a body of 4 bytes is over the limit of 3: split the request"
    assert tier.statistics.accepted == 1
