"""Consumers of this proxy as members of their groups at the brokers.

Each consumer has a connection of its own to each broker of its topics, with heartbeats. So brokers list the
consumer (`mqadmin consumerConnection`), and forward requests of administrators to it. The proxy turns these
into commands of the telemetry stream. Apache's proxy does this in LOCAL mode (ConsumerProcessor,
GrpcClientChannel, ClientActivity of RocketMQ 5.3.3). In CLUSTER mode it keeps consumers to itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rmq_client.errors import ClientError
from rmq_remoting.answers import Answer
from rmq_remoting.bodies.heartbeat import ConsumerData, ConsumeType, HeartbeatData
from rmq_remoting.bodies.offsets import GetConsumerStatusBody
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import CommandError, RequestError
from rmq_remoting.headers.client import GetConsumerRunningInfoRequestHeader
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.tasks import cancel_all
from rmq_remoting.tiers import InlineTier

from .brokers import Brokers
from .clients import CONSUMERS, Client, ClientRegistry
from .messages import message_of, unpack_bodies
from .protocol import definition_pb2 as pb
from .protocol import service_pb2 as rpc
from .protocol.definition_pb2 import Code
from .receiving import subscription_of
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

_CAPACITY: Final = 100
_MAX_WAIT_MS: Final = 60_000
# Brokers wait for 10 s for the answer of a consumer (CALL_SECONDS).
_ANSWER_SECONDS: Final = 9.0
_HEARTBEAT_SECONDS: Final = 3.0
_RESULTS: Final = {
    Code.OK: CMResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
    Code.MESSAGE_CORRUPTED: CMResult.CR_RETURN_NULL,
}
_REMARK: Final = "from gRPC client"

# Returns a client for connections whose peers' requests go to the dispatcher.
Connect = Callable[[Dispatcher], RemotingClient]


class Questions:
    """Commands on telemetry streams that clients answer. Belongs to one loop."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], asyncio.Future[rpc.TelemetryCommand]] = {}

    async def ask(self, client: Client, command: rpc.TelemetryCommand, nonce: str) -> rpc.TelemetryCommand:
        """Send a command, and return the client's answer. Raises CommandError without an answer."""
        stream = client.stream
        if stream is None:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"client {client.client_id} has no telemetry stream"
            )
        key = client.client_id, nonce
        answer: asyncio.Future[rpc.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                if not await stream.write(command):
                    raise CommandError(
                        ResponseCode.SYSTEM_ERROR, f"the telemetry stream of {client.client_id} has ended"
                    )
                return await answer
        except TimeoutError:
            raise CommandError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"client {client.client_id} has not answered within {_ANSWER_SECONDS} s",
            ) from None
        finally:
            del self._waiting[key]

    def answered(self, client_id: str, nonce: str, command: rpc.TelemetryCommand) -> None:
        """Note an answer; one that nobody waits for is ignored."""
        waiting = self._waiting.get((client_id, nonce))
        if waiting is not None and not waiting.done():
            waiting.set_result(command)


