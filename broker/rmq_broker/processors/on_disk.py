"""Answers under SYNC_FLUSH that say: what you asked for is noted, and on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.errors import CommandError

from ..store.group_commit import WaitEnd

if TYPE_CHECKING:
    from ..store.message_store import MessageStore


def when_on_disk(store: MessageStore, response: RemotingCommand) -> Result:
    """The response, at once or when the log is flushed; a slow flush is no error, as with Apache."""
    if not store.flushes_each_message:
        return response

    def outcome(end: WaitEnd) -> Answer:
        if end is WaitEnd.FAILED:
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"it may be lost: {store.unavailable_reason}"
            )
        return response

    return store.when_flushed(outcome)


def certainly_on_disk(
    store: MessageStore,
    response: RemotingCommand,
    not_on_disk: str,
    code: int = ResponseCode.SERVICE_NOT_AVAILABLE,
) -> Result:
    """The response, at once or when the log is flushed; an error where that is late or fails."""
    if not store.flushes_each_message:
        return response

    def outcome(end: WaitEnd) -> Answer:
        if end is WaitEnd.FLUSHED:
            return response
        raise CommandError(code, not_on_disk)

    return store.when_flushed(outcome)
