"""Peeks: code 200052 (Apache RocketMQ 5.3.3, PeekMessageProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.answers import Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop import PopMessageResponseHeader
from rmq_remoting.headers.pop_queries import PeekMessageRequestHeader

from ..pop.answer_size import MAX_MESSAGES
from ..pop.held_pops import ANY_QUEUE
from ..pop.peeking import Peek, Peeking
from ..store.api import GetStatus
from .pop_admission import PopAdmission
from .pop_walks import QueueWalks

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection


class PeekProcessor:
    """Answers with the messages that a pop would return."""

    def __init__(self, admission: PopAdmission, peeking: Peeking, walks: QueueWalks) -> None:
        self._admission = admission
        self.peeking = peeking
        self._walks = walks

    def peek(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer 200052: the next messages of a group, without a delivery. Raises CommandError."""
        header = PeekMessageRequestHeader.decode(request.ext_fields)
        queue_id = max(header.queue_id, ANY_QUEUE)
        self._admission.check(header.consumer_group, header.topic, queue_id, connection.peer)
        most = min(header.max_msg_nums, MAX_MESSAGES)
        self._admission.check_count(most)
        peek = Peek(header.topic, header.consumer_group, queue_id, most)

        def check() -> None:
            self._admission.check(header.consumer_group, header.topic, queue_id, connection.peer)

        return self._walks.finish(connection, self.peeking.walk(peek), check, lambda: _respond(request, peek))


def _respond(request: RemotingCommand, peek: Peek) -> RemotingCommand:
    fields = PopMessageResponseHeader(rest_num=peek.rest).encode()
    if not peek.count:
        remark = GetStatus.NO_MESSAGE_IN_QUEUE.value
        return request.response(ResponseCode.PULL_NOT_FOUND, remark, fields)
    return request.response(ResponseCode.SUCCESS, GetStatus.FOUND.value, fields, b"".join(peek.bodies))
