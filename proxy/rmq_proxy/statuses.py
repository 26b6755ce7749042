"""Statuses of responses, as in Apache RocketMQ 5.3.3 (ResponseBuilder and GrpcProxyException)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from rmq_client.errors import BrokerError, ClientError, TimedOut, TopicNotFound, TopicNotOnBroker
from rmq_remoting.codes import ResponseCode

from .protocol.definition_pb2 import Code, Status

log = logging.getLogger("rmq.proxy")

# protobuf looks up the name of a code anew at each use, which takes longer than a small message.
_OK: Final = Code.OK
_SUCCESS: Final = Status(code=_OK, message=Code.Name(_OK))
_ALL_OK: Final = frozenset({_OK})

_CODES: Final = {
    int(ResponseCode.SYSTEM_BUSY): Code.TOO_MANY_REQUESTS,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): Code.NOT_IMPLEMENTED,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): Code.CONSUMER_GROUP_NOT_FOUND,
}


class Refusal(Exception):
    """A request that the proxy refuses; `code` and the text become the status of the response."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def status(code: Code, message: str | None = None) -> Status:
    """Return a status; without a message it has the name of its code."""
    return Status(code=code, message=Code.Name(code) if message is None else message)


def ok() -> Status:
    """Return the status of success, which is shared: responses copy it, and nobody changes it."""
    return _SUCCESS


def status_of(error: Exception) -> Status:
    """Return the status for an error of a request. An unexpected error is logged with its stack trace."""
    if isinstance(error, Refusal):
        return status(error.code, str(error))
    if isinstance(error, (TopicNotFound, TopicNotOnBroker)):
        return status(Code.TOPIC_NOT_FOUND, str(error))
    if isinstance(error, BrokerError):
        return status(_CODES.get(error.code, Code.INTERNAL_SERVER_ERROR), error.remark or str(error))
    if isinstance(error, TimedOut):
        return status(Code.PROXY_TIMEOUT, str(error))
    if isinstance(error, ClientError):
        return status(Code.INTERNAL_SERVER_ERROR, str(error))
    log.error("request failed cause=%s", error, exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def combined(codes: Iterable[Code], without_entries: str) -> Status:
    """Return the status over all entries of a response: their common one, or MULTIPLE_RESULTS."""
    different = set(codes)
    if different == _ALL_OK:
        return _SUCCESS
    if not different:
        return status(Code.INTERNAL_SERVER_ERROR, without_entries)
    return status(different.pop() if len(different) == 1 else Code.MULTIPLE_RESULTS)
