"""When a shard counts as silent, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.shards.liveness import QUESTION, SILENT_SECONDS, answer, until_silent
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import ConnectionClosed
from tests.support.peers import Peer
from tests.support.waiting import loop_passes

pytestmark = pytest.mark.virtual_time


class _Shard:
    """The far end of the supervisor's connection."""

    def __init__(self) -> None:
        self.peer = Peer()
        self._answered = 0

    def answer(self) -> None:
        """Answer all questions so far."""
        questions = self.peer.received[self._answered :]
        assert {question.code for question in questions} <= {QUESTION}
        self._answered += len(questions)
        for question in questions:
            self.peer.send(answer(self.peer.connection, question))

    async def answer_for(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.answer()
            await asyncio.sleep(1)


async def test_a_shard_that_answers_is_not_silent() -> None:
    shard = _Shard()
    silent = asyncio.ensure_future(until_silent(shard.peer.connection, asyncio.sleep))
    await shard.answer_for(200)
    assert not silent.done()
    silent.cancel()


async def test_a_shard_is_silent_after_its_last_answer() -> None:
    shard = _Shard()
    silent = asyncio.ensure_future(until_silent(shard.peer.connection, asyncio.sleep))
    await shard.answer_for(25)
    began = asyncio.get_running_loop().time()
    await silent
    assert asyncio.get_running_loop().time() - began == pytest.approx(SILENT_SECONDS, abs=11)


async def test_one_late_answer_is_no_silence() -> None:
    """A supervisor that stood still finds the time for an answer over, and the answer behind it."""
    shard = _Shard()
    silent = asyncio.ensure_future(until_silent(shard.peer.connection, asyncio.sleep))
    for _ in range(6):
        await asyncio.sleep(15)
        shard.answer()
        await shard.answer_for(12)
    assert not silent.done()
    silent.cancel()


async def test_the_end_of_the_connection_is_another_matter() -> None:
    shard = _Shard()
    silent = asyncio.ensure_future(until_silent(shard.peer.connection, asyncio.sleep))
    await loop_passes()
    shard.peer.transport.lose(None)
    with pytest.raises(ConnectionClosed):
        await silent


def test_the_answer_belongs_to_the_question() -> None:
    question = RemotingCommand.request(QUESTION)
    peer = None
    assert answer(peer, question).opaque == question.opaque  # type: ignore[arg-type]
