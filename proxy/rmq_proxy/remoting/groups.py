"""Requests about the members of groups: heartbeats, their end, and lists of members.

Brokers keep the members. A heartbeat goes to all brokers of its topics, since its client takes the proxy for
all of them. Source of the request codes: Apache RocketMQ 5.3.3, ClientManagerActivity and
ConsumerManagerActivity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rmq_client.errors import ClientError
from rmq_remoting.answers import Answer
from rmq_remoting.bodies.assignment import QueryAssignmentRequestBody
from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.heartbeat import HeartbeatData
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError, RequestError, TooManyRequests
from rmq_remoting.tasks import cancel_all

from .commands import BROKER_NAME, refusal_for
from .lookup import Lookup
from .relay import Relay
from .sessions import Broker, Session, Sessions

log = logging.getLogger("rmq.proxy")

# Clients wait for 3 s. Brokers that answer later, or cannot be reached, get the next heartbeat.
_HEARTBEAT_SECONDS: Final = 2.0


class Groups:
    """Tells brokers of the members of groups, and asks them. Belongs to one loop."""

    def __init__(self, sessions: Sessions, lookup: Lookup, relay: Relay) -> None:
        self._sessions = sessions
        self._lookup = lookup
        self._relay = relay
        # Heartbeats that brokers have not answered in time.
        self._late: set[asyncio.Task[RemotingCommand | None]] = set()

    async def heartbeat(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """34: announce a client to the brokers of its groups.

        A refusal of a broker is the answer, and so is one of the proxy for too many connections: members that
        a broker does not know would share no queues with it. Brokers that do not answer count only if none
        does.
        """
        data = HeartbeatData.decode_request(request.body)
        session = self._sessions.of(client)
        brokers = await self._lookup.of_heartbeat(data)
        wanted = {broker.address: broker for broker in (*brokers, *session.brokers)}
        answers, failures = await self._announced(session, list(wanted.values()), request)
        session.keep(request, data)
        for answer in answers:
            if answer is not None and answer.code != ResponseCode.SUCCESS:
                return request.response(answer.code, answer.remark)
        for failure in failures:
            if not answers or isinstance(failure, TooManyRequests):
                raise refusal_for(failure)
        return request.response(ResponseCode.SUCCESS, "")

    async def unregister(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """35: let a client leave groups at all brokers that know it."""
        session = self._sessions.of(client)
        brokers = session.brokers
        session.forget_heartbeat()
        outcomes = await asyncio.gather(
            *(self._relay.send(client, broker, code, request) for broker in brokers), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, RemotingCommand) and outcome.code != ResponseCode.SUCCESS:
                return outcome
            if isinstance(outcome, BaseException) and not isinstance(outcome, RequestError):
                raise outcome
        # A broker that cannot be reached drops the member with its connection.
        return request.response(ResponseCode.SUCCESS, "")

    async def members(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """38, 203: ask a broker for the members of a group, or for their connections."""
        session = self._sessions.of(client)
        name = request.ext_fields.get(BROKER_NAME)
        if name:
            brokers = [await self._named(name)]
        else:
            group = request.ext_fields.get("consumerGroup", "")
            consumers = [] if session.data is None else session.data.consumer_data_set
            own = [consumer for consumer in consumers if consumer.group_name == group]
            brokers = await self._lookup.of_consumer(own[0]) if own else session.brokers
        return await self._first(client, brokers or await self._lookup.of_cluster(), code, request)

    async def check_client(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """46: let a broker of the topic check whether it can filter by a subscription."""
        subscription = CheckClientRequestBody.decode_request(request.body).subscription_data
        if subscription is None:
            return request.response(ResponseCode.SUCCESS, "")
        return await self._first(client, await self._of_topic(subscription.topic), code, request)

    async def assignment(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """400: let a broker of the topic assign queues to a consumer."""
        topic = QueryAssignmentRequestBody.decode_request(request.body).topic
        return await self._first(client, await self._of_topic(topic), code, request)

    async def stop(self) -> None:
        """Give up heartbeats that brokers have not answered."""
        await cancel_all(self._late)

    async def _announced(
        self, session: Session, brokers: Sequence[Broker], request: RemotingCommand
    ) -> tuple[list[RemotingCommand | None], list[RequestError]]:
        """Send a heartbeat to brokers; return the answers in time, and the failures."""
        if not brokers:
            return [], []
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(session.announce(broker, request)): broker for broker in brokers}
        done, late = await asyncio.wait(tasks, timeout=_HEARTBEAT_SECONDS)
        for task in late:
            self._late.add(task)
            task.add_done_callback(self._late_ended)
        answers: list[RemotingCommand | None] = []
        failures: list[RequestError] = []
        for task in done:
            error = task.exception()
            if error is None:
                answers.append(task.result())
            elif isinstance(error, RequestError):
                failures.append(error)
                log.info(
                    "heartbeat not sent client=%s broker=%s cause=%s; the next one is",
                    session.client.peer,
                    tasks[task].name,
                    error,
                )
            else:
                raise error
        return answers, failures

    def _late_ended(self, task: asyncio.Task[RemotingCommand | None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved

    async def _named(self, name: str) -> Broker:
        try:
            return await self._lookup.named(name)
        except ClientError as error:
            raise refusal_for(error) from error

    async def _of_topic(self, topic: str) -> list[Broker]:
        try:
            return await self._lookup.of_topic(topic)
        except ClientError as error:
            raise refusal_for(error) from error

    async def _first(
        self, client: Connection, brokers: Sequence[Broker], code: int, request: RemotingCommand
    ) -> Answer:
        """Return the answer of the first broker that gives one. Raises CommandError."""
        failure = CommandError(
            ResponseCode.SERVICE_NOT_AVAILABLE, "no broker of the topic or of rocketMQClusterName is known"
        )
        for broker in brokers:
            try:
                return await self._relay.send(client, broker, code, request)
            except RequestError as error:
                failure = refusal_for(error)
        raise failure
