"""The dispatcher: tiers, refusals and responses, with a virtual clock and connections without a network."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rmq_remoting.answers import Answer, HeldAnswer, Result
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher, Processor
from rmq_remoting.errors import BodyError, CommandError, HeaderDecodeError, HeaderError
from rmq_remoting.framing import MAX_FRAME_BYTES, encode_frame
from rmq_remoting.tiers import InlineTier, PoolTier
from tests.support.frames import binary_header, raw_frame
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until

SECRET = "a detail that must not leave the server"


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.seconds = 5000.0

    def __call__(self) -> float:
        return self.seconds


class Gate:
    """A processor that blocks its thread until the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = 0

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.entered += 1
        assert self.opened.wait(10)
        return request.response(0)


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, ext_fields=dict(request.ext_fields), body=request.body)


def raising(error: BaseException) -> Processor:
    def processor(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        raise error

    return processor


def returning(answer: Any) -> Processor:
    return lambda connection, request: answer


def inline(name: str = "inline", capacity: int = 100, max_wait_ms: int = 200) -> InlineTier:
    return InlineTier(name, capacity=capacity, max_wait_ms=max_wait_ms)


@pytest.fixture
def pools() -> Iterator[Callable[..., PoolTier]]:
    """Create pools, and stop them after the test."""
    made: list[PoolTier] = []

    def make(name: str = "pool", threads: int = 1, capacity: int = 100, max_wait_ms: int = 5000) -> PoolTier:
        made.append(PoolTier(name, threads=threads, capacity=capacity, max_wait_ms=max_wait_ms))
        return made[-1]

    yield make
    for pool in made:
        pool.stop()


def request(code: int = 10, *, oneway: bool = False, binary: bool = False, **fields: str) -> RemotingCommand:
    serialization = Serialization.BINARY if binary else Serialization.JSON
    return RemotingCommand.request(code, fields, oneway=oneway, serialization=serialization)


# --- the table ---


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


# --- responses ---


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


async def test_responses_of_one_turn_leave_in_one_write() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(16)])
    assert len(peer.transport.writes) == 1
    peer.send(request())

    await loop_passes()
    assert len(peer.transport.writes) == 2
    assert len(peer.answers) == 17


async def test_a_long_read_takes_turns_with_other_connections() -> None:
    served: list[int] = []

    def serve(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        served.append(asked.opaque)
        return asked.response(0)

    dispatcher = Dispatcher()
    dispatcher.register([10], serve, inline())
    many, one = Peer(dispatcher), Peer(dispatcher)
    requests, single = [request() for _ in range(40)], request()

    many.send(*requests)
    assert len(many.transport.writes) == 1
    one.send(single)
    # A request that arrives meanwhile waits behind the earlier ones.
    requests.append(request())
    many.send(requests[-1])

    await until(lambda: len(many.answers) == 41)
    asked = [each.opaque for each in requests]
    assert served == [*asked[:16], single.opaque, *asked[16:]]
    assert len(many.transport.writes) == 4


async def test_reading_pauses_while_many_requests_wait_for_their_turn() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(300)])
    peer.send(request())
    assert not peer.transport.reading

    await until(lambda: len(peer.answers) == 301)
    assert peer.transport.reading


@pytest.mark.parametrize("closed_here", [False, True])
async def test_requests_received_before_the_peer_closed_run(closed_here: bool) -> None:
    served: list[int] = []
    dispatcher = Dispatcher()
    dispatcher.register([10], lambda connection, asked: served.append(asked.opaque), inline())
    peer, requests = Peer(dispatcher), [request() for _ in range(40)]

    peer.send(*requests)
    if closed_here:
        peer.connection.close()
    peer.transport.lose(None)

    await loop_passes()
    # The side that closes a connection drops the requests that wait.
    assert served == [each.opaque for each in requests[: 16 if closed_here else 40]]


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


@pytest.mark.parametrize("code", [0, 10, 11, 4711])
@pytest.mark.parametrize("place", ["first", "last", "alone"])
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


# --- processors that refuse or fail ---


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
        assert (record.name, record.levelno) == ("rmq.remoting.dispatch", logging.ERROR)
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
    assert [record.name for record in caplog.records] == ["rmq.remoting.connection"]


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


# --- one-way requests ---


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


# --- inline tiers and deferred responses ---


