"""The gRPC service `apache.rocketmq.v2.MessagingService`: its methods, bound to the parts that serve them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc

from .access.control import AccessControl
from .calls import Call, Peers, metadata_of
from .flow_limits import FlowLimits, Slot
from .latencies import RpcLatencies
from .protocol import service_pb2 as rpc
from .pulling import Pulling
from .receiving import Receiving
from .routing import Routing
from .sending import Sending
from .sessions import Sessions
from .statuses import Refusal, status_of

log = logging.getLogger("rmq.proxy")

# The messages of a stream that nobody reads would fill the memory.
_WRITE_SECONDS: Final = 30.0

NAME: Final = rpc.DESCRIPTOR.services_by_name["MessagingService"].full_name


class Admission:
    """Reads what a call says besides its request, and lets flow limits and access control check it first."""

    def __init__(
        self, peers: Peers, access: AccessControl | None = None, flows: FlowLimits | None = None
    ) -> None:
        """Without `access` every user is served, and without `flows` any number of calls."""
        self._peers = peers
        self._access = access
        self._flows = flows

    def slot(self, method: str) -> Slot:
        """Return the place of a call among those in progress. Raises Refusal beyond the limit."""
        return Slot() if self._flows is None else self._flows.of(method).enter()

    async def admitted(self, context: Any, request: Any, slot: Slot) -> Call:
        """Return the call. Raises Refusal, and ClientError if no broker tells who the user is."""
        if self._access is not None:
            await self._access.check(metadata_of(context), self._peers.host(context), request)
        return Call.of(context, self._peers, slot)

    def stream(self, context: Any) -> Call:
        """Return the call of a stream, whose commands are checked one by one. Raises Refusal."""
        return Call.of(context, self._peers)

    async def admitted_commands(
        self, context: Any, commands: AsyncIterator[rpc.TelemetryCommand]
    ) -> AsyncIterator[rpc.TelemetryCommand]:
        """Yield the commands of a stream, each after its check. Raises as `admitted`."""
        async for command in commands:
            if self._access is not None:
                await self._access.check(metadata_of(context), self._peers.host(context), command)
            yield command


def service_handler(
    routing: Routing,
    sessions: Sessions,
    sending: Sending,
    receiving: Receiving,
    pulling: Pulling,
    latencies: RpcLatencies,
    admission: Admission,
) -> Any:
    """Return the handler of all methods. A method that it lacks is answered UNIMPLEMENTED by gRPC."""
    unary: dict[str, tuple[Callable[[Call, Any], Awaitable[Any]], type[Any], type[Any]]] = {
        "QueryRoute": (routing.query_route, rpc.QueryRouteRequest, rpc.QueryRouteResponse),
        "QueryAssignment": (
            routing.query_assignment,
            rpc.QueryAssignmentRequest,
            rpc.QueryAssignmentResponse,
        ),
        "Heartbeat": (sessions.heartbeat, rpc.HeartbeatRequest, rpc.HeartbeatResponse),
        "NotifyClientTermination": (
            sessions.terminate,
            rpc.NotifyClientTerminationRequest,
            rpc.NotifyClientTerminationResponse,
        ),
        "SendMessage": (sending.send, rpc.SendMessageRequest, rpc.SendMessageResponse),
        "EndTransaction": (sending.end_transaction, rpc.EndTransactionRequest, rpc.EndTransactionResponse),
        "RecallMessage": (sending.recall, rpc.RecallMessageRequest, rpc.RecallMessageResponse),
        "AckMessage": (receiving.acknowledge, rpc.AckMessageRequest, rpc.AckMessageResponse),
        "ChangeInvisibleDuration": (
            receiving.change_invisible,
            rpc.ChangeInvisibleDurationRequest,
            rpc.ChangeInvisibleDurationResponse,
        ),
        "ForwardMessageToDeadLetterQueue": (
            receiving.forward,
            rpc.ForwardMessageToDeadLetterQueueRequest,
            rpc.ForwardMessageToDeadLetterQueueResponse,
        ),
        "UpdateOffset": (pulling.update_offset, rpc.UpdateOffsetRequest, rpc.UpdateOffsetResponse),
        "GetOffset": (pulling.get_offset, rpc.GetOffsetRequest, rpc.GetOffsetResponse),
        "QueryOffset": (pulling.query_offset, rpc.QueryOffsetRequest, rpc.QueryOffsetResponse),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(name, method, response, latencies, admission),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
        for name, (method, request, response) in unary.items()
    }
    handlers["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
        streaming("ReceiveMessage", receiving.receive, rpc.ReceiveMessageResponse, latencies, admission),
        request_deserializer=rpc.ReceiveMessageRequest.FromString,
        response_serializer=rpc.ReceiveMessageResponse.SerializeToString,
    )
    handlers["PullMessage"] = grpc.unary_stream_rpc_method_handler(
        streaming("PullMessage", pulling.pull, rpc.PullMessageResponse, latencies, admission),
        request_deserializer=rpc.PullMessageRequest.FromString,
        response_serializer=rpc.PullMessageResponse.SerializeToString,
    )
    handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
        _telemetry(sessions, latencies, admission),
        request_deserializer=rpc.TelemetryCommand.FromString,
        response_serializer=rpc.TelemetryCommand.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(NAME, handlers)


def _answering(
    name: str,
    method: Callable[[Call, Any], Awaitable[Any]],
    response: type[Any],
    latencies: RpcLatencies,
    admission: Admission,
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a handler that turns every error into the status of a response."""

    async def handle(request: Any, context: Any) -> Any:
        began = time.perf_counter()
        latencies.open[name] += 1
        try:
            with admission.slot(name) as slot:
                answer = await method(await admission.admitted(context, request, slot), request)
        except Exception as error:
            answer = response(status=status_of(error))
        finally:
            latencies.open[name] -= 1
        latencies.observe(name, answer.status.code, time.perf_counter() - began)
        return answer

    return handle


