"""Deletion of expired and unused data: codes 306, 316 and 329.

The response is that of Apache RocketMQ 5.3.3 (AdminBrokerProcessor): SUCCESS, even if nothing was deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from rmq_remoting.answers import Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import Persist, answer_when_persisted
from rmq_remoting.errors import CommandError

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...topics.unused import UnusedTopics

log = logging.getLogger("rmq.broker.processors")


class StoreCleaning(Protocol):
    """The part of the store's cleaner that this module needs."""

    def delete_expired(self) -> None:
        """Start the deletion of all expired files; returns at once."""

    async def clean_queues(self) -> None:
        """Remove entries of queues and index whose messages are no longer in the log."""


class CleaningProcessor:
    """Starts deletions that otherwise depend on the time and the disk usage."""

    def __init__(self, cleaner: StoreCleaning, unused: UnusedTopics, persist: Persist) -> None:
        """`persist` waits until deleted offsets are persisted."""
        self._cleaner = cleaner
        self._unused = unused
        self._persist = persist

    def clean_expired_queues(self, connection: Connection, request: RemotingCommand) -> Result:
        """306: delete queue entries of deleted messages, and the queues of deleted topics."""
        log.info("cleaning of expired queues requested peer=%s", connection.peer)
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._clean_expired_queues)

    def clean_unused_topics(self, connection: Connection, request: RemotingCommand) -> Result:
        """316: delete the queues of topics that do not exist."""
        log.info("cleaning of unused topics requested peer=%s", connection.peer)
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._clean_unused_topics)

    def delete_expired_files(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """329: delete expired files of the log; answered at once."""
        log.info("deletion of expired log files requested peer=%s", connection.peer)
        self._cleaner.delete_expired()
        return request.response(ResponseCode.SUCCESS)

    # --- internals ---

    async def _clean_expired_queues(self) -> None:
        await self._cleaner.clean_queues()
        try:
            await self._unused.delete_without_messages()
        except OSError as error:
            raise _failed(error) from error
        await self._persist()

    async def _clean_unused_topics(self) -> None:
        try:
            await self._unused.delete()
        except OSError as error:
            raise _failed(error) from error
        await self._persist()


def _failed(error: OSError) -> CommandError:
    remark = f"not all queues of topics that do not exist could be deleted ({error}); try again"
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)
