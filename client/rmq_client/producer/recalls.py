"""Recalls of delayed messages.

Source: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.recallMessage.
"""

from __future__ import annotations

import asyncio

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.admin import RecallMessageRequestHeader, RecallMessageResponseHeader
from rmq_remoting.message_properties import PROPERTY_MSG_REGION
from rmq_remoting.recall_handle import RecallHandle, RecallHandleError

from ..errors import NoQueue, TimedOut, UsageError
from ..hooks.send import Recall, SendHooks
from ..namespaces import Namespace
from ..network.broker_api import BrokerApi
from ..network.instance import ClientInstance
from .sender import MessageSender


class Recalls:
    """Recalls of one producer. Belongs to its loop."""

    def __init__(
        self, instance: ClientInstance, sender: MessageSender, group: str, hooks: SendHooks | None = None
    ) -> None:
        """`group` is the full name."""
        self._namespace = Namespace(instance.settings.namespace)
        self._hooks = hooks
        self._brokers = BrokerApi(instance.bridge(), instance.settings)
        self._sender = sender
        self._group = group

    async def recall(self, handle: str, timeout_seconds: float) -> str:
        """Recall a message and return its id. Raises UsageError, NoQueue, BrokerError, UnreachableError …"""
        try:
            wanted = RecallHandle.decode(handle)
        except RecallHandleError as error:
            raise UsageError(str(error)) from error
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._recall(handle, wanted, timeout_seconds)
        except TimeoutError:
            late = TimedOut(
                f"broker {wanted.broker_name} did not answer within {timeout_seconds:.3g} s; the message to "
                f"{wanted.topic} may have been recalled"
            )
            # If the route came too late, the broker was not asked. Unknown is the safe answer.
            late.is_outcome_unknown = True
            raise late from None

    async def _recall(self, handle: str, wanted: RecallHandle, timeout_seconds: float) -> str:
        route = (await self._sender.publish_info(wanted.topic, timeout_seconds)).route
        address = route.brokers.get(wanted.broker_name, {}).get(MASTER_BROKER_ID)
        if address is None:
            raise NoQueue(
                f"broker {wanted.broker_name}, which has the message to {wanted.topic}, is unknown to the "
                "name servers"
            )
        header = RecallMessageRequestHeader(
            producer_group=self._group,
            topic=wanted.topic,
            recall_handle=handle,
            broker_name=wanted.broker_name,
        )
        msg_id, region = await self._brokers.ask(
            address, RequestCode.RECALL_MESSAGE, header, f"recall of a message to {wanted.topic}", _read
        )
        if self._hooks is not None:
            topic = self._namespace.unwrap(wanted.topic)
            self._hooks.recalled(Recall(self._hooks.group, topic, msg_id, region))
        return msg_id


def _read(response: RemotingCommand) -> tuple[str, str | None]:
    """Return the message's id, and the broker's region if the broker tells it."""
    fields = response.ext_fields
    return RecallMessageResponseHeader.decode(fields).msg_id, fields.get(PROPERTY_MSG_REGION)