async def test_a_deferred_response_is_sent_when_its_future_is_done() -> None:
    tier, futures = inline(), list[asyncio.Future[Any]]()

    def hold(connection: Connection, asked: RemotingCommand) -> asyncio.Future[Any]:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    dispatcher = Dispatcher()
    dispatcher.register([11], hold, tier)
    dispatcher.register([10], echo, tier)
    peer, held, other, quick = Peer(dispatcher), request(11), request(11), request(10)

    peer.send(held, other, quick)
    assert list(peer.answers) == [quick.opaque]
    assert (tier.statistics.waiting, tier.statistics.max_waiting, tier.statistics.accepted) == (2, 2, 3)
    futures[1].set_result(other.response(19))
    futures[0].set_result(encode_frame(held.response(0)))

    await until(lambda: len(peer.answers) == 3)
    assert (peer.answers[other.opaque].code, peer.answers[held.opaque].code) == (19, 0)
    assert tier.statistics.waiting == 0
    # Responses of one iteration of the loop leave in one write.
    assert len(peer.transport.writes) == 2


async def test_deferred_responses_are_bounded() -> None:
    tier, clock = inline(capacity=2), Clock()
    futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
    free = iter(futures)
    dispatcher = Dispatcher(clock)
    dispatcher.register([11], lambda connection, asked: next(free), tier)
    peer = Peer(dispatcher)
    requests = [request(11) for _ in range(3)]

    dispatcher.dispatch_all(peer.connection, requests, clock.seconds, clock.seconds)
    await loop_passes()

    refusal = peer.answers[requests[2].opaque]
    assert refusal.code == ResponseCode.SYSTEM_BUSY
    assert refusal.remark == "[REJECTREQUEST]system busy: 2 requests of tier inline are under way already"
    assert tier.statistics.rejected_full == 1
    clock.seconds += 1.5
    for future, asked in zip(futures, requests, strict=False):
        future.set_result(asked.response(0))
    await loop_passes()
    assert len(peer.answers) == 3
    assert tier.statistics.waiting == 0
    assert tier.statistics.wait_seconds_total == pytest.approx(3.0)


async def test_held_requests_take_nothing_from_the_capacity() -> None:
    tier, held = inline(capacity=2), list[HeldAnswer]()

    def hold(connection: Connection, asked: RemotingCommand) -> HeldAnswer:
        held.append(HeldAnswer())
        return held[-1]

    dispatcher = Dispatcher()
    dispatcher.register([11], hold, tier)
    dispatcher.register([12], lambda *_: asyncio.get_running_loop().create_future(), tier)
    peer = Peer(dispatcher)
    peer.send(*[request(11) for _ in range(5)], request(12), request(12))

    assert peer.received == []
    assert (tier.statistics.held, tier.statistics.waiting, tier.statistics.rejected_full) == (5, 2, 0)
    refused = request(11)
    peer.send(refused)
    assert peer.answers[refused.opaque].code == ResponseCode.SYSTEM_BUSY
    for answer in held:
        answer.set_result(None)
    assert tier.statistics.held == 0 and not dispatcher.is_idle


async def test_a_server_with_a_held_request_is_not_idle() -> None:
    tier, answer = inline(), HeldAnswer()
    dispatcher = Dispatcher()
    dispatcher.register([11], lambda *_: answer, tier)
    Peer(dispatcher).send(request(11))
    assert not dispatcher.is_idle
    answer.cancel()
    assert dispatcher.is_idle and tier.statistics.held == 0


async def test_a_cancelled_deferred_response_is_answered_busy() -> None:
    future = asyncio.get_running_loop().create_future()
    tier = inline()
    dispatcher = Dispatcher()
    dispatcher.register([11], returning(future), tier)
    peer, asked = Peer(dispatcher), request(11)

    peer.send(asked)
    future.cancel()

    await until(lambda: peer.answers)
    assert peer.answers[asked.opaque].code == ResponseCode.SYSTEM_BUSY
    assert peer.answers[asked.opaque].remark == "PULL_MESSAGE was cancelled by the server; retry"
    assert tier.statistics.waiting == 0


async def test_a_deferred_response_to_a_closed_connection_is_dropped() -> None:
    future = asyncio.get_running_loop().create_future()
    dispatcher = Dispatcher()
    dispatcher.register([11], returning(future), inline())
    peer, asked = Peer(dispatcher), request(11)
    peer.send(asked)
    peer.transport.lose(None)
    await loop_passes()

    future.set_result(asked.response(0))

    await loop_passes()
    assert peer.received == []


async def test_time_behind_requests_of_the_same_connection_is_no_wait() -> None:
    clock, tier = Clock(), inline(max_wait_ms=200)
    clock.seconds = asyncio.get_running_loop().time()

    def slow(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        clock.seconds += 0.1
        return asked.response(0)

    dispatcher = Dispatcher(clock)
    dispatcher.register([10], slow, tier)
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(100)])

    await until(lambda: len(peer.answers) == 100)
    assert {answer.code for answer in peer.answers.values()} == {0}


