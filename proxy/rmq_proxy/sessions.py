"""Heartbeat, NotifyClientTermination and Telemetry.

Source: Apache RocketMQ 5.3.3, ClientActivity.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from rmq_client.consumer.subscription import Subscription
from rmq_client.errors import ClientError

from .calls import Call
from .client_settings import ClientSettings
from .clients import CONSUMERS, Client, ClientRegistry, TelemetryStream
from .flow_limits import FlowLimit
from .members import Members, Questions
from .protocol import definition_pb2 as pb
from .protocol import service_pb2 as rpc
from .protocol.definition_pb2 import Code
from .receiving import subscription_of
from .statuses import Refusal, ok, status_of
from .transactions import TransactionProducers
from .validation import check_group, check_topic

_UNKNOWN_CLIENT: Final = "cannot find client settings for this client"


class Sessions:
    """What clients report of themselves, and the streams on which the proxy sends them commands."""

    def __init__(
        self,
        clients: ClientRegistry,
        client_settings: ClientSettings,
        transactions: TransactionProducers,
        members: Members,
        questions: Questions,
        flow: FlowLimit,
    ) -> None:
        """`flow` bounds the commands of clients in progress."""
        self._clients = clients
        self._client_settings = client_settings
        self._transactions = transactions
        self._members = members
        self._questions = questions
        self._flow = flow
        self._readings: set[asyncio.Task[None]] = set()

    async def heartbeat(self, call: Call, request: rpc.HeartbeatRequest) -> rpc.HeartbeatResponse:
        """Note that a client is alive. Raises Refusal."""
        client = self._known(call)
        client_type = client.settings.client_type
        if client_type in CONSUMERS:
            check_group(request.group.name)
        elif client_type != pb.PRODUCER:
            raise Refusal(Code.UNRECOGNIZED_CLIENT_TYPE, _type_name(client_type))
        self._clients.touch(client)
        return rpc.HeartbeatResponse(status=ok())

    async def terminate(
        self, call: Call, request: rpc.NotifyClientTerminationRequest
    ) -> rpc.NotifyClientTerminationResponse:
        """Remove a client that stops. Raises Refusal."""
        client = self._known(call)
        self._clients.leave(call.client_id)
        client_type = client.settings.client_type
        if client_type in CONSUMERS:
            check_group(request.group.name)
        elif client_type != pb.PRODUCER:
            raise Refusal(Code.UNRECOGNIZED_CLIENT_TYPE, _type_name(client_type))
        return rpc.NotifyClientTerminationResponse(status=ok())

    async def telemetry(
        self, call: Call, commands: AsyncIterator[rpc.TelemetryCommand], context: Any
    ) -> None:
        """Process the commands of a client until its stream ends, or the proxy stops."""
        stream = TelemetryStream(context)
        reading = asyncio.get_running_loop().create_task(self._read(call, commands, stream))
        stream.end = reading.cancel
        self._readings.add(reading)
        try:
            await asyncio.wait([reading])
            if not reading.cancelled():
                await reading
        except Refusal as refusal:
            if refusal.code == Code.UNAUTHORIZED:
                await context.write(rpc.TelemetryCommand(status=status_of(refusal)))
                return
            await context.abort(_grpc_code(refusal), f"process client telemetryCommand failed. {refusal}")
        except ClientError as error:
            # No broker tells who the user is. The client opens another stream.
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"process client telemetryCommand failed. {status_of(error).message}",
            )
        finally:
            reading.cancel()
            self._readings.discard(reading)
            stream.is_open = False
            client = self._clients.get(call.client_id)
            if client is not None and client.stream is stream:
                client.stream = None

    def end(self) -> None:
        """End all telemetry streams; their clients look for another proxy."""
        for reading in self._readings:
            reading.cancel()

    async def _read(
        self, call: Call, commands: AsyncIterator[rpc.TelemetryCommand], stream: TelemetryStream
    ) -> None:
        async for command in commands:
            try:
                slot = self._flow.enter()
            except Refusal as refusal:
                await stream.write(rpc.TelemetryCommand(status=status_of(refusal)))
                continue
            with slot:
                await self._process(call, command, stream)

    async def _process(self, call: Call, command: rpc.TelemetryCommand, stream: TelemetryStream) -> None:
        match command.WhichOneof("command"):
            case "settings":
                await self._settings_reported(call, command.settings, stream)
            case "thread_stack_trace":
                self._questions.answered(call.client_id, command.thread_stack_trace.nonce, command)
            case "verify_message_result":
                self._questions.answered(call.client_id, command.verify_message_result.nonce, command)

    async def _settings_reported(self, call: Call, settings: pb.Settings, stream: TelemetryStream) -> None:
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise Refusal(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        if kind == "publishing":
            for topic in settings.publishing.topics:
                check_topic(topic.name)
        else:
            check_group(settings.subscription.group.name)
            if settings.client_type not in CONSUMERS:
                name = _type_name(settings.client_type)
                raise Refusal(Code.INTERNAL_SERVER_ERROR, f"Client type is not consumer, type: {name}")
            for entry in settings.subscription.subscriptions:
                _check_subscription(entry)
        client = self._clients.report(call.client_id, self._client_settings.complete(settings))
        client.stream = stream
        merged = await self._client_settings.merged(client.settings)
        await stream.write(rpc.TelemetryCommand(status=ok(), settings=merged))
        if client.topics:
            self._transactions.announce_soon()
        self._members.announce_soon(client)

    def _known(self, call: Call) -> Client:
        client = self._clients.get(call.client_id)
        if client is None:
            raise Refusal(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN_CLIENT)
        return client


def _type_name(client_type: pb.ClientType) -> str:
    """Return the name of a client type; clients may know more types than this proxy."""
    return pb.ClientType.Name(client_type) if client_type in pb.ClientType.values() else "UNRECOGNIZED"


def _grpc_code(refusal: Refusal) -> Any:
    is_request = Code.BAD_REQUEST <= refusal.code < Code.INTERNAL_ERROR
    return grpc.StatusCode.INVALID_ARGUMENT if is_request else grpc.StatusCode.INTERNAL


def _check_subscription(entry: pb.SubscriptionEntry) -> Subscription:
    return subscription_of(entry.topic.name, entry.expression)
