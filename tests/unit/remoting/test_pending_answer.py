"""Answers that are given later, without a future."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rmq_remoting.answers import answer_of
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import CommandError, ProtocolError
from rmq_remoting.framing import encode_frame
from rmq_remoting.pending_answer import PendingAnswer
from tests.support.dispatching import Clock, echo, inline, request
from tests.support.peers import Peer
from tests.support.waiting import loop_passes


class _Processor:
    """Answers each request later."""

    def __init__(self) -> None:
        self.pending: list[PendingAnswer] = []

    def __call__(self, connection: Connection, asked: RemotingCommand) -> PendingAnswer:
        self.pending.append(PendingAnswer())
        return self.pending[-1]


_ERROR = CommandError(ResponseCode.SYSTEM_BUSY, "no")


@pytest.mark.parametrize("is_given_before", [False, True])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (partial(PendingAnswer.give, answer=b"yes"), (b"yes", None)),
        (partial(PendingAnswer.fail, error=_ERROR), (None, _ERROR)),
    ],
)
def test_the_taker_is_called_once(
    end: Callable[[PendingAnswer], None], expected: tuple[object, object], is_given_before: bool
) -> None:
    taken: list[object] = []
    pending = PendingAnswer()
    if is_given_before:
        end(pending)
    pending.taken_by(lambda answer, error: taken.append((answer, error)))
    if not is_given_before:
        assert not taken
        end(pending)
    assert taken == [expected]


async def test_a_coroutine_can_wait_for_the_answer() -> None:
    pending, failed = PendingAnswer(), PendingAnswer()
    failed.fail(_ERROR)
    with pytest.raises(CommandError, match="no"):
        await answer_of(failed)
    future = pending.as_future()
    future.cancel()
    pending.give(b"nobody waits any more")
    given = PendingAnswer()
    given.give(b"answer")
    assert await answer_of(given) == b"answer"
    assert await answer_of(b"answer") == b"answer"


async def test_answers_leave_in_one_write_as_soon_as_they_are_given() -> None:
    tier, clock, processor = inline(), Clock(), _Processor()
    dispatcher = Dispatcher(clock)
    dispatcher.register([11], processor, tier)
    dispatcher.register([10], echo, tier)
    peer, first, second, quick = Peer(dispatcher), request(11), request(11), request(10)
    peer.send(first, second, quick)
    assert list(peer.answers) == [quick.opaque]
    assert (tier.statistics.waiting, tier.statistics.accepted) == (2, 3)
    clock.seconds += 1.5
    writes = len(peer.transport.writes)
    processor.pending[1].give(second.response(19))
    processor.pending[0].give(encode_frame(first.response(0)))
    assert tier.statistics.waiting == 0
    await loop_passes(1)
    assert (peer.answers[second.opaque].code, peer.answers[first.opaque].code) == (19, 0)
    assert len(peer.transport.writes) == writes + 1
    assert tier.statistics.wait_seconds_total == pytest.approx(3.0)


async def test_pending_answers_are_bounded() -> None:
    tier, processor = inline(capacity=2), _Processor()
    dispatcher = Dispatcher()
    dispatcher.register([11], processor, tier)
    peer, requests = Peer(dispatcher), [request(11) for _ in range(3)]
    peer.send(*requests)
    assert peer.answers[requests[2].opaque].code == ResponseCode.SYSTEM_BUSY
    processor.pending[0].give(requests[0].response(0))
    again = request(11)
    peer.send(again)
    assert again.opaque not in peer.answers


async def test_an_error_is_answered() -> None:
    processor = _Processor()
    dispatcher = Dispatcher()
    dispatcher.register([11], processor, inline())
    peer, refused, failed = Peer(dispatcher), request(11), request(11)
    peer.send(refused, failed)
    processor.pending[0].fail(_ERROR)
    processor.pending[1].fail(OSError(28, "No space left on device"))
    await loop_passes()
    assert (peer.answers[refused.opaque].code, peer.answers[refused.opaque].remark) == (
        ResponseCode.SYSTEM_BUSY,
        "no",
    )
    assert peer.answers[failed.opaque].code == ResponseCode.SYSTEM_ERROR
    assert "No space left" in str(peer.answers[failed.opaque].remark)


async def test_a_damaged_request_closes_the_connection() -> None:
    processor = _Processor()
    dispatcher = Dispatcher()
    dispatcher.register([11], processor, inline())
    peer = Peer(dispatcher)
    peer.send(request(11))
    processor.pending[0].fail(ProtocolError("damaged"))
    await loop_passes()
    assert peer.connection.is_closed


async def test_an_answer_for_a_closed_connection_is_dropped() -> None:
    tier, processor = inline(), _Processor()
    dispatcher = Dispatcher()
    dispatcher.register([11], processor, tier)
    peer, asked = Peer(dispatcher), request(11)
    peer.send(asked)
    peer.connection.abort()
    await loop_passes()
    processor.pending[0].give(asked.response(0))
    await loop_passes()
    assert not peer.answers
    assert tier.statistics.waiting == 0
