"""A client of the gRPC protocol whose requests a test writes itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.service import NAME

from .certificates import Certificate

DEADLINE_SECONDS: Final = 20.0
NO_ID: Final = ""


class GrpcClient:
    """One client: its id goes with every call."""

    def __init__(self, channel: Any, client_id: str, version: str) -> None:
        self.channel = channel
        self.client_id = client_id
        # Goes with every call from now on: signatures, and whatever else a test likes.
        self.further_metadata: list[tuple[str, str]] = []
        self._own_metadata = [("x-mq-client-id", client_id)] if client_id else []
        self._own_metadata += [("x-mq-language", "PYTHON"), ("x-mq-client-version", version)]
        self.commands: asyncio.Queue[rpc.TelemetryCommand] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._stream: Any = None

    @property
    def _metadata(self) -> list[tuple[str, str]]:
        return [*self._own_metadata, *self.further_metadata]

    async def call(self, method: str, request: Any, deadline: float | None = DEADLINE_SECONDS) -> Any:
        """Call a method with one response."""
        name = method
        answer = getattr(rpc, f"{name}Response")
        unary = self.channel.unary_unary(
            f"/{NAME}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await unary(request, timeout=deadline, metadata=self._metadata)

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        count: int = 32,
        invisible_s: int = 30,
        wait_s: float = 0.1,
        deadline: float | None = DEADLINE_SECONDS,
        renew: bool = False,
        expression: pb.FilterExpression | None = None,
    ) -> tuple[pb.Status, list[pb.Message]]:
        """Receive once; return the status and the messages."""
        request = rpc.ReceiveMessageRequest(batch_size=count, auto_renew=renew)
        request.group.name = group
        request.message_queue.topic.name = topic
        request.filter_expression.CopyFrom(expression or pb.FilterExpression(type=pb.TAG, expression="*"))
        request.invisible_duration.FromSeconds(invisible_s)
        request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
        stream = self.channel.unary_stream(
            f"/{NAME}/ReceiveMessage",
            request_serializer=rpc.ReceiveMessageRequest.SerializeToString,
            response_deserializer=rpc.ReceiveMessageResponse.FromString,
        )(request, timeout=deadline, metadata=self._metadata)
        status, messages = pb.Status(), []
        async for response in stream:
            if response.HasField("status"):
                status = response.status
            elif response.HasField("message"):
                messages.append(response.message)
        return status, messages

    async def pull(self, request: rpc.PullMessageRequest) -> tuple[pb.Status, list[pb.Message], int]:
        """Pull once; return the status, the messages and the next offset."""
        stream = self.channel.unary_stream(
            f"/{NAME}/PullMessage",
            request_serializer=rpc.PullMessageRequest.SerializeToString,
            response_deserializer=rpc.PullMessageResponse.FromString,
        )(request, timeout=DEADLINE_SECONDS, metadata=self._metadata)
        status, messages, next_offset = pb.Status(), [], -1
        async for response in stream:
            if response.HasField("status"):
                status = response.status
            elif response.HasField("message"):
                messages.append(response.message)
            else:
                next_offset = response.next_offset
        return status, messages, next_offset

    async def receive_all(self, group: str, topic: str, count: int, **how: Any) -> list[pb.Message]:
        """Receive until there are `count` messages."""
        received: list[pb.Message] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(received) < count:
                status, messages = await self.receive(group, topic, **how)
                assert status.code in (pb.OK, pb.MESSAGE_NOT_FOUND), status
                received += messages
        return received

    async def send(self, *messages: pb.Message) -> rpc.SendMessageResponse:
        """Send messages in one request."""
        sent: rpc.SendMessageResponse = await self.call(
            "SendMessage", rpc.SendMessageRequest(messages=messages)
        )
        return sent

    async def acknowledge(self, group: str, topic: str, *received: pb.Message) -> rpc.AckMessageResponse:
        """Acknowledge messages in one request."""
        request = rpc.AckMessageRequest(group=resource(group), topic=resource(topic))
        for each in received:
            system = each.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        answer: rpc.AckMessageResponse = await self.call("AckMessage", request)
        return answer

    async def report(self, settings: pb.Settings) -> pb.Settings:
        """Report settings on a telemetry stream, and return those of the proxy; the stream stays open."""
        if self._stream is None:
            self._stream = self.channel.stream_stream(
                f"/{NAME}/Telemetry",
                request_serializer=rpc.TelemetryCommand.SerializeToString,
                response_deserializer=rpc.TelemetryCommand.FromString,
            )(metadata=self._metadata)
            self._reader = asyncio.ensure_future(self._read())
        await self._stream.write(rpc.TelemetryCommand(settings=settings))
        async with asyncio.timeout(DEADLINE_SECONDS):
            return (await self.commands.get()).settings

    async def consume(self, group: str, *topics: str, push: bool = False) -> pb.Settings:
        """Become a consumer of the group."""
        settings = pb.Settings(client_type=pb.PUSH_CONSUMER if push else pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        for topic in topics:
            settings.subscription.subscriptions.add().topic.name = topic
        return await self.report(settings)

    async def produce(self, *topics: str) -> pb.Settings:
        """Become a producer to these topics."""
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.SetInParent()
        for topic in topics:
            settings.publishing.topics.add().name = topic
        return await self.report(settings)

    async def tell(self, status: pb.Status, nonce: str, *, stacks: str | None = None) -> None:
        """Answer a command of the proxy: with the stacks of threads, or that a message was verified."""
        answer = rpc.TelemetryCommand(status=status)
        if stacks is None:
            answer.verify_message_result.nonce = nonce
        else:
            answer.thread_stack_trace.nonce = nonce
            answer.thread_stack_trace.thread_stack_trace = stacks
        await self._stream.write(answer)

    async def status_of_stream(self) -> grpc.StatusCode:
        """Return the code with which the proxy ended the telemetry stream."""
        code: grpc.StatusCode = await self._stream.code()
        return code

    async def close(self) -> None:
        """End the telemetry stream."""
        if self._stream is not None and self._reader is not None:
            self._stream.cancel()
            await asyncio.wait([self._reader])

    async def _read(self) -> None:
        try:
            async for command in self._stream:
                self.commands.put_nowait(command)
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            return


def resource(name: str) -> pb.Resource:
    """Return the name of a topic or group without a namespace."""
    return pb.Resource(name=name)


def message(topic: str, body: bytes = b"x", *, message_id: str = "01ID", **system: Any) -> pb.Message:
    """Return a message to send; `system` are further system properties."""
    made = pb.Message(body=body, system_properties=pb.SystemProperties(message_id=message_id, **system))
    made.topic.name = topic
    return made


@asynccontextmanager
async def grpc_client(
    address: str, client_id: str = "client-1", version: str = "5.0.7", credentials: Any = None
) -> AsyncIterator[GrpcClient]:
    """A connected client; with `credentials` of gRPC it connects by TLS."""
    async with (
        grpc.aio.insecure_channel(address)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials)
    ) as channel:
        client = GrpcClient(channel, client_id, version)
        try:
            yield client
        finally:
            await client.close()


async def is_served(client: GrpcClient, topic: str = "T") -> bool:
    """Whether the port answers a client; if not, it must not be reachable at all."""
    try:
        answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource(topic)))
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        return False
    assert answer.status.code == pb.OK
    return True


def trusting(certificate: Certificate, own: Certificate | None = None) -> Any:
    """Return the credentials of a client that trusts a certificate, and shows its own one."""
    pair = (None, None) if own is None else (own.key_file.read_bytes(), own.cert_file.read_bytes())
    return grpc.ssl_channel_credentials(certificate.cert_file.read_bytes(), *pair)