async def test_a_request_that_waited_long_for_other_connections_is_late() -> None:
    clock, tier = Clock(), inline(max_wait_ms=200)
    clock.seconds = asyncio.get_running_loop().time()
    dispatcher = Dispatcher(clock)
    dispatcher.register([10], echo, tier)
    peer = Peer(dispatcher)
    requests = [request() for _ in range(40)]

    peer.send(*requests)
    clock.seconds += 0.35  # the turns of other connections

    await until(lambda: len(peer.answers) == 40)
    codes = [peer.answers[asked.opaque].code for asked in requests]
    assert codes == [0] * 16 + [ResponseCode.SYSTEM_BUSY] * 16 + [0] * 8
    assert tier.statistics.rejected_late == 16
    remark = peer.answers[requests[16].opaque].remark
    assert remark is not None
    assert remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy: waited 3")
    assert remark.endswith(" ms in tier inline, the limit is 200 ms; 0 requests wait there")


@pytest.mark.parametrize("how", ["it ends its side", "it breaks the protocol"])
async def test_requests_received_before_the_end_are_answered(how: str) -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    peer, requests = Peer(dispatcher), [request() for _ in range(100)]

    if how == "it ends its side":
        peer.send(*requests)
        peer.connection.eof_received()
    else:
        peer.send_bytes(b"".join(map(encode_frame, requests)) + b"\xff" * 64)

    assert set(peer.answers) == {each.opaque for each in requests}


async def test_a_connection_has_one_turn_per_iteration_of_the_loop() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(100)])
    for _ in range(5):
        peer.connection.pause_writing()
        peer.connection.resume_writing()
    await asyncio.sleep(0)

    assert len(peer.answers) == 32


async def test_the_limit_of_waiting_is_inclusive() -> None:
    clock, tier = Clock(), inline(max_wait_ms=200)
    dispatcher = Dispatcher(clock)
    dispatcher.register([10], echo, tier)
    peer, first, second = Peer(dispatcher), request(), request()

    dispatcher.dispatch_all(peer.connection, [first], clock.seconds, clock.seconds + 0.2)
    dispatcher.dispatch_all(peer.connection, [second], clock.seconds, clock.seconds + 0.21)

    await loop_passes()
    assert peer.answers[first.opaque].code == 0
    assert peer.answers[second.opaque].code == ResponseCode.SYSTEM_BUSY


async def test_requests_wait_while_the_peer_does_not_read() -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], lambda connection, asked: asked.response(0, body=bytes(1000)), inline())
    peer = Peer(dispatcher, ConnectionSettings(write_high_bytes=5000, write_low_bytes=100), taking=False)

    peer.send(*[request() for _ in range(100)])

    await loop_passes()
    assert len(peer.answers) == 16
    peer.transport.take()
    await until(lambda: len(peer.answers) > 16)


# --- pools ---


async def test_a_blocked_pool_delays_no_other_tier(pools: Callable[..., PoolTier]) -> None:
    gate, blocked = Gate(), pools("blocked", threads=2)
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, blocked)
    dispatcher.register([10], echo, inline())
    dispatcher.register([11], echo, pools("other"))
    dispatcher.register(
        [14], lambda connection, asked: asyncio.ensure_future(deferred(asked)), inline("deferred")
    )
    peer = Peer(dispatcher)
    stuck = [request(12) for _ in range(10)]
    peer.send(*stuck)
    await until(lambda: gate.entered == 2)

    for _ in range(20):
        asked = [request(10), request(11), request(14)]
        peer.send(*asked)
        await until(lambda: all(each.opaque in peer.answers for each in asked))  # noqa: B023

    assert not any(each.opaque in peer.answers for each in stuck)
    assert (blocked.statistics.accepted, blocked.statistics.waiting) == (10, 8)
    gate.opened.set()
    await until(lambda: all(each.opaque in peer.answers for each in stuck))
    assert blocked.statistics.waiting == 0
    assert blocked.statistics.max_waiting == 10


