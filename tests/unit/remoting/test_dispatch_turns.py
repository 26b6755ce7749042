"""Turns of connections: many requests of one connection delay no other for long."""

from __future__ import annotations

import asyncio

import pytest

from rmq_remoting.codes import LanguageCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import encode_frame
from tests.support.dispatching import Clock, echo, inline, request
from tests.support.frames import decode_all
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until


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
    run = 0

    def counted(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        nonlocal run
        run += 1
        return asked.response(0)

    dispatcher = Dispatcher()
    dispatcher.register([10], counted, inline())
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(100)])
    for _ in range(5):
        peer.connection.pause_writing()
        peer.connection.resume_writing()
    await asyncio.sleep(0)

    assert run == 32


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


# --- one write for several turns ---


def _requests(count: int, language: LanguageCode = LanguageCode.JAVA) -> list[RemotingCommand]:
    requests = [request() for _ in range(count)]
    for each in requests:
        each.language = language
    return requests


@pytest.mark.parametrize("bytes_each", [10, 2000])
async def test_responses_of_turns_that_follow_soon_share_writes(bytes_each: int) -> None:
    clock = Clock()
    clock.seconds = asyncio.get_running_loop().time()
    dispatcher = Dispatcher(clock)
    dispatcher.register([10], lambda connection, asked: asked.response(0, body=bytes(bytes_each)), inline())
    peer = Peer(dispatcher)

    peer.send(*_requests(16 * 12))

    await until(lambda: len(peer.answers) == 16 * 12)
    frames = [len(decode_all(each)) for each in peer.transport.writes]
    # The first turn writes its own responses. The others gather up to 48 frames or 64 KiB, and one turn more.
    assert frames == ([16, 64, 64, 48] if bytes_each == 10 else [16, 32, 32, 32, 32, 32, 16])


async def test_only_java_clients_get_responses_of_several_turns_in_one_write() -> None:
    clock = Clock()
    clock.seconds = asyncio.get_running_loop().time()
    dispatcher = Dispatcher(clock)
    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)

    peer.send(*_requests(16 * 12, LanguageCode.PYTHON))

    await until(lambda: len(peer.answers) == 16 * 12)
    assert [len(decode_all(each)) for each in peer.transport.writes] == [16] * 12


async def test_turns_write_their_own_responses_while_others_delay_them() -> None:
    clock = Clock()
    loop = asyncio.get_running_loop()
    clock.seconds = loop.time()
    dispatcher = Dispatcher(clock)

    def other_turns() -> None:
        # Requests arrive by the loop's clock, which may have gone on.
        clock.seconds = max(clock.seconds, loop.time()) + 0.002
        if len(peer.transport.writes) < 12:
            loop.call_soon(other_turns)

    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)

    peer.send(*_requests(16 * 12))
    other_turns()

    await until(lambda: len(peer.answers) == 16 * 12)
    assert [len(decode_all(each)) for each in peer.transport.writes] == [16] * 12


async def test_a_peer_that_does_not_read_gets_the_gathered_responses_later() -> None:
    clock = Clock()
    clock.seconds = asyncio.get_running_loop().time()
    dispatcher = Dispatcher(clock)
    dispatcher.register([10], echo, inline())
    peer = Peer(dispatcher)
    peer.send(*_requests(100))
    await asyncio.sleep(0)  # the second turn gathers its responses
    assert len(peer.answers) == 16

    peer.connection.pause_writing()
    await loop_passes()
    assert len(peer.answers) == 16
    peer.connection.resume_writing()

    await until(lambda: len(peer.answers) == 100)
