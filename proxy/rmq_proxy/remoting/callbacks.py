"""Requests of brokers to clients, which the proxy passes on to the client of the connection.

Source of the request codes: Apache RocketMQ 5.3.3, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rmq_remoting.answers import Answer
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import RequestError
from rmq_remoting.tiers import InlineTier

from .commands import BROKER_NAME, answer_to, forwarded, refusal_for
from .sessions import session_of

_CODES: Final = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
_CAPACITY: Final = 10_000
_MAX_WAIT_MS: Final = 60_000
# Brokers wait for 10 s for the answer of a consumer (CALL_SECONDS).
_ANSWER_SECONDS: Final = 10.0


def register_callbacks(dispatcher: Dispatcher) -> None:
    """Register the processors of the connections to brokers."""
    dispatcher.register(
        _CODES, _pass_on, InlineTier("calls back", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
    )


def _pass_on(connection: Connection, request: RemotingCommand) -> asyncio.Future[Answer] | None:
    """Pass a request on to the client, and answer with its response; a client that has gone gets nothing."""
    session = session_of(connection)
    if session is None:
        return None
    command = forwarded(request.code, request)
    if request.code == RequestCode.CHECK_TRANSACTION_STATE and not request.ext_fields.get(BROKER_NAME):
        # Brokers before 5.0 leave their name out. The client returns it with the outcome.
        fields = {**request.ext_fields, BROKER_NAME: session.broker_name(connection)}
        command = RemotingCommand.request(
            request.code, fields, request.body, oneway=request.is_oneway, serialization=request.serialization
        )
    if not request.is_oneway and request.code != RequestCode.CHECK_TRANSACTION_STATE:
        return asyncio.ensure_future(_answered(session.client, request, command))
    try:
        session.client.send_oneway(command)
    except RequestError:
        return None  # the client has gone or does not read: its end is reported elsewhere
    return None


async def _answered(client: Connection, request: RemotingCommand, command: RemotingCommand) -> Answer:
    try:
        response = await client.send_request(command, _ANSWER_SECONDS)
    except RequestError as error:
        raise refusal_for(error) from error
    return answer_to(request, response)
