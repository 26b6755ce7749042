"""Acknowledgements of popped messages: codes 200051 and 200151.

Source: Apache RocketMQ 5.3.3, AckMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Result
from rmq_remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, RemotingError
from rmq_remoting.headers.pop import AckMessageRequestHeader
from rmq_remoting.pop_receipt import NORMAL, Receipt, real_topic

from ..pop.acknowledging import SingleAck
from ..pop.check_point import QueueKey
from .durable_answers import respond_when_durable
from .pop_admission import PopAdmission, parse_receipt

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..pop.acknowledging import Acknowledging
    from ..store.api import MessageStore

_MAX_PROBLEMS_TOLD: Final = 3
# Takes half of the time of `QueueKey(...)` or less, which calls a Python function first.
_new_tuple: Final = tuple.__new__


class AckProcessor:
    """Answers acknowledgements once they are in the log (with SYNC_FLUSH: flushed)."""

    def __init__(
        self, admission: PopAdmission, acknowledging: Acknowledging, store: MessageStore, broker_name: str
    ) -> None:
        self._admission = admission
        self._acknowledging = acknowledging
        self._store = store
        self._broker_name = broker_name

    def ack(self, connection: Connection, request: RemotingCommand) -> Result:
        """Acknowledge one message (200051). Raises CommandError."""
        queue, receipt, offset = self._decode(connection, request)
        self._acknowledging.ack(queue, receipt, (offset,))
        return respond_when_durable(self._store, request.response(ResponseCode.SUCCESS))

    def ack_together(
        self, connection: Connection, requests: Sequence[RemotingCommand]
    ) -> list[Result | Exception]:
        """Acknowledge one message by each request; those of one pop become one entry of the journal.

        Returns the response of each, or the error to answer it with.
        """
        results: list[Result | Exception] = [None] * len(requests)
        acks: list[SingleAck] = []
        places: list[int] = []
        for place, request in enumerate(requests):
            try:
                acks.append(self._decode(connection, request))
            except RemotingError as error:
                results[place] = error
            else:
                places.append(place)
        for place, refusal in zip(places, self._acknowledging.ack_all(acks), strict=True):
            if refusal is None:
                response = requests[place].response(ResponseCode.SUCCESS)
                results[place] = respond_when_durable(self._store, response)
            else:
                results[place] = refusal
        return results

    def _decode(self, connection: Connection, request: RemotingCommand) -> SingleAck:
        """Return what a request acknowledges. Raises CommandError, HeaderError, ProtocolError."""
        header = AckMessageRequestHeader.decode(request.ext_fields)
        self._admission.check_receipt_queue(header.topic, header.queue_id, connection.peer)
        receipt = parse_receipt(header.extra_info)
        queue = _new_tuple(QueueKey, (header.topic, header.consumer_group, header.queue_id))
        return queue, receipt, header.offset

    def ack_batch(self, connection: Connection, request: RemotingCommand) -> Result:
        """Acknowledge messages of several pops (200151). Raises CommandError if none could be acknowledged.

        A bad part does not affect the others: the response is SUCCESS, with the problems in its remark.
        """
        body = (
            BatchAckMessageRequestBody.decode_request(request.body)
            if request.body
            else BatchAckMessageRequestBody()
        )
        if not body.acks:
            raise CommandError(ResponseCode.NO_MESSAGE, "the batch holds no acknowledgements")
        errors: list[CommandError] = []
        for batch in body.acks:
            try:
                self._ack_pop(batch, body.broker_name or self._broker_name, connection.peer)
            except CommandError as error:
                errors.append(error)
        if len(errors) == len(body.acks):
            raise CommandError(errors[0].code, _remark(errors, len(body.acks)))
        remark = _remark(errors, len(body.acks)) if errors else None
        return respond_when_durable(self._store, request.response(ResponseCode.SUCCESS, remark))

    def _ack_pop(self, batch: BatchAck, broker_name: str, peer: str) -> None:
        """Acknowledge messages of one pop. Raises CommandError."""
        kind = batch.retry or NORMAL
        try:
            topic = real_topic(batch.topic, batch.consumer_group, kind)
        except ValueError as error:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        self._admission.check_receipt_queue(topic, batch.queue_id, peer)
        receipt = Receipt(
            batch.start_offset,
            batch.pop_time,
            batch.invisible_time_ms,
            batch.revive_queue_id,
            kind,
            broker_name,
        )
        queue = QueueKey(topic, batch.consumer_group, batch.queue_id)
        offsets = self._acknowledging.offsets_of(queue, receipt, batch.bit_set)
        self._acknowledging.ack(queue, receipt, offsets)


def _remark(errors: list[CommandError], count: int) -> str:
    told = "; ".join(error.remark for error in errors[:_MAX_PROBLEMS_TOLD])
    more = "; ..." if len(errors) > _MAX_PROBLEMS_TOLD else ""
    return f"{len(errors)} of {count} pops could not be acknowledged: {told}{more}"
