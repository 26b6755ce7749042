"""Sends of encoded messages: route lookup, attempts, and retries.

Source of the rules: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.sendDefaultImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rmq_remoting.backoff import Backoff
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, next_opaque
from rmq_remoting.errors import RequestError, RequestTimeout, TooManyRequests
from rmq_remoting.headers.offsets import GetMaxOffsetRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ..clock import now_ms
from ..errors import (
    BrokerError,
    Busy,
    ClientError,
    NoQueue,
    TimedOut,
    Unavailable,
    UsageError,
    request_failure,
)
from ..names import check_topic_to_send
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from ..results import SendStatus
from .encoding import Outgoing, QueueEndpoint, Stored, decode_send_response
from .fault_detector import FaultDetector
from .fault_tolerance import BrokerHealth, FaultTolerance
from .policies import RetryPolicy
from .publish_info import TopicPublishInfo
from .selection import RoundRobin

log = logging.getLogger(__name__)

# Pauses before retries on the broker that just failed.
_BACKOFF: Final = Backoff(0.05, 1.0)
# Codes that an outdated route may cause.
_ROUTE_MAY_BE_OLD: Final = frozenset(
    {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.NOT_LEADER_FOR_QUEUE}
)


class MessageSender:
    """Sends for one producer. Belongs to the loop that it was created on.

    Topics and queues have the application's names; the namespace, if there is one, is added here.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        retry: RetryPolicy,
        new_topic_queues: int,
        fault_tolerance: FaultTolerance | None = None,
    ) -> None:
        """`group` is the full name. Without `fault_tolerance`, all brokers are tried alike."""
        self._instance = instance
        self._bridge = instance.bridge()
        self._group = group
        self._retry = retry
        self._limits_attempts = retry.attempt_timeout_seconds is not None
        self._new_topic_queues = new_topic_queues
        self._namespace = Namespace(instance.settings.namespace)
        self._routes = instance.routes.publishable
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._loop = asyncio.get_running_loop()
        self._health: BrokerHealth | None = None
        self._detector: FaultDetector | None = None
        if fault_tolerance is not None:
            self._health = BrokerHealth(fault_tolerance, self._loop.time)
            self._probe_seconds = fault_tolerance.detect_timeout_seconds
            if fault_tolerance.start_detector:
                self._detector = FaultDetector(
                    self._health, self._probe_broker, fault_tolerance.detect_interval_seconds
                )

    def start(self) -> None:
        """Start the background tasks."""
        if self._detector is not None:
            self._detector.start()

    async def stop(self) -> None:
        """Stop the background tasks."""
        if self._detector is not None:
            await self._detector.stop()

    # --- offsets and routes ---

    def known(self, topic: str) -> TopicPublishInfo | None:
        """Return the publish info of a topic, if it is known and up to date."""
        publish_info = self._publish_infos.get(topic)
        if publish_info is not None and publish_info.route is self._routes.get(publish_info.route.topic):
            return publish_info
        return None

    async def publish_info(self, topic: str, timeout_seconds: float) -> TopicPublishInfo:
        """Return the publish info of a topic.

        Raises UsageError for an invalid name, TopicNotFound, NoQueue, TimedOut …
        """
        publish_info = self.known(topic)
        if publish_info is not None:
            return publish_info
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._open(topic)
        except TimeoutError:
            raise TimedOut(
                f"the name servers {self._instance.name_servers} did not return the route of topic {topic} "
                f"within {timeout_seconds:.3g} s"
            ) from None

    async def _open(self, topic: str) -> TopicPublishInfo:
        instance = self._instance
        full_name = self._namespace.wrap(topic)
        route = self._routes.get(full_name)
        if route is None:
            check_topic_to_send(full_name)
            route = await instance.run(instance.routes.route_to_publish(full_name, self._new_topic_queues))
        try:
            publish_info = TopicPublishInfo(
                route,
                self._group,
                self._new_topic_queues,
                instance.settings.serialization,
                self._namespace,
            )
        except NoQueue:
            self._request_route_refresh(topic)
            raise
        self._publish_infos[topic] = publish_info
        return publish_info

    # --- one-way sends ---

    async def connect(self, endpoint: QueueEndpoint) -> None:
        """Make sure that there is a connection to an endpoint's broker. Raises UnreachableError."""
        instance = self._instance
        if not instance.connections.is_connected(endpoint.address):
            started = self._loop.time()
            try:
                await instance.run(instance.connections.connect(endpoint.address))
            except RequestError as error:
                raise self._failure(error, endpoint, started) from error

    def post(self, endpoint: QueueEndpoint, outgoing: Outgoing) -> asyncio.Future[None]:
        """Send one-way. The future is done when the message is in the connection's buffer."""
        frame = endpoint.frame(next_opaque(), now_ms(), outgoing, oneway=True)
        return self._bridge.send_oneway(endpoint.address, frame)

    # --- sends ---

    async def send(
        self,
        publish_info: TopicPublishInfo,
        queue: MessageQueue | None,
        outgoing: Outgoing,
        timeout_seconds: float,
    ) -> tuple[QueueEndpoint, Stored]:
        """Send until a broker has the message, no attempt is left, or the time is over. Raises ClientError.

        Only a send without a `queue` of the caller's choice has further attempts. A send to a logical queue
        of a static topic follows the queue, if that has just been moved.
        """
        round_robin, limit_seconds = publish_info.round_robin, timeout_seconds
        if queue is not None:
            endpoint = self.endpoint_of(publish_info, queue)
        else:
            endpoint = round_robin.take() if self._health is None else self._choose(round_robin)
            if round_robin.has_other_brokers or self._limits_attempts:
                limit_seconds = self._retry.attempt_seconds(
                    timeout_seconds, self._retry.retries + 1, has_other=round_robin.has_other_brokers
                )
        started = self._loop.time()
        opaque = next_opaque()
        frame = endpoint.frame(opaque, now_ms(), outgoing)
        outcome: Stored | ClientError
        try:
            response = await self._bridge.send(endpoint.address, opaque, frame, limit_seconds)
            outcome = decode_send_response(response, endpoint)
        except (RequestError, BrokerError) as error:
            outcome = self._failure(error, endpoint, started, of_reply=outgoing.reply)
            if queue is not None:
                if not _is_moved(outcome):
                    raise outcome from error
                return await self._send_to_new_leader(queue, outgoing, outcome, started + timeout_seconds)
        else:
            if self._health is not None:
                self._health.answered(endpoint.broker_name, self._loop.time() - started)
            if queue is not None or self._is_sufficient(outcome):
                return endpoint, outcome
        return await self._send_again(outgoing, endpoint, outcome, started + timeout_seconds)

    async def _send_again(
        self, outgoing: Outgoing, endpoint: QueueEndpoint, outcome: Stored | ClientError, deadline: float
    ) -> tuple[QueueEndpoint, Stored]:
        """Run the attempts after the first, which ended with `outcome`."""
        stored: tuple[QueueEndpoint, Stored] | None = None
        failed: list[str] = []
        is_unknown = False
        pauses = 0
        for attempts_left in range(self._retry.retries, 0, -1):
            if isinstance(outcome, Stored):
                stored = stored or (endpoint, outcome)
            else:
                is_unknown |= outcome.is_outcome_unknown
                if not (self._retry.is_worthwhile(outcome) or _is_moved(outcome)):
                    break
            failed.append(endpoint.broker_name)
            topic = endpoint.queue.topic
            try:
                publish_info = await self.publish_info(topic, max(0.0, deadline - self._loop.time()))
            except ClientError as error:
                log.info("send not retried topic=%s cause=%s", topic, error)
                break
            round_robin = publish_info.round_robin
            endpoint = self._choose(round_robin, failed)
            if endpoint.broker_name == failed[-1]:
                pauses += 1
                await asyncio.sleep(min(_BACKOFF.pause(pauses), max(0.0, deadline - self._loop.time())))
            started = self._loop.time()
            remaining = deadline - started
            if remaining <= 0:
                break
            log.info("send retried topic=%s broker=%s cause=%s", topic, endpoint.address, outcome)
            limit_seconds = self._retry.attempt_seconds(
                remaining, attempts_left, has_other=round_robin.has_other_brokers
            )
            opaque = next_opaque()
            frame = endpoint.frame(opaque, now_ms(), outgoing)
            try:
                response = await self._bridge.send(endpoint.address, opaque, frame, limit_seconds)
                outcome = decode_send_response(response, endpoint)
            except (RequestError, BrokerError) as error:
                outcome = self._failure(error, endpoint, started, of_reply=outgoing.reply)
            else:
                if self._health is not None:
                    self._health.answered(endpoint.broker_name, self._loop.time() - started)
                if self._is_sufficient(outcome):
                    return endpoint, outcome
        if isinstance(outcome, Stored):
            return stored or (endpoint, outcome)
        if stored is not None:
            return stored
        outcome.is_outcome_unknown |= is_unknown
        raise outcome

    async def _send_to_new_leader(
        self, queue: MessageQueue, outgoing: Outgoing, refusal: ClientError, deadline: float
    ) -> tuple[QueueEndpoint, Stored]:
        """Send to a logical queue that its broker leads no longer, once the route tells its new leader.

        A queue has no leader for some milliseconds of a move. Raises the `refusal` at the deadline.
        """
        routes, attempts = self._instance.routes, 0
        while True:
            attempts += 1
            remaining = deadline - self._loop.time()
            if remaining <= 0:
                raise refusal
            await asyncio.sleep(min(_BACKOFF.pause(attempts), remaining))
            try:
                await self._instance.run(routes.refresh(self._namespace.wrap(queue.topic)))
                publish_info = await self.publish_info(queue.topic, max(0.0, deadline - self._loop.time()))
                endpoint = publish_info.endpoint(queue)
            except UsageError:
                raise  # the producer was stopped
            except ClientError as error:
                log.info("send to a moved queue not retried yet queue=%s cause=%s", queue, error)
                continue
            started = self._loop.time()
            if started >= deadline:
                raise refusal
            log.info("send retried queue=%s broker=%s cause=%s", queue, endpoint.address, refusal)
            opaque = next_opaque()
            frame = endpoint.frame(opaque, now_ms(), outgoing)
            try:
                response = await self._bridge.send(endpoint.address, opaque, frame, deadline - started)
                return endpoint, decode_send_response(response, endpoint)
            except (RequestError, BrokerError) as error:
                refusal = self._failure(error, endpoint, started)
                if not _is_moved(refusal):
                    raise refusal from error

    def choose(self, publish_info: TopicPublishInfo) -> QueueEndpoint:
        """Return the endpoint of a message that may go to any queue."""
        return (
            publish_info.round_robin.take()
            if self._health is None
            else self._choose(publish_info.round_robin)
        )

    def _choose(self, round_robin: RoundRobin[QueueEndpoint], failed: Sequence[str] = ()) -> QueueEndpoint:
        """Return the next endpoint: not on the brokers that failed in this send, or at least not on the
        last one.
        """
        endpoint = (
            round_robin.take_off(failed) if self._health is None else self._health.choose(round_robin, failed)
        )
        return (
            endpoint
            or round_robin.take_off(failed)
            or round_robin.take_off(failed[-1:])
            or round_robin.take()
        )

    def endpoint_of(self, publish_info: TopicPublishInfo, queue: MessageQueue) -> QueueEndpoint:
        """Return the endpoint of a queue. Raises NoQueue; a retry may know its broker."""
        try:
            return publish_info.endpoint(queue)
        except NoQueue:
            self._request_route_refresh(queue.topic)
            raise

    def _is_sufficient(self, stored: Stored) -> bool:
        return stored.status is SendStatus.SEND_OK or not self._retry.unless_stored_safely

    def _failure(
        self,
        error: RequestError | BrokerError,
        endpoint: QueueEndpoint,
        started: float,
        *,
        of_reply: bool = False,
    ) -> ClientError:
        """Return the SDK's error for a failed attempt, and refresh the route if it may be the cause."""
        topic = endpoint.queue.topic
        if self._health is not None:
            elapsed = self._loop.time() - started
            if not isinstance(error, BrokerError):
                self._health.failed(endpoint.broker_name, elapsed, refused=False)
            elif isinstance(error, (Busy, Unavailable)) and not of_reply:
                self._health.failed(endpoint.broker_name, elapsed, refused=True)
            else:  # caused by the message, the topic, or a requester that is gone
                self._health.answered(endpoint.broker_name, elapsed)
        if isinstance(error, BrokerError):
            if error.code in _ROUTE_MAY_BE_OLD:
                self._request_route_refresh(topic)
            return error
        if not isinstance(error, (TooManyRequests, RequestTimeout)):
            self._request_route_refresh(topic)
        failure = request_failure(error, f"send to {topic} on {endpoint.broker_name}")
        failure.__cause__ = error
        return failure

    async def _probe_broker(self, broker_name: str) -> bool | None:
        """Whether a broker answers a request about a queue; None if no route has the broker any more.

        (Apache RocketMQ 5.3.3, DefaultMQProducerImpl, its ServiceDetector.)
        """
        for publish_info in list(self._publish_infos.values()):
            address = publish_info.route.brokers.get(broker_name, {}).get(MASTER_BROKER_ID)
            if address is None:
                continue
            header = GetMaxOffsetRequestHeader(
                topic=publish_info.route.topic, queue_id=0, broker_name=broker_name
            )
            request = RemotingCommand.request(
                RequestCode.GET_MAX_OFFSET,
                header.encode(),
                serialization=self._instance.settings.serialization,
            )
            try:
                response = await self._bridge.request(address, request, self._probe_seconds)
            except RequestError as error:
                log.debug("broker still unreachable name=%s cause=%s", broker_name, error)
                return False
            return response.code in (ResponseCode.SUCCESS, ResponseCode.NOT_LEADER_FOR_QUEUE)
        return None

    def _request_route_refresh(self, topic: str) -> None:
        self._instance.loop.call_soon_threadsafe(
            self._instance.routes.request_failed, self._namespace.wrap(topic)
        )


def _is_moved(error: Exception) -> bool:
    """Whether a broker refused a send because another one leads the logical queue now."""
    return isinstance(error, BrokerError) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
