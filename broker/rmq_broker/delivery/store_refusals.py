"""Errors of requests whose message the store refuses."""

from __future__ import annotations

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..store.api import LogBusy, MessageRejected, StoreUnavailable


def refusal(error: StoreUnavailable | MessageRejected) -> CommandError:
    """Return the error to answer with; nothing was stored."""
    if isinstance(error, LogBusy):
        return CommandError(ResponseCode.SYSTEM_BUSY, f"broker busy: {error}. Nothing was stored")
    if isinstance(error, StoreUnavailable):
        return CommandError(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}. Nothing was stored"
        )
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error))
