"""Acknowledgements, redeliveries and dead letters of popped messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...errors import BrokerUnreachable, ClientError
from ...hooks.consume import SettlementKind
from ...hooks.consumption import ConsumptionHooks
from ...network.routing import RouteTable
from ..processing.listener import DEAD_LETTER
from ..processing.send_back import FIRST_RETRY_LEVEL, SendBack
from ..requests.ack_sender import AckSender, log_failure
from ..requests.pop_client import PopClient

log = logging.getLogger(__name__)

# Seconds of the brokers' delay levels, level 1 first (Apache RocketMQ 5.3.3, MessageStoreConfig).
_LEVEL_SECONDS: Final[tuple[int, ...]] = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)


def retry_seconds(message: MessageExt, delay_level: int) -> int:
    """Return the delay of a refused message: that of its level, or with level 0 one that grows with its
    attempts.

    That is 10 s, 30 s, 1 min ... up to 2 h (Apache RocketMQ 5.3.3, DefaultMQPushConsumerImpl.popDelayLevel).
    """
    level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
    return _LEVEL_SECONDS[min(level, len(_LEVEL_SECONDS)) - 1]


class PopAcknowledger:
    """Acknowledges, redelivers and dead-letters messages of one group. Belongs to the network loop."""

    def __init__(
        self,
        client: PopClient,
        acks: AckSender,
        routes: RouteTable,
        send_back: SendBack,
        hooks: ConsumptionHooks | None = None,
    ) -> None:
        """`hooks` get all outcomes."""
        self._hooks = hooks
        self._client = client
        self._acks = acks
        self._routes = routes
        self._send_back = send_back

    def ack(self, message: MessageExt) -> None:
        """Acknowledge a message without waiting. If that fails, the message is redelivered.

        Raises ClientError if the request cannot even be sent.
        """
        topic = self._client.topic_of(message)
        acked = self._acks.post(self._address(message), topic, self._client.handle_of(message))
        acked.add_done_callback(log_failure)
        if self._hooks is not None:
            acked.add_done_callback(partial(self._acked, message, time.perf_counter()))

    def _acked(self, message: MessageExt, began: float, acked: asyncio.Future[None]) -> None:
        if self._hooks is None or acked.cancelled():
            return
        elapsed = time.perf_counter() - began
        self._hooks.settled(SettlementKind.ACK, [message], elapsed, acked.exception(), automatic=True)

    def ack_all(self, messages: Iterable[MessageExt]) -> None:
        """Acknowledge messages; a failure is logged, and the message is redelivered."""
        for message in messages:
            try:
                self.ack(message)
            except ClientError as error:
                log.warning(
                    "message not acknowledged id=%s cause=%s; it is redelivered", message.msg_id, error
                )

    async def make_visible(self, messages: Iterable[MessageExt], seconds: float = 0.0) -> None:
        """Make messages visible again after that time; a failure is logged."""

        async def make_visible(message: MessageExt) -> None:
            try:
                await self.change_invisible_time(message, seconds)
            except ClientError as error:
                log.info(
                    "invisible time not changed id=%s cause=%s; the message is redelivered when it ends",
                    message.msg_id,
                    error,
                )

        await asyncio.gather(*(make_visible(message) for message in messages))

    async def change_invisible_time(self, message: MessageExt, seconds: float) -> None:
        """Make a message visible again after that time. Raises ClientError."""
        await self._change_invisible_time(message, seconds, SettlementKind.INVISIBLE_TIME)

    async def retry(self, message: MessageExt, seconds: float) -> None:
        """Have a refused message redelivered after that time. Raises ClientError."""
        await self._change_invisible_time(message, seconds, SettlementKind.RETRY)

    async def _change_invisible_time(self, message: MessageExt, seconds: float, kind: SettlementKind) -> None:
        if self._hooks is None:
            await self._change_now(message, seconds)
            return
        with self._hooks.settling(kind, [message], delay_seconds=seconds, automatic=True):
            await self._change_now(message, seconds)

    async def _change_now(self, message: MessageExt, seconds: float) -> None:
        held = self._client.handle_of(message)
        await self._client.change_invisible_time(self._address(message), held, round(seconds * 1000))

    async def send_to_dead_letters(self, message: MessageExt) -> None:
        """Make a copy of the message a dead letter; the caller acknowledges the message.

        Raises ClientError.
        """
        queue = MessageQueue(self._client.topic_of(message), message.broker_name, message.queue_id)
        await self._send_back.send_back(message, queue, DEAD_LETTER)

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until all acknowledgements are answered."""
        await self._acks.drain(timeout_seconds)

    def _address(self, message: MessageExt) -> str:
        route = self._routes.existing.get(self._client.topic_of(message))
        address = None if route is None else route.broker_address(message.broker_name)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {message.broker_name} is known")
        return address
