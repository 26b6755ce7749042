"""From a message that is ready to a broker that has it: routes, attempts, and what is worth another one.

Source of the rules: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.sendDefaultImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, next_opaque
from rmq_remoting.errors import RequestError, RequestTimeout, TooManyRequests
from rmq_remoting.headers.offsets import GetMaxOffsetRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ..errors import BrokerError, Busy, ClientError, NoQueue, TimedOut, Unavailable, unanswered
from ..instance import ClientInstance, now_ms
from ..names import check_topic_to_send
from ..namespaces import Namespace
from .detector import FaultDetector
from .encoding import Lane, Outgoing, Stored, decode_send_response
from .fault_tolerance import BrokerHealth, FaultTolerance
from .policies import RetryPolicy
from .publishing import Publishing
from .results import SendStatus
from .selection import Rotation

log = logging.getLogger("rmq.client.delivery")

# Another attempt on the broker that just failed waits this long, and twice as long each further time.
_FIRST_PAUSE_SECONDS: Final = 0.05
# Refusals that an outdated route may be the reason of.
_ROUTE_MAY_BE_OLD: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION})


class Delivery:
    """Sends for one producer. Belongs to the loop that it was made on.

    Topics and queues are the application's; their namespace, if there is one, is put on here.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        retry: RetryPolicy,
        new_topic_queues: int,
        fault_tolerance: FaultTolerance | None = None,
    ) -> None:
        """`group`: its full name. `fault_tolerance`: None tries all brokers alike."""
        self._instance = instance
        self._crossing = instance.crossing()
        self._group = group
        self._retry = retry
        self._limits_attempts = retry.attempt_timeout_seconds is not None
        self._new_topic_queues = new_topic_queues
        self._namespace = Namespace(instance.settings.namespace)
        self._routes = instance.routes.publishable
        self._publishings: dict[str, Publishing] = {}
        self._loop = asyncio.get_running_loop()
        self._health: BrokerHealth | None = None
        self._detector: FaultDetector | None = None
        if fault_tolerance is not None:
            self._health = BrokerHealth(fault_tolerance, self._loop.time)
            self._probe_seconds = fault_tolerance.detect_timeout_ms / 1000
            if fault_tolerance.start_detector:
                self._detector = FaultDetector(
                    self._health, self._answers, fault_tolerance.detect_interval_ms
                )

    def start(self) -> None:
        """Begin what goes on in the background."""
        if self._detector is not None:
            self._detector.start()

    async def stop(self) -> None:
        """End that."""
        if self._detector is not None:
            await self._detector.stop()

    # --- where ---

    def known(self, topic: str) -> Publishing | None:
        """How to send to a topic, if that is known and still true."""
        publishing = self._publishings.get(topic)
        if publishing is not None and publishing.route is self._routes.get(publishing.route.topic):
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
        full_name = self._namespace.wrap(topic)
        route = self._routes.get(full_name)
        if route is None:
            check_topic_to_send(full_name)
            route = await instance.run(instance.routes.route_to_publish(full_name, self._new_topic_queues))
        try:
            publishing = Publishing(
                route,
                self._group,
                self._new_topic_queues,
                instance.settings.serialization,
                self._namespace,
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
            started = self._loop.time()
            try:
                await instance.run(instance.links.connect(lane.address))
            except RequestError as error:
                raise self._failure(error, lane, started) from error

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
        rotation, limit_seconds = publishing.rotation, timeout_seconds
        if queue is not None:
            lane = self.lane_to(publishing, queue)
        else:
            lane = rotation.take() if self._health is None else self._choose(rotation)
            if rotation.has_other_brokers or self._limits_attempts:
                limit_seconds = self._retry.attempt_seconds(
                    timeout_seconds, self._retry.retries + 1, has_other=rotation.has_other_brokers
                )
        started = self._loop.time()
        opaque = next_opaque()
        frame = lane.frame(opaque, now_ms(), outgoing)
        outcome: Stored | ClientError
        try:
            response = await self._crossing.send(lane.address, opaque, frame, limit_seconds)
            outcome = decode_send_response(response, lane)
        except (RequestError, BrokerError) as error:
            outcome = self._failure(error, lane, started, of_reply=outgoing.reply)
            if queue is not None:
                raise outcome from error
        else:
            if self._health is not None:
                self._health.answered(lane.broker_name, self._loop.time() - started)
            if queue is not None or self._suffices(outcome):
                return lane, outcome
        return await self._send_again(outgoing, lane, outcome, started + timeout_seconds)

    async def _send_again(
        self, outgoing: Outgoing, lane: Lane, outcome: Stored | ClientError, deadline: float
    ) -> tuple[Lane, Stored]:
        """The attempts after the first, which ended with `outcome`."""
        stored: tuple[Lane, Stored] | None = None
        failed: list[str] = []
        is_unknown = False
        pause = _FIRST_PAUSE_SECONDS
        for attempts_left in range(self._retry.retries, 0, -1):
            if isinstance(outcome, Stored):
                stored = stored or (lane, outcome)
            else:
                is_unknown |= outcome.is_outcome_unknown
                if not self._retry.is_worthwhile(outcome):
                    break
            failed.append(lane.broker_name)
            topic = lane.queue.topic
            try:
                publishing = await self.publishing(topic, max(0.0, deadline - self._loop.time()))
            except ClientError as error:
                log.info("send to %s is not tried again: %s", topic, error)
                break
            rotation = publishing.rotation
            lane = self._choose(rotation, failed)
            if lane.broker_name == failed[-1]:
                await asyncio.sleep(min(pause, max(0.0, deadline - self._loop.time())))
                pause *= 2
            started = self._loop.time()
            remaining = deadline - started
            if remaining <= 0:
                break
            log.info("send to %s goes to %s next: %s", topic, lane.address, outcome)
            limit_seconds = self._retry.attempt_seconds(
                remaining, attempts_left, has_other=rotation.has_other_brokers
            )
            opaque = next_opaque()
            frame = lane.frame(opaque, now_ms(), outgoing)
            try:
                response = await self._crossing.send(lane.address, opaque, frame, limit_seconds)
                outcome = decode_send_response(response, lane)
            except (RequestError, BrokerError) as error:
                outcome = self._failure(error, lane, started, of_reply=outgoing.reply)
            else:
                if self._health is not None:
                    self._health.answered(lane.broker_name, self._loop.time() - started)
                if self._suffices(outcome):
                    return lane, outcome
        if isinstance(outcome, Stored):
            return stored or (lane, outcome)
        if stored is not None:
            return stored
        outcome.is_outcome_unknown |= is_unknown
        raise outcome

    def choose(self, publishing: Publishing) -> Lane:
        """The lane that a message takes that may go to any queue."""
        return publishing.rotation.take() if self._health is None else self._choose(publishing.rotation)

    def _choose(self, rotation: Rotation[Lane], failed: Sequence[str] = ()) -> Lane:
        """The next lane: off the brokers that failed in this send, or at least off the last of them."""
        lane = rotation.take_off(failed) if self._health is None else self._health.choose(rotation, failed)
        return lane or rotation.take_off(failed) or rotation.take_off(failed[-1:]) or rotation.take()

    def lane_to(self, publishing: Publishing, queue: MessageQueue) -> Lane:
        """Raises NoQueue; its broker may be known by the next attempt."""
        try:
            return publishing.lane(queue)
        except NoQueue:
            self._ask_route_again(queue.topic)
            raise

    def _suffices(self, stored: Stored) -> bool:
        return stored.status is SendStatus.SEND_OK or not self._retry.unless_stored_safely

    def _failure(
        self, error: RequestError | BrokerError, lane: Lane, started: float, *, of_reply: bool = False
    ) -> ClientError:
        """The SDK's error for a failed attempt; the route is asked for again where it may be why."""
        topic = lane.queue.topic
        if self._health is not None:
            elapsed = self._loop.time() - started
            if not isinstance(error, BrokerError):
                self._health.failed(lane.broker_name, elapsed, refused=False)
            elif isinstance(error, (Busy, Unavailable)) and not of_reply:
                self._health.failed(lane.broker_name, elapsed, refused=True)
            else:  # the fault of the message or the topic, or that of a requester who is gone
                self._health.answered(lane.broker_name, elapsed)
        if isinstance(error, BrokerError):
            if error.code in _ROUTE_MAY_BE_OLD:
                self._ask_route_again(topic)
            return error
        if not isinstance(error, (TooManyRequests, RequestTimeout)):
            self._ask_route_again(topic)
        failure = unanswered(error, f"send to {topic} on {lane.broker_name}")
        failure.__cause__ = error
        return failure

    async def _answers(self, broker_name: str) -> bool | None:
        """Whether a broker answers a question about a queue; None where no route has the broker any more.

        (Apache RocketMQ 5.3.3, DefaultMQProducerImpl, its ServiceDetector.)
        """
        for publishing in list(self._publishings.values()):
            address = publishing.route.brokers.get(broker_name, {}).get(MASTER_BROKER_ID)
            if address is None:
                continue
            header = GetMaxOffsetRequestHeader(
                topic=publishing.route.topic, queue_id=0, broker_name=broker_name
            )
            request = RemotingCommand.request(
                RequestCode.GET_MAX_OFFSET,
                header.encode(),
                serialization=self._instance.settings.serialization,
            )
            try:
                response = await self._crossing.request(address, request, self._probe_seconds)
            except RequestError as error:
                log.debug("broker %s does not answer yet: %s", broker_name, error)
                return False
            return response.code == ResponseCode.SUCCESS
        return None

    def _ask_route_again(self, topic: str) -> None:
        self._instance.loop.call_soon_threadsafe(
            self._instance.routes.request_failed, self._namespace.wrap(topic)
        )