class Members:
    """The members that this proxy announces. Belongs to one loop."""

    def __init__(
        self,
        brokers: Brokers,
        clients: ClientRegistry,
        questions: Questions,
        connect: Connect | None,
        most_connections: int,
    ) -> None:
        """`connect` opens at most `most_connections`; None: brokers do not know the consumers."""
        self._brokers = brokers
        self._clients = clients
        self._questions = questions
        self._connect = connect
        self._most_connections = most_connections
        self._is_at_limit = False
        # Connections to brokers that consumers have.
        self.connections = 0
        self._members: dict[str, _Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        clients.on_leave.append(self._left)

    @property
    def is_on(self) -> bool:
        """Whether brokers know the consumers."""
        return self._connect is not None

    @property
    def unlisted(self) -> int:
        """Number of consumers that a broker does not list, because of the limit of connections."""
        return sum(member.is_unlisted for member in self._members.values())

    def announce_soon(self, client: Client) -> None:
        """Send the heartbeats of a consumer that has reported its settings."""
        if self._connect is not None and client.settings.client_type in CONSUMERS:
            self._start(self._announce(client))

    def announce_all(self) -> None:
        """Send the heartbeats of all consumers."""
        for client in self._clients.all():
            self.announce_soon(client)

    async def stop(self) -> None:
        """Leave all groups."""
        await cancel_all(self._tasks)
        members, self._members = list(self._members.values()), {}
        await asyncio.gather(*(member.stop() for member in members))

    async def _announce(self, client: Client) -> None:
        if self._connect is None or self._clients.get(client.client_id) is not client:
            return
        member = self._members.get(client.client_id)
        if member is None:
            member = self._members[client.client_id] = _Member(client, self._questions, self._connect)
        addresses: set[str] = set()
        is_complete = True
        for topic in member.topics():
            found = await self._addresses(topic)
            is_complete = is_complete and found is not None
            addresses |= found or set()
        if self._members.get(client.client_id) is not member:  # it has left meanwhile
            return
        self._admit(member, addresses if is_complete else addresses | member.addresses)
        await asyncio.gather(*(member.heartbeat(address) for address in addresses & member.addresses))

    def _admit(self, member: _Member, addresses: set[str]) -> None:
        """Let the member have connections to these brokers alone, as far as the limit allows."""
        for gone in member.addresses - addresses:
            member.leave(gone)
            self.connections -= 1
        room = max(self._most_connections - self.connections, 0)
        wanted = sorted(addresses - member.addresses)
        member.addresses.update(wanted[:room])
        self.connections += min(len(wanted), room)
        member.is_unlisted = len(wanted) > room
        if member.is_unlisted and not self._is_at_limit:
            self._is_at_limit = True
            log.warning(
                "consumers not listed by brokers, too many connections limit=%d consumer=%s group=%s; they "
                "are served; raise consumerConnectionsMaxNum, or start another proxy",
                self._most_connections,
                member.client_id,
                member.group,
            )

    async def _addresses(self, topic: str) -> set[str] | None:
        """Return the brokers of a topic, None if they are not known."""
        if self._brokers.own is not None:
            return {self._brokers.own.address}
        try:
            route = await self._brokers.route(topic)
        except ClientError as error:
            log.info("consumers of a topic not announced topic=%s cause=%s", topic, error)
            return None
        return {address for name in route.brokers if (address := route.master(name)) is not None}

    def _left(self, client: Client) -> None:
        member = self._members.pop(client.client_id, None)
        if member is not None:
            self.connections -= len(member.addresses)
            # The log tells again if the limit is reached once more.
            self._is_at_limit = self._is_at_limit and self.connections >= self._most_connections
            self._start(member.stop())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Member:
    """One consumer: its connections to brokers, and the requests that brokers forward to it."""

    def __init__(self, client: Client, questions: Questions, connect: Connect) -> None:
        self._client = client
        self._questions = questions
        self._since_ms = int(time.time() * 1000)
        dispatcher = Dispatcher()
        tier = InlineTier("gRPC members", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
        for code, processor in (
            (RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status),
            # Brokers themselves keep the offsets of POP, and share out its queues.
            (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, _ignore),
            (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, _ignore),
        ):
            dispatcher.register([code], processor, tier)
        self._connections = connect(dispatcher)
        # The brokers that it may connect to.
        self.addresses: set[str] = set()
        self.is_unlisted = False

    @property
    def client_id(self) -> str:
        """The id of the consumer."""
        return self._client.client_id

    @property
    def group(self) -> str:
        """The group of the consumer."""
        return self._client.group

    def leave(self, address: str) -> None:
        """Close the connection to a broker that has no topic of the consumer any longer."""
        self.addresses.discard(address)
        self._connections.close_address(address)

    def topics(self) -> list[str]:
        """Return the topics that the consumer is subscribed to."""
        return [entry.topic.name for entry in self._client.settings.subscription.subscriptions]

    async def heartbeat(self, address: str) -> None:
        """Tell a broker that the consumer is a member of its group."""
        request = RemotingCommand.request(RequestCode.HEART_BEAT, {}, self._heartbeat_data().encode())
        try:
            answer = await self._connections.request(address, request, _HEARTBEAT_SECONDS)
        except RequestError as error:
            cause = str(error)
        else:
            if answer.code == ResponseCode.SUCCESS:
                return
            cause = answer.remark or str(answer.code)
        log.info(
            "consumer not announced client=%s group=%s broker=%s cause=%s; the next heartbeat does",
            self._client.client_id,
            self._client.group,
            address,
            cause,
        )

    async def stop(self) -> None:
        """Leave the group: brokers remove the members of closed connections."""
        await self._connections.stop()

    def _heartbeat_data(self) -> HeartbeatData:
        is_push = self._client.settings.client_type == pb.PUSH_CONSUMER
        consumer = ConsumerData(
            group_name=self._client.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY if is_push else ConsumeType.CONSUME_ACTIVELY,
            subscription_data_set=self._subscriptions(),
        )
        return HeartbeatData(client_id=self._client.client_id, consumer_data_set=[consumer])

    def _subscriptions(self) -> list[Any]:
        found = []
        for entry in self._client.settings.subscription.subscriptions:
            try:
                data = subscription_of(entry.topic.name, entry.expression).data
            except Refusal:  # the settings were checked when they were reported
                continue
            data.sub_version = self._since_ms
            found.append(data)
        return found

    # --- requests that brokers forward ---

    def _running_info(self, connection: Connection, request: RemotingCommand) -> asyncio.Future[Answer]:
        """307: state of the consumer, with the stacks of its threads if they are asked for."""
        return asyncio.ensure_future(self._running(request))

    async def _running(self, request: RemotingCommand) -> Answer:
        header = GetConsumerRunningInfoRequestHeader.decode(request.ext_fields)
        info = ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": self._heartbeat_data().consumer_data_set[0].consume_type.value,
                "PROP_CONSUMER_START_TIMESTAMP": str(self._since_ms),
                "PROP_CLIENT_VERSION": self._client.settings.user_agent.version or "gRPC",
            },
            subscription_set=self._subscriptions(),
        )
        if header.jstack_enable:
            command, nonce = rpc.TelemetryCommand(), uuid.uuid4().hex
            command.print_thread_stack_trace_command.nonce = nonce
            answer = await self._questions.ask(self._client, command, nonce)
            if answer.status.code != Code.OK:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"no stacks: {_text(answer.status)}")
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        return request.response(ResponseCode.SUCCESS, body=info.encode())

    def _consume_directly(self, connection: Connection, request: RemotingCommand) -> asyncio.Future[Answer]:
        """309: let the consumer consume one message."""
        return asyncio.ensure_future(self._consume(request))

    async def _consume(self, request: RemotingCommand) -> Answer:
        try:
            messages = decode_messages(request.body, decompress_bodies=False)
        except MessageDecodeError as error:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if len(messages) != 1:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL, f"the body must contain one message, not {len(messages)}"
            )
        await unpack_bodies(messages)
        command, nonce = rpc.TelemetryCommand(), uuid.uuid4().hex
        command.verify_message_command.nonce = nonce
        command.verify_message_command.message.CopyFrom(message_of(messages[0]))
        began = time.monotonic()
        answer = await self._questions.ask(self._client, command, nonce)
        outcome = _RESULTS.get(answer.status.code)
        result = ConsumeMessageDirectlyResult(
            consume_result=outcome,
            order=self._client.settings.subscription.fifo,
            remark=_REMARK if outcome is not None else _text(answer.status),
            spent_time_ms=int((time.monotonic() - began) * 1000),
        )
        return request.response(ResponseCode.SUCCESS, body=result.encode())

    def _status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """221: offsets of the consumer; it has none, because brokers keep those of POP."""
        body = GetConsumerStatusBody(message_queue_table={})
        return request.response(ResponseCode.SUCCESS, body=body.encode())


def _ignore(connection: Connection, request: RemotingCommand) -> None:
    return None


def _text(status: pb.Status) -> str:
    return f"{Code.Name(status.code)}: {status.message}"
