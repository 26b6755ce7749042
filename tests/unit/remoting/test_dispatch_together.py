"""Requests that follow each other and are answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import BodyError, CommandError, HeaderDecodeError
from rmq_remoting.tiers import InlineTier, PoolTier
from tests.support.dispatching import SECRET, Clock, echo, inline, request
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until


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