async def test_requests_behind_many_in_a_pool_wait_for_them(pools: Callable[..., PoolTier]) -> None:
    gate, pool, clock = Gate(), pools("slow", threads=2, max_wait_ms=60_000), Clock()
    clock.seconds = asyncio.get_running_loop().time()  # by which the connection notes arrivals
    dispatcher = Dispatcher(clock)
    dispatcher.register([12], gate, pool)
    dispatcher.register([10], echo, inline())
    busy, other = Peer(dispatcher, ConnectionSettings(max_pooled_requests=5)), Peer(dispatcher)
    slow, behind = [request(12) for _ in range(7)], request(10)
    busy.send(*slow[:5])
    busy.send(*slow[5:], behind)
    unrelated = request(10)
    other.send(unrelated)
    await until(lambda: unrelated.opaque in other.answers)
    assert pool.statistics.accepted == 5, "each answer may be large"
    assert not busy.answers

    clock.seconds += 50  # the time in the pool is no wait for the tier of the last one
    gate.opened.set()
    await until(lambda: len(busy.answers) == 8)
    assert {answer.code for answer in busy.answers.values()} == {0}


async def test_a_pool_does_no_work_for_a_peer_that_has_gone(pools: Callable[..., PoolTier]) -> None:
    gate, pool = Gate(), pools("query")
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, pool)
    peer = Peer(dispatcher)
    peer.send(request(12), request(12), request(12))
    await until(lambda: gate.entered == 1)
    peer.connection.abort()
    gate.opened.set()
    await until(lambda: dispatcher.is_idle)
    assert gate.entered == 1
    assert next(dispatcher.registrations()).answered[-1] == 2


async def deferred(asked: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return asked.response(0)


async def test_a_pool_runs_processors_in_its_threads(pools: Callable[..., PoolTier]) -> None:
    threads = set()

    def where(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        threads.add(threading.current_thread().name)
        return asked.response(0)

    dispatcher = Dispatcher()
    dispatcher.register([10], where, pools("query", threads=2))
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(50)])

    await until(lambda: len(peer.answers) == 50)
    assert threads <= {"query_0", "query_1"}


async def test_a_full_pool_refuses_at_once(pools: Callable[..., PoolTier]) -> None:
    gate, pool = Gate(), pools("query", capacity=3)
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, pool)
    peer = Peer(dispatcher)
    running = request(12)
    peer.send(running)
    await until(lambda: gate.entered == 1 and pool.statistics.waiting == 0)
    requests = [request(12) for _ in range(5)]

    peer.send(*requests)

    assert set(peer.answers) == {asked.opaque for asked in requests[3:]}
    for answer in peer.answers.values():
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == "[REJECTREQUEST]system busy: 3 requests of tier query are under way already"
    assert (pool.statistics.rejected_full, pool.statistics.accepted, pool.statistics.waiting) == (2, 4, 3)
    gate.opened.set()
    await until(lambda: len(peer.answers) == 6)
    assert next(dispatcher.registrations()).answered == {0: 4, 2: 2}


async def test_a_request_that_waited_too_long_for_a_pool_is_refused(pools: Callable[..., PoolTier]) -> None:
    gate, clock, pool = Gate(), Clock(), pools("query", max_wait_ms=5000)
    dispatcher = Dispatcher(clock)
    dispatcher.register([12], gate, pool)
    peer = Peer(dispatcher)
    running, waiting, in_time = request(12), request(12), request(12)
    dispatcher.dispatch_all(peer.connection, [running, waiting], clock.seconds, clock.seconds)
    await until(lambda: gate.entered == 1)
    dispatcher.dispatch_all(peer.connection, [in_time], clock.seconds + 1, clock.seconds + 1)

    clock.seconds += 5.5
    gate.opened.set()

    await until(lambda: len(peer.answers) == 3)
    assert peer.answers[running.opaque].code == 0
    assert peer.answers[in_time.opaque].code == 0
    late = peer.answers[waiting.opaque]
    assert late.code == ResponseCode.SYSTEM_BUSY
    assert late.remark is not None
    assert late.remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy: waited 5500 ms in tier query, the limit is 5000 ms; "
    )
    assert (pool.statistics.rejected_late, pool.statistics.waiting, gate.entered) == (1, 0, 2)
    assert pool.statistics.wait_seconds_total == pytest.approx(0 + 5.5 + 4.5)


async def test_a_stopped_pool_refuses(pools: Callable[..., PoolTier]) -> None:
    gate, pool = Gate(), pools("query")
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, pool)
    peer, running, queued, late = Peer(dispatcher), request(12), request(12), request(12)
    peer.send(running, queued)
    await until(lambda: gate.entered == 1)

    dispatcher.stop()
    peer.send(late)
    gate.opened.set()

    await until(lambda: len(peer.answers) == 2)
    assert peer.answers[late.opaque].code == ResponseCode.SYSTEM_BUSY
    assert peer.answers[late.opaque].remark == "[REJECTREQUEST]system busy: tier query is shutting down"
    assert peer.answers[running.opaque].code == 0
    assert gate.entered == 1


