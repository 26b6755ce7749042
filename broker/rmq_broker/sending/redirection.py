"""Store messages in another topic than they were sent to.

Delayed and timed messages wait for their time, half messages for the end of their transaction; dead letters
stay where they are put. Source: Apache RocketMQ 5.3.3, HookUtils, SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.message_properties import decode_properties

from ..delivery.retries import Failure, group_of_retry_topic
from .kinds import SendKind

if TYPE_CHECKING:
    from rmq_remoting.headers.send import SendTarget

    from ..delivery.inner_message import InnerMessage
    from ..delivery.message_writer import MessageWriter, Written
    from ..delivery.retries import Retries
    from ..transactions.preparing import Preparing
    from .plan import SendPlan

# A lookup of a module's name takes half as long as that of an enum's member.
_DELAYED: Final = SendKind.DELAYED
_TIMED: Final = SendKind.TIMED
_HALF: Final = SendKind.HALF


class Redirection:
    """Decides which sends become dead letters, and stores all messages that are redirected."""

    def __init__(self, writer: MessageWriter, retries: Retries, preparing: Preparing) -> None:
        self._writer = writer
        self._retries = retries
        self._preparing = preparing

    def dead_letter_queue(self, target: SendTarget, client_version: int) -> tuple[str, int] | None:
        """Return topic and queue id of the dead letters that a send to a retry topic belongs to, or None.

        Consumers send to their retry topic themselves where a send-back (code 36) has failed, or where they
        consume in order and give a message up. Raises CommandError for an unknown group.
        """
        group = group_of_retry_topic(target.topic)
        if group is None or target.batch:
            return None
        redelivery = self._retries.dead_letter_for_send(
            Failure(
                group,
                target.reconsume_times,
                max_reconsume_times=target.max_reconsume_times,
                client_version=client_version,
            )
        )
        return None if redelivery is None else (redelivery.topic, redelivery.queue_id)

    def put(self, plan: SendPlan, target: SendTarget, message: InnerMessage) -> Written:
        """Store the message of a DELAYED, TIMED, HALF or DEAD_LETTER send.

        Raises CommandError, StoreUnavailable, MessageRejected.
        """
        kind = plan.kind
        if kind is _DELAYED:
            return self._writer.put(message, plan.delay_level)
        if kind is _TIMED:
            return self._writer.put(message)
        if kind is _HALF:
            return self._preparing.put(message, target.producer_group, plan.unique_key)
        return self._put_dead_letter(target, message)

    def _put_dead_letter(self, target: SendTarget, message: InnerMessage) -> Written:
        """Store a dead letter at once, whatever delay it was sent with."""
        fields = decode_properties(message.properties)
        message.set_properties({**fields, "DELAY": "-1"})
        written = self._writer.put(message)
        group = group_of_retry_topic(target.topic)
        if group is not None:
            self._retries.count(group, fields.get("RETRY_TOPIC", ""), is_dead_letter=True)
        return written
