"""Hiding a popped message for another time: code 200053 (ChangeInvisibleTimeProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Result
from rmq_remoting.headers.pop import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader

from ..pop.check_point import QueueKey
from .on_disk import when_on_disk
from .pop_admission import PopAdmission, parse_receipt

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..pop.acknowledging import Acknowledging
    from ..store.api import MessageStore


class ChangeInvisibleProcessor:
    """Gives a new receipt for an old one, which is good for nothing from then on."""

    def __init__(self, admission: PopAdmission, acknowledging: Acknowledging, store: MessageStore) -> None:
        self._admission = admission
        self._acknowledging = acknowledging
        self._store = store

    def change(self, connection: Connection, request: RemotingCommand) -> Result:
        """200053."""
        header = ChangeInvisibleTimeRequestHeader.decode(request.ext_fields)
        self._admission.check_settled(header.topic, header.queue_id, connection.peer)
        self._admission.check_invisible_time(header.invisible_time_ms, 0)
        receipt = parse_receipt(header.extra_info)
        queue = QueueKey(header.topic, header.consumer_group, header.queue_id)
        hidden = self._acknowledging.hide(queue, receipt, header.offset, header.invisible_time_ms)
        fields = ChangeInvisibleTimeResponseHeader(
            invisible_time_ms=hidden.invisible_time_ms,
            pop_time=hidden.pop_time,
            revive_queue_id=hidden.revive_queue_id,
        ).encode()
        return when_on_disk(self._store, request.response(ResponseCode.SUCCESS, ext_fields=fields))
