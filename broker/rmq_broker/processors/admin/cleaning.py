"""Deleting what is old or not used any more: codes 306, 316 and 329.

Answers as Apache RocketMQ 5.3.3 gives them (AdminBrokerProcessor): SUCCESS, whatever there was to delete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Result
from rmq_remoting.errors import CommandError

from .settling import answer_when_settled

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...topics.unused import UnusedTopics

log = logging.getLogger("rmq.broker.processors")


class StoreCleaning(Protocol):
    """The store's cleaner, as far as it is needed here."""

    def delete_expired(self) -> None:
        """Delete all files that are too old, now; returns at once."""

    async def clean_queues(self) -> None:
        """Have queues and index forget what is not in the log any more."""


class CleaningProcessor:
    """Starts by hand what otherwise the clock or the disk does."""

    def __init__(self, cleaner: StoreCleaning, unused: UnusedTopics) -> None:
        self._cleaner = cleaner
        self._unused = unused

    def clean_expired_queues(self, connection: Connection, request: RemotingCommand) -> Result:
        """306: delete what queues have of messages that are gone, and queues of topics that are gone too."""
        log.info("%s has expired queues cleaned", connection.peer)
        return answer_when_settled(request.response(ResponseCode.SUCCESS), self._clean_expired_queues)

    def clean_unused_topics(self, connection: Connection, request: RemotingCommand) -> Result:
        """316: delete the queues of topics that do not exist."""
        log.info("%s has unused topics cleaned", connection.peer)
        return answer_when_settled(request.response(ResponseCode.SUCCESS), self._clean_unused_topics)

    def delete_expired_files(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """329: delete the files of the log that are too old; answered at once."""
        log.info("%s has expired files of the log deleted", connection.peer)
        self._cleaner.delete_expired()
        return request.response(ResponseCode.SUCCESS)

    # --- inside ---

    async def _clean_expired_queues(self) -> None:
        await self._cleaner.clean_queues()
        try:
            await self._unused.delete_without_messages()
        except OSError as error:
            raise _failed(error) from error

    async def _clean_unused_topics(self) -> None:
        try:
            await self._unused.delete()
        except OSError as error:
            raise _failed(error) from error


def _failed(error: OSError) -> CommandError:
    remark = f"not all queues of topics that do not exist could be deleted ({error}); try again"
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)
