"""Taking messages back that wait for their time.

Source: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.recallMessage.
"""

from __future__ import annotations

import asyncio

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.admin import RecallMessageRequestHeader, RecallMessageResponseHeader
from rmq_remoting.recall_handle import RecallHandle, RecallHandleError

from ..brokers import BrokerApi
from ..errors import NoQueue, TimedOut, UsageError
from ..instance import ClientInstance
from .delivery import Delivery


class Recalls:
    """Recalls of one producer. Belongs to its loop."""

    def __init__(self, instance: ClientInstance, delivery: Delivery, group: str) -> None:
        self._brokers = BrokerApi(instance.crossing(), instance.settings)
        self._delivery = delivery
        self._group = group

    async def recall(self, handle: str, timeout_seconds: float) -> str:
        """Take a message back; its id. Raises UsageError, NoQueue, BrokerError, UnreachableError …"""
        try:
            wanted = RecallHandle.decode(handle)
        except RecallHandleError as error:
            raise UsageError(str(error)) from error
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._recall(handle, wanted, timeout_seconds)
        except TimeoutError:
            raise TimedOut(
                f"broker {wanted.broker_name} did not say within {timeout_seconds:.3g} s whether the message "
                f"to {wanted.topic} is taken back"
            ) from None

    async def _recall(self, handle: str, wanted: RecallHandle, timeout_seconds: float) -> str:
        route = (await self._delivery.publishing(wanted.topic, timeout_seconds)).route
        address = route.brokers.get(wanted.broker_name, {}).get(MASTER_BROKER_ID)
        if address is None:
            raise NoQueue(
                f"broker {wanted.broker_name}, where the message to {wanted.topic} waits, is not known to "
                "the name servers now"
            )
        header = RecallMessageRequestHeader(
            producer_group=self._group,
            topic=wanted.topic,
            recall_handle=handle,
            broker_name=wanted.broker_name,
        )
        return await self._brokers.ask(
            address,
            RequestCode.RECALL_MESSAGE,
            header,
            f"recall of a message to {wanted.topic}",
            lambda response: RecallMessageResponseHeader.decode(response.ext_fields).msg_id,
        )
