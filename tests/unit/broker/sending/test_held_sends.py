"""Sends that wait for space in the log: their order, their bounds, and their answers."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.sending import held_sends
from rmq_broker.sending.held_sends import HeldSends
from rmq_broker.store.api import LogSpace
from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.pending_answer import PendingAnswer
from tests.support.broker_requests import send
from tests.support.peers import Peer

pytestmark = pytest.mark.virtual_time

_WAIT_SECONDS = 0.2


class _Log:
    """A log with space for some sends; each is answered by its body."""

    def __init__(self) -> None:
        self.space = LogSpace()
        self.left = 0
        self.tried: list[bytes] = []
        self.flush: asyncio.Future[Answer] | None = None
        self.error: Exception | None = None
        self.held = HeldSends(self.space, self.send, self._refuse, lambda: _WAIT_SECONDS)
        self._connection = Peer().connection

    def ask(self, body: bytes) -> Result:
        return self.send(self._connection, send("T", body))

    def send(self, connection: Connection, request: RemotingCommand) -> Result:
        """Store a send, as the processor of sends does."""
        if self.space.is_short:
            return self.held.hold(connection, request)
        self.tried.append(request.body)
        if self.error is not None:
            raise self.error
        if not self.left:
            self.space.is_short = True
            return self.held.hold(connection, request)
        self.left -= 1
        return self.flush or request.body

    def get_space(self, sends: int) -> None:
        self.left = sends
        self.space.ready()

    def _refuse(self, request: RemotingCommand, refusal: CommandError) -> Answer:
        return request.response(refusal.code, refusal.remark)


async def _answer(result: Result) -> Answer:
    assert isinstance(result, asyncio.Future)
    return await result


def _refusal(answer: Answer) -> str:
    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    return str(answer.remark)


async def test_sends_are_stored_in_order_when_there_is_space() -> None:
    log = _Log()
    asked = [log.ask(b"%d" % number) for number in range(5)]
    assert (log.tried, len(log.held)) == ([b"0"], 5)
    log.get_space(2)
    assert log.tried == [b"0", b"0", b"1", b"2"]
    log.get_space(9)
    assert log.tried[4:] == [b"2", b"3", b"4"]
    assert [await _answer(each) for each in asked] == [b"%d" % number for number in range(5)]
    assert log.ask(b"next") == b"next"


async def test_a_send_is_not_stored_before_those_that_wait() -> None:
    log = _Log()
    first, second = log.ask(b"first"), log.ask(b"second")
    log.get_space(1)
    third = log.ask(b"third")
    log.get_space(2)
    for result, body in ((first, b"first"), (second, b"second"), (third, b"third")):
        assert await _answer(result) == body


async def test_a_send_that_has_waited_for_too_long_is_refused() -> None:
    log = _Log()
    early = log.ask(b"early")
    await asyncio.sleep(_WAIT_SECONDS / 2)
    late = log.ask(b"late")
    assert "has not provided space for the message in 200 ms" in _refusal(await _answer(early))
    assert len(log.held) == 1
    log.get_space(1)
    assert await _answer(late) == b"late"
    assert b"early" not in log.tried[1:]


async def test_the_bytes_of_waiting_sends_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_sends, "MAX_HELD_BYTES", 10)
    log = _Log()
    first = log.ask(b"123456")
    refused = log.ask(b"12345")
    assert not isinstance(refused, asyncio.Future | PendingAnswer)
    assert "sends of 6 bytes wait for the disk, at most 10 may" in _refusal(refused)
    second = log.ask(b"1234")
    log.get_space(2)
    assert [await _answer(first), await _answer(second)] == [b"123456", b"1234"]
    third = log.ask(b"1234567890")
    log.get_space(1)
    assert await _answer(third) == b"1234567890"


async def test_an_answer_that_waits_for_a_flush() -> None:
    log = _Log()
    asked = log.ask(b"flushed")
    log.flush = asyncio.get_running_loop().create_future()
    log.get_space(1)
    assert isinstance(asked, asyncio.Future) and not asked.done()
    log.flush.set_result(b"on disk")
    assert await asked == b"on disk"


async def test_an_error_is_the_answer_to_its_send_alone() -> None:
    log = _Log()
    first = log.ask(b"first")
    log.error = CommandError(ResponseCode.MESSAGE_ILLEGAL, "too large")
    log.get_space(1)
    with pytest.raises(CommandError, match="too large"):
        await _answer(first)
    log.error = None
    assert log.ask(b"second") == b"second"