def streaming(
    name: str,
    method: Callable[[Call, Any], AsyncGenerator[Any, None]],
    response: type[Any],
    latencies: RpcLatencies,
    admission: Admission,
    write_seconds: float = _WRITE_SECONDS,
) -> Callable[[Any, Any], Awaitable[None]]:
    """Return a handler of a method that yields its responses, and turns its own errors into a status.

    A client that does not read for `write_seconds` loses the stream, and the method gives up its messages.
    """

    async def handle(request: Any, context: Any) -> None:
        began = time.perf_counter()
        try:
            slot = admission.slot(name)
        except Refusal as refusal:
            latencies.observe(name, refusal.code, time.perf_counter() - began)
            await context.write(response(status=status_of(refusal)))
            return
        with slot:
            try:
                call = await admission.admitted(context, request, slot)
            except Exception as error:
                refused = status_of(error)
                latencies.observe(name, refused.code, time.perf_counter() - began)
                await context.write(response(status=refused))
                return
            latencies.open[name] += 1
            code: int | None = None
            try:
                async with aclosing(method(call, request)) as responses:
                    async for each in responses:
                        if code is None:  # the first response has the status
                            code = each.status.code
                        async with asyncio.timeout(write_seconds):
                            await context.write(each)
            except TimeoutError:
                log.info("stream ended, its client does not read client=%s", call.client_id)
                await context.abort(grpc.StatusCode.ABORTED, "the client does not read the stream")
            finally:
                latencies.open[name] -= 1
                if code is not None:
                    latencies.observe(name, code, time.perf_counter() - began)

    return handle


def _telemetry(
    sessions: Sessions, latencies: RpcLatencies, admission: Admission
) -> Callable[[Any, Any], Awaitable[None]]:
    async def handle(commands: AsyncIterator[rpc.TelemetryCommand], context: Any) -> None:
        try:
            call = admission.stream(context)
        except Refusal as refusal:
            await context.write(rpc.TelemetryCommand(status=status_of(refusal)))
            return
        latencies.open["Telemetry"] += 1
        try:
            await sessions.telemetry(call, admission.admitted_commands(context, commands), context)
        finally:
            latencies.open["Telemetry"] -= 1

    return handle
