"""From a message that is ready to a broker that has it: routes, attempts, and what is worth another one.

Source of the rules: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.sendDefaultImpl.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import next_opaque
from rmq_remoting.errors import RequestError, RequestTimeout, TooManyRequests
from rmq_remoting.message_queue import MessageQueue

from ..errors import BrokerError, ClientError, NoQueue, TimedOut, TooMuchUnderWay, unanswered
from ..instance import ClientInstance, now_ms
from ..names import check_topic_to_send
from .encoding import Lane, Outgoing, Stored, decode_send_response
from .policies import RetryPolicy
from .publishing import Publishing
from .results import SendStatus

log = logging.getLogger("rmq.client.delivery")

# Another attempt on the broker that just failed waits this long, and twice as long each further time.
_FIRST_PAUSE_SECONDS: Final = 0.05
# Refusals that an outdated route may be the reason of.
_ROUTE_MAY_BE_OLD: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION})


class Delivery:
    """Sends for one producer. Belongs to the loop that it was made on."""

    def __init__(
        self, instance: ClientInstance, group: str, retry: RetryPolicy, new_topic_queues: int
    ) -> None:
        self._instance = instance
        self._crossing = instance.crossing()
        self._group = group
        self._retry = retry
        self._new_topic_queues = new_topic_queues
        self._routes = instance.routes.publishable
        self._publishings: dict[str, Publishing] = {}
        self._loop = asyncio.get_running_loop()

    # --- where ---

    def known(self, topic: str) -> Publishing | None:
        """How to send to a topic, if that is known and still true."""
        publishing = self._publishings.get(topic)
        if publishing is not None and publishing.route is self._routes.get(topic):
            return publishing
        return None

    async def publishing(self, topic: str, timeout_seconds: float) -> Publishing:
        """How to send to a topic. Raises UsageError for a bad name, TopicNotFound, NoQueue, TimedOut …"""
        publishing = self.known(topic)
        if publishing is not None:
            return publishing
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._open(topic)
        except TimeoutError:
            raise TimedOut(
                f"the name servers {self._instance.name_servers} did not tell the route of topic {topic} "
                f"within {timeout_seconds:.3g} s"
            ) from None

    async def _open(self, topic: str) -> Publishing:
        instance = self._instance
        route = self._routes.get(topic)
        if route is None:
            check_topic_to_send(topic)
            route = await instance.run(instance.routes.route_to_publish(topic, self._new_topic_queues))
        try:
            publishing = Publishing(
                route, self._group, self._new_topic_queues, instance.settings.serialization
            )
        except NoQueue:
            self._ask_route_again(topic)
            raise
        self._publishings[topic] = publishing
        return publishing

    # --- one way ---

    async def connect(self, lane: Lane) -> None:
        """See that there is a connection to a lane's broker. Raises UnreachableError."""
        instance = self._instance
        if not instance.links.is_up(lane.address):
            try:
                await instance.run(instance.links.connect(lane.address))
            except RequestError as error:
                raise self._failure(error, lane) from error

    def post(self, lane: Lane, outgoing: Outgoing) -> asyncio.Future[None]:
        """Send without an answer; the future ends when the message is in the connection's buffer."""
        frame = lane.frame(next_opaque(), now_ms(), outgoing, oneway=True)
        return self._crossing.send_oneway(lane.address, frame)

    # --- with an answer ---

    async def send(
        self,
        publishing: Publishing,
        queue: MessageQueue | None,
        outgoing: Outgoing,
        timeout_seconds: float,
    ) -> tuple[Lane, Stored]:
        """Send until a broker has the message, no attempt is left, or time is over. Raises ClientError.

        Without a `queue` of the caller's choice, any will do: only then there are further attempts.
        """
        lane = publishing.rotation.take() if queue is None else self.lane_to(publishing, queue)
        started = self._loop.time()
        opaque = next_opaque()
        frame = lane.frame(opaque, now_ms(), outgoing)
        outcome: Stored | ClientError
        try:
            response = await self._crossing.send(lane.address, opaque, frame, timeout_seconds)
            outcome = decode_send_response(response, lane)
        except (RequestError, BrokerError) as error:
            outcome = self._failure(error, lane)
            if queue is not None:
                raise outcome from error
        else:
            if queue is not None or self._suffices(outcome):
                return lane, outcome
        return await self._send_again(outgoing, lane, outcome, started + timeout_seconds)

    async def _send_again(
        self, outgoing: Outgoing, lane: Lane, outcome: Stored | ClientError, deadline: float
    ) -> tuple[Lane, Stored]:
        """The attempts after the first, which ended with `outcome`."""
        stored: tuple[Lane, Stored] | None = None
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(self._retry.retries):
            if isinstance(outcome, Stored):
                stored = stored or (lane, outcome)
            elif not _is_retryable(outcome):
                break
            publishing = await self.publishing(lane.queue.topic, max(0.0, deadline - self._loop.time()))
            failed_broker = lane.broker_name
            lane = publishing.rotation.take_off(failed_broker)
            if lane.broker_name == failed_broker:
                await asyncio.sleep(min(pause, max(0.0, deadline - self._loop.time())))
                pause *= 2
            remaining = deadline - self._loop.time()
            if remaining <= 0:
                break
            log.info("send to %s goes to %s next: %s", lane.queue.topic, lane.address, outcome)
            opaque = next_opaque()
            frame = lane.frame(opaque, now_ms(), outgoing)
            try:
                response = await self._crossing.send(lane.address, opaque, frame, remaining)
                outcome = decode_send_response(response, lane)
            except (RequestError, BrokerError) as error:
                outcome = self._failure(error, lane)
            else:
                if self._suffices(outcome):
                    return lane, outcome
        if isinstance(outcome, Stored):
            return stored or (lane, outcome)
        if stored is not None:
            return stored
        raise outcome

    def lane_to(self, publishing: Publishing, queue: MessageQueue) -> Lane:
        """Raises NoQueue; its broker may be known by the next attempt."""
        try:
            return publishing.lane(queue)
        except NoQueue:
            self._ask_route_again(queue.topic)
            raise

    def _suffices(self, stored: Stored) -> bool:
        return stored.status is SendStatus.SEND_OK or not self._retry.unless_stored_safely

    def _failure(self, error: RequestError | BrokerError, lane: Lane) -> ClientError:
        """The SDK's error for a failed attempt; the route is asked for again where it may be why."""
        topic = lane.queue.topic
        if isinstance(error, BrokerError):
            if error.code in _ROUTE_MAY_BE_OLD:
                self._ask_route_again(topic)
            return error
        if not isinstance(error, (TooManyRequests, RequestTimeout)):
            self._ask_route_again(topic)
        failure = unanswered(error, f"send to {topic} on {lane.broker_name}")
        failure.__cause__ = error
        return failure

    def _ask_route_again(self, topic: str) -> None:
        self._instance.loop.call_soon_threadsafe(self._instance.routes.request_failed, topic)


def _is_retryable(error: ClientError) -> bool:
    if isinstance(error, BrokerError):
        return error.retryable
    return not isinstance(error, TooMuchUnderWay)
