"""Changes of an invisible time: code 200053 (Apache RocketMQ 5.3.3, ChangeInvisibleTimeProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.answers import Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader

from ..pop.check_point import QueueKey
from .durable_answers import respond_when_durable
from .pop_admission import PopAdmission, parse_receipt

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..pop.acknowledging import Acknowledging
    from ..store.api import MessageStore


class ChangeInvisibleProcessor:
    """Replaces a receipt by one with another invisible time; the old receipt becomes invalid."""

    def __init__(self, admission: PopAdmission, acknowledging: Acknowledging, store: MessageStore) -> None:
        self._admission = admission
        self._acknowledging = acknowledging
        self._store = store

    def change(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer 200053. Raises CommandError."""
        header = ChangeInvisibleTimeRequestHeader.decode(request.ext_fields)
        self._admission.check_receipt_queue(header.topic, header.queue_id, connection.peer)
        self._admission.check_invisible_time(header.invisible_time_ms, 0)
        receipt = parse_receipt(header.extra_info)
        queue = QueueKey(header.topic, header.consumer_group, header.queue_id)
        renewed = self._acknowledging.change_invisible_time(
            queue, receipt, header.offset, header.invisible_time_ms
        )
        fields = ChangeInvisibleTimeResponseHeader(
            invisible_time_ms=renewed.invisible_time_ms,
            pop_time=renewed.pop_time,
            revive_queue_id=renewed.revive_queue_id,
        ).encode()
        return respond_when_durable(self._store, request.response(ResponseCode.SUCCESS, ext_fields=fields))
