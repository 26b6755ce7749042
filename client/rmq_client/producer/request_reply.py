"""Requests that wait for a reply, and replies (Apache RocketMQ 5.3.3, DefaultMQProducerImpl.request)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rmq_remoting.message import Message, MessageExt

from ..errors import BrokerError, ClientError, NoReply, TooMuchUnderWay, UnreachableError
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from ..network.routing import TopicRoute
from ..replies import reply_to, request_of
from ..results import SendResult
from .sender import MessageSender

log = logging.getLogger(__name__)

# The longest delay of a request by brokers that do not answer heartbeats.
_INTRODUCTION_SECONDS: Final = 1.0
# Time-out of a send after the deadline, so that it fails at once.
_LEAST_SECONDS: Final = 0.001

Send = Callable[..., Coroutine[Any, Any, SendResult]]
"""`Producer.send`."""


class RequestReply:
    """Requests and replies of one producer. Belongs to its loop."""

    def __init__(self, instance: ClientInstance, sender: MessageSender, send: Send, max_waiting: int) -> None:
        """Allow at most `max_waiting` requests that wait for their replies."""
        self._instance = instance
        self._namespace = Namespace(instance.settings.namespace)
        self._sender = sender
        self._send = send
        self._max_waiting = max_waiting
        self._waiting = 0
        # By topic: the route whose brokers know this client.
        self._announced_routes: dict[str, TopicRoute] = {}

    async def request(self, message: Message, timeout_seconds: float, **where: object) -> MessageExt:
        """Send a request and return its reply; `where` selects the queue as for `send`.

        Raises NoReply, TooMuchUnderWay, and ClientError as `send`.
        """
        if self._waiting >= self._max_waiting:
            raise TooMuchUnderWay(
                f"{self._waiting} requests already wait for their replies: send requests slower, or raise "
                "the bound with limits=InFlightLimits(...)"
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        request, correlation_id = request_of(message, self._instance.client_id, timeout_seconds)
        self._waiting += 1
        reply = self._instance.replies.expect(correlation_id)
        try:
            await self._announce_to_brokers(message.topic, timeout_seconds)
            try:
                await self._send(
                    request, timeout_seconds=max(_LEAST_SECONDS, deadline - loop.time()), **where
                )
            except UnreachableError:
                if not reply.done():
                    raise  # otherwise only the answer to the request got lost
            async with asyncio.timeout_at(deadline):
                answer = await reply
        except TimeoutError:
            raise NoReply(
                f"the request to topic {message.topic} was sent, but no reply came within "
                f"{timeout_seconds:.3g} s: is there a consumer of the topic that replies?"
            ) from None
        finally:
            self._waiting -= 1
            self._instance.replies.forget(correlation_id)
        self._namespace.unwrap_topics([answer])
        return answer

    async def reply(self, request: Message, body: bytes, timeout_seconds: float) -> SendResult:
        """Send the reply to a request, through the broker of the request or else another one.

        Raises UsageError for a message that is not a request, and ClientError as `send`.
        """
        reply = reply_to(request, body)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        broker_name = request.broker_name if isinstance(request, MessageExt) else ""
        queues = (await self._sender.publish_info(reply.topic, timeout_seconds)).queues
        queue = next((queue for queue in queues if queue.broker_name == broker_name), None)
        is_unknown = False
        if queue is not None:
            try:
                share_seconds = timeout_seconds if len(queues) == 1 else timeout_seconds / 2
                return await self._send(reply, queue=queue, timeout_seconds=share_seconds)
            except (BrokerError, UnreachableError) as error:
                if len(queues) == 1:
                    raise
                is_unknown = error.is_outcome_unknown
                log.info(
                    "reply not sent through the request's broker broker=%s cause=%s; another broker is tried",
                    broker_name,
                    error,
                )
        try:
            return await self._send(reply, timeout_seconds=max(_LEAST_SECONDS, deadline - loop.time()))
        except ClientError as error:
            error.is_outcome_unknown |= is_unknown
            raise

    async def _announce_to_brokers(self, topic: str, timeout_seconds: float) -> None:
        """Make this client known to all brokers of the topic: the reply can come through any of them."""
        route = (await self._sender.publish_info(topic, timeout_seconds)).route
        if self._announced_routes.get(topic) is route:
            return
        instance = self._instance
        try:
            async with asyncio.timeout(min(_INTRODUCTION_SECONDS, timeout_seconds)):
                await instance.run(instance.announce())
        except (TimeoutError, ClientError) as error:
            log.info(
                "client not announced to all brokers topic=%s cause=%s; replies through the others get lost",
                topic,
                error or "time-out",
            )
        self._announced_routes[topic] = route
