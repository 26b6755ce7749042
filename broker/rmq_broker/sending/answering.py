"""Encode the answers to sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import FrameDecoder
from rmq_remoting.headers.send_answers import SendResponseEncoder
from rmq_remoting.message_properties import find_property
from rmq_remoting.recall_handle import RecallHandle

from ..delivery.message_writer import Written
from ..delivery.store_refusals import refusal
from ..delivery.timer_admission import TimerCongested, TimersOff
from ..store.api import Durability, MessageRejected, PlacedBatch, StoreUnavailable
from ..topics.names import RETRY_PREFIX
from ..topics.queue_mapping import bounded_logical_offset
from .kinds import SendKind

if TYPE_CHECKING:
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from .plan import SendPlan
    from .routes import Route
    from .storing import Stored

_PLAIN: Final = SendKind.PLAIN
_BATCH: Final = SendKind.BATCH
_UNIT: Final = SendKind.UNIT
# A message that is stored, and less durable than the settings ask.
_CODES_OF_STORED: Final = {
    Durability.FLUSH_TIMED_OUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    Durability.REPLICA_TIMED_OUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    Durability.NO_REPLICA: ResponseCode.SLAVE_NOT_AVAILABLE,
}
_NO_FIELDS: Final[Mapping[str, str]] = {}


class SendAnswers:
    """Makes the answers to sends, each in its request's serialization."""

    def __init__(self, settings: BrokerSettings, store: MessageStore, store_host: bytes) -> None:
        """`store_host`: this broker's address, packed as in records; message ids begin with it."""
        self._settings = settings
        self._store = store
        self._msg_id_prefix = store_host.hex().upper().encode()
        self.follow_settings()

    def follow_settings(self) -> None:
        """Use the settings as they are now; to be called after a change."""
        self._encoder = SendResponseEncoder(self._settings.region_id, self._settings.trace_on)

    def stored(self, request: RemotingCommand, route: Route, plan: SendPlan, stored: Stored) -> bytes:
        """Return the answer to a send whose messages were stored."""
        if isinstance(stored, PlacedBatch):
            msg_id = self._msg_ids(stored.physical_offsets)
        else:
            msg_id = b"%b%016X" % (self._msg_id_prefix, stored.physical_offset)
        queue_id, queue_offset, unique_key = route.answered_queue_id, stored.queue_offset, plan.unique_key
        if route.item is not None:
            queue_offset = bounded_logical_offset(route.item, queue_offset)
        kind = plan.kind
        if kind is _PLAIN or kind is _BATCH:
            return self._encoder.encode(request, msg_id, queue_id, queue_offset, unique_key)
        further = self._further_fields(route, plan, stored)
        return self._encoder.encode(request, msg_id, queue_id, queue_offset, unique_key, further)

    def refused(self, request: RemotingCommand, error: CommandError) -> RemotingCommand:
        """Return the answer to a send that was refused."""
        return request.response(error.code, error.remark, dict(self._encoder.constant_fields))

    def not_stored(
        self, request: RemotingCommand, error: StoreUnavailable | MessageRejected
    ) -> RemotingCommand:
        """Return the answer to a send that the store did not accept; nothing was stored."""
        if isinstance(error, (TimersOff, TimerCongested)):
            return self.refused(request, CommandError(ResponseCode.SYSTEM_ERROR, str(error)))
        return self.refused(request, refusal(error))

    def durable(self, answer: bytes, durability: Durability) -> bytes | RemotingCommand:
        """Return the answer to a send whose wait has ended; `answer` is that for a durable message.

        Raises CommandError where the flush failed.
        """
        if durability is Durability.DURABLE:
            return answer
        code = _CODES_OF_STORED.get(durability)
        if code is not None:
            (changed,) = FrameDecoder().feed(answer)
            changed.code = code
            return changed
        raise CommandError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the message may be lost: {self._store.unavailable_reason}. Send it again, to another broker",
        )

    def _msg_ids(self, offsets: Sequence[int]) -> bytes:
        """Return the offset message ids of a batch, separated by commas.

        All offsets are formatted in one step: one by one they take twice as long.
        """
        prefix = self._msg_id_prefix.decode()
        digits = pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return f"{prefix}{digits.replace(',', ',' + prefix)}".encode()

    def _further_fields(self, route: Route, plan: SendPlan, stored: Stored) -> Mapping[str, str]:
        """Return the fields that only some kinds of sends are answered with."""
        if plan.kind is _UNIT and plan.unique_key:
            return {"batchUniqId": plan.unique_key.decode()}
        if not isinstance(stored, Written) or stored.timer_out_ms is None:
            return _NO_FIELDS
        if route.topic.startswith(RETRY_PREFIX):
            return _NO_FIELDS
        # SendMessageProcessor.attachRecallHandle. The next millisecond is inside the message's timer slot.
        handle = RecallHandle(
            route.topic, self._settings.broker_name, stored.timer_out_ms + 1, plan.unique_key.decode()
        )
        return {"recallHandle": handle.encode()}


def waits_for_durability(properties: bytes) -> bool:
    """Whether the producer wants its answer only when the message is durable (property WAIT).

    (Apache RocketMQ 5.3.3, Message.isWaitStoreMsgOK.)
    """
    value = find_property(properties, b"WAIT")
    return value is None or value.lower() == b"true"
