"""Requests and responses on their way through the proxy, as values: nothing here does I/O.

A forwarded command keeps all that its sender wrote except for its number, so that a client's signature stays
valid. Source of the field names: Apache RocketMQ 5.3.3, AbstractRemotingActivity.
"""

from __future__ import annotations

from typing import Final

from rmq_client.errors import BrokerError, ClientError, TopicNotFound
from rmq_remoting.codes import FLAG_ONEWAY, MAX_BINARY_CODE, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization, next_opaque
from rmq_remoting.errors import CommandError, ConnectError, RemotingError, TooManyRequests

BROKER_NAME: Final = "bname"
# The compact header of sends abbreviates it (SendMessageRequestHeaderV2).
_BROKER_NAME_OF_SENDS: Final = "n"
_COMPACT: Final = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


def broker_name_of(code: int, request: RemotingCommand) -> str:
    """Return the broker that a request of a client is for.

    Raises CommandError (VERSION_NOT_SUPPORTED) without a name: clients before 5.0 send none.
    """
    name = request.ext_fields.get(_BROKER_NAME_OF_SENDS if code in _COMPACT else BROKER_NAME)
    if not name:
        raise CommandError(
            ResponseCode.VERSION_NOT_SUPPORTED,
            "Request doesn't have field bname: the proxy needs the name of the broker, which clients send "
            "since version 5.0",
        )
    return name


def forwarded(code: int, request: RemotingCommand) -> RemotingCommand:
    """Return a request with a number of this side.

    A code that does not fit a binary header is written whole, which makes the header JSON.
    """
    serialization = request.serialization
    if serialization is Serialization.BINARY and code > MAX_BINARY_CODE:
        serialization = Serialization.JSON
    command = _copy(request, code, request.flag & FLAG_ONEWAY, next_opaque())
    if serialization is not request.serialization:
        command = RemotingCommand(
            code,
            command.flag,
            command.opaque,
            request.language,
            request.version,
            request.remark,
            request.ext_fields,
            None,
            request.body,
            serialization,
        )
    return command


def answer_to(request: RemotingCommand, response: RemotingCommand) -> RemotingCommand:
    """Return a response with the number of the request that it answers."""
    return _copy(response, response.code, response.flag, request.opaque)


def _copy(command: RemotingCommand, code: int, flag: int, opaque: int) -> RemotingCommand:
    raw = command.raw_ext
    fields = command.ext_fields if raw is None and command.has_ext_fields else None
    return RemotingCommand(
        code,
        flag,
        opaque,
        command.language,
        command.version,
        command.remark,
        fields,
        raw,
        command.body,
        command.serialization,
    )


def refusal_for(error: ClientError | RemotingError) -> CommandError:
    """Return what a client is answered for a request that no broker has answered."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, TopicNotFound):
        return CommandError(ResponseCode.TOPIC_NOT_EXIST, str(error))
    if isinstance(error, BrokerError):
        return CommandError(error.code, error.remark or str(error))
    if isinstance(error, TooManyRequests):
        return CommandError(ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]system busy: {error}")
    if isinstance(error, ConnectError):
        return CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
    return CommandError(ResponseCode.SYSTEM_ERROR, str(error))
