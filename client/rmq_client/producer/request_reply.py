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

log = logging.getLogger("rmq.client.requests")

# For brokers that do not answer, a request is not held up for longer than this.
_INTRODUCTION_SECONDS: Final = 1.0

Send = Callable[..., Coroutine[Any, Any, SendResult]]
"""`Producer.send`."""


class RequestReply:
    """The requests of one producer. Belongs to its loop."""

    def __init__(self, instance: ClientInstance, sender: MessageSender, send: Send, max_waiting: int) -> None:
        """At most `max_waiting` requests wait for their replies at the same time."""
        self._instance = instance
        self._namespace = Namespace(instance.settings.namespace)
        self._sender = sender
        self._send = send
        self._max_waiting = max_waiting
        self._waiting = 0
        # By topic: the route whose brokers know this client.
        self._announced_routes: dict[str, TopicRoute] = {}

    async def request(self, message: Message, timeout_seconds: float, **where: object) -> MessageExt:
        """Send a request and wait for its reply; `where` chooses its queue as for `send`.

        Raises NoReply, TooMuchUnderWay, and ClientError as `send`.
        """
        if self._waiting >= self._max_waiting:
            raise TooMuchUnderWay(
                f"{self._waiting} requests wait for their replies already: ask slower, or allow more with "
                "limits=InFlightLimits(...)"
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        request, correlation_id = request_of(message, self._instance.client_id, timeout_seconds)
        self._waiting += 1
        reply = self._instance.replies.expect(correlation_id)
        try:
            await self._announce_to_brokers(message.topic, timeout_seconds)
            try:
                await self._send(request, timeout_seconds=max(0.0, deadline - loop.time()), **where)
            except UnreachableError:
                if not reply.done():
                    raise  # else the answer got lost, and the request did not
            async with asyncio.timeout_at(deadline):
                answer = await reply
        except TimeoutError:
            raise NoReply(
                f"the request to topic {message.topic} was sent, but no reply came within "
                f"{timeout_seconds:.3g} s: does somebody consume the topic, and reply?"
            ) from None
        finally:
            self._waiting -= 1
            self._instance.replies.forget(correlation_id)
        self._namespace.unwrap_topics([answer])
        return answer

    async def reply(self, request: Message, body: bytes, timeout_seconds: float) -> SendResult:
        """Send the reply to a request: through the broker that the request came from, or else another one.

        Raises UsageError where nobody waits for one, and ClientError as `send`.
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
                log.info("a reply goes through another broker than %s: %s", broker_name, error)
        try:
            return await self._send(reply, timeout_seconds=max(0.0, deadline - loop.time()))
        except ClientError as error:
            error.is_outcome_unknown |= is_unknown
            raise

    async def _announce_to_brokers(self, topic: str, timeout_seconds: float) -> None:
        """See that all brokers of the topic know this client: a reply can come through any of them."""
        route = (await self._sender.publish_info(topic, timeout_seconds)).route
        if self._announced_routes.get(topic) is route:
            return
        instance = self._instance
        try:
            async with asyncio.timeout(min(_INTRODUCTION_SECONDS, timeout_seconds)):
                await instance.run(instance.announce())
        except (TimeoutError, ClientError) as error:
            log.info("not all brokers of topic %s know this client yet: %s", topic, error or "no answer")
        self._announced_routes[topic] = route