@pytest.mark.each_loop
async def test_the_default_clock_agrees_with_the_loop() -> None:
    # A connection stamps requests with the loop's time, which the dispatcher compares with its own clock.
    dispatcher = Dispatcher()
    assert dispatcher.clock() == pytest.approx(asyncio.get_running_loop().time(), abs=0.1)


# --- long bodies ---


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


# --- requests that are answered together ---


class _Together:
    """A turn processor that keeps the requests it was called with."""

    def __init__(self, *outcomes: Result | Exception) -> None:
        self.calls: list[list[int]] = []
        self._outcomes = outcomes

    def __call__(
        self, connection: Connection, requests: Sequence[RemotingCommand]
    ) -> Sequence[Result | Exception]:
        self.calls.append([request.opaque for request in requests])
        return self._outcomes or [request.response(0) for request in requests]


def _answering_together(together: Callable[..., Any]) -> tuple[Dispatcher, InlineTier]:
    dispatcher, tier = Dispatcher(Clock()), inline()
    dispatcher.register([10, 11], echo, tier)
    dispatcher.answer_together(10, together)
    return dispatcher, tier


async def test_requests_that_follow_each_other_are_answered_together() -> None:
    together = _Together()
    dispatcher, tier = _answering_together(together)
    peer = Peer(dispatcher)
    first, second, other, alone, unrelated = (request(code) for code in (10, 10, 11, 10, 11))
    response = request(10).response(0)
    requests = [first, second, other, alone, response, unrelated]

    dispatcher.dispatch_all(peer.connection, requests, 0.0, 0.0)

    assert together.calls == [[first.opaque, second.opaque]], "a single one is answered as ever"
    await loop_passes()
    answered = [first, second, other, alone, unrelated]
    assert [answer.opaque for answer in peer.received] == [sent.opaque for sent in answered]
    assert tier.statistics.accepted == 5
    assert [row.answered for row in dispatcher.registrations()] == [{0: 3}, {0: 2}]


async def test_each_of_them_has_its_own_answer() -> None:
    requests = [request(10) for _ in range(4)]
    later: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    refusal = CommandError(ResponseCode.NO_MESSAGE, "gone")
    together = _Together(requests[0].response(0), refusal, later, RuntimeError(SECRET))
    dispatcher, tier = _answering_together(together)
    peer = Peer(dispatcher)

    dispatcher.dispatch_all(peer.connection, requests, 0.0, 0.0)

    assert tier.statistics.waiting == 1
    later.set_result(requests[2].response(7))
    await until(lambda: len(peer.answers) == 4)
    answers = [peer.answers[sent.opaque] for sent in requests]
    assert [answer.code for answer in answers] == [0, ResponseCode.NO_MESSAGE, 7, ResponseCode.SYSTEM_ERROR]
    assert answers[1].remark == "gone"
    assert SECRET not in (answers[3].remark or "")


async def test_if_all_of_them_fail_each_is_told() -> None:
    def failing(connection: Connection, requests: Sequence[RemotingCommand]) -> list[Result | Exception]:
        raise BodyError("no")

    dispatcher, _ = _answering_together(failing)
    peer = Peer(dispatcher)
    requests = [request(10) for _ in range(3)]

    dispatcher.dispatch_all(peer.connection, requests, 0.0, 0.0)
    await until(lambda: len(peer.answers) == 3)

    assert {answer.remark for answer in peer.answers.values()} == {"SEND_MESSAGE: no"}


@pytest.mark.parametrize("raised", [True, False])
async def test_a_damaged_one_ends_the_connection(raised: bool) -> None:
    damage = HeaderDecodeError("damaged")

    def damaged(connection: Connection, requests: Sequence[RemotingCommand]) -> list[Result | Exception]:
        if raised:
            raise damage
        return [requests[0].response(0), damage]

    dispatcher, _ = _answering_together(damaged)
    with pytest.raises(HeaderDecodeError, match="damaged"):
        dispatcher.dispatch_all(Peer(dispatcher).connection, [request(10), request(10)], 0.0, 0.0)


def test_only_inline_tiers_answer_together(pools: Callable[..., PoolTier]) -> None:
    dispatcher = Dispatcher()
    dispatcher.register([10], echo, pools())
    for code in (10, 11):
        with pytest.raises(ValueError, match=f"{code} is not registered in an inline tier"):
            dispatcher.answer_together(code, _Together())
