"""Requests of brokers on their way to the client of the session."""

from __future__ import annotations

import asyncio

import pytest

from rmq_proxy.remoting.callbacks import register_callbacks
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Dispatcher
from tests.support.broker_requests import request
from tests.unit.proxy.remoting.parts import A, Peer, SessionParts, settled

pytestmark = pytest.mark.virtual_time


class _Parts(SessionParts):
    """A session whose broker makes requests."""

    def __init__(self) -> None:
        super().__init__()
        register_callbacks(self.brokers.dispatcher)

    async def ask(self, command: RemotingCommand) -> list[RemotingCommand]:
        """Let the broker make a request; return the commands that the client gets."""
        await self.session.connection(A)
        self.peer(A).ask(command)
        await settled()
        return await self.client.received()

    async def answers(self) -> list[RemotingCommand]:
        """Return the commands that the broker gets."""
        await settled()
        return await self.peer(A).received()


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    ],
)
async def test_the_answer_of_the_client_is_that_of_the_proxy(code: RequestCode) -> None:
    parts = _Parts()
    asked = request(code, b"body", consumerGroup="G")
    (received,) = await parts.ask(asked)
    assert (received.code, received.ext_fields, received.body) == (code, {"consumerGroup": "G"}, b"body")
    assert await parts.answers() == []
    parts.client.answer(received, ResponseCode.SYSTEM_ERROR, "not mine")
    (answer,) = await parts.answers()
    assert (answer.opaque, answer.code, answer.remark) == (
        asked.opaque,
        ResponseCode.SYSTEM_ERROR,
        "not mine",
    )


async def test_a_client_that_does_not_answer_is_given_up_after_ten_seconds() -> None:
    parts = _Parts()
    asked = request(RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert len(await parts.ask(asked)) == 1

    await asyncio.sleep(9)
    assert await parts.answers() == []
    await asyncio.sleep(2)
    (answer,) = await parts.answers()
    assert (answer.opaque, answer.code) == (asked.opaque, ResponseCode.SYSTEM_ERROR)


@pytest.mark.parametrize(
    "code", [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
)
async def test_one_way_requests_are_passed_on(code: RequestCode) -> None:
    parts = _Parts()
    (received,) = await parts.ask(RemotingCommand.request(code, {"consumerGroup": "G"}, oneway=True))
    assert (received.code, received.is_oneway) == (code, True)
    assert await parts.answers() == []


@pytest.mark.parametrize(("fields", "expected"), [({}, "broker-a"), ({"bname": "own"}, "own")])
async def test_a_check_of_a_transaction_names_its_broker(fields: dict[str, str], expected: str) -> None:
    parts = _Parts()
    asked = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "M", **fields}, b"half")
    (received,) = await parts.ask(asked)
    assert received.ext_fields == {"msgId": "M", "bname": expected}
    assert (received.is_oneway, received.body) == (True, b"half")
    assert await parts.answers() == []


async def test_requests_for_a_client_that_has_gone_are_refused_or_dropped() -> None:
    parts = _Parts()
    await parts.session.connection(A)
    parts.client.connection.close()
    assert await parts.ask(request(RequestCode.GET_CONSUMER_RUNNING_INFO)) == []
    (answer,) = await parts.answers()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert await parts.ask(RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, oneway=True)) == []
    assert await parts.answers() == []


async def test_a_connection_of_no_session_gets_no_answer() -> None:
    dispatcher = Dispatcher()
    register_callbacks(dispatcher)
    broker = Peer(dispatcher=dispatcher)
    broker.ask(request(RequestCode.GET_CONSUMER_RUNNING_INFO))
    await settled()
    assert await broker.received() == []
