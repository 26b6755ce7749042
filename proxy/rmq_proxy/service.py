"""The gRPC service `apache.rocketmq.v2.MessagingService`: its methods, bound to the parts that serve them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc

from .access.control import AccessControl
from .calls import Call, metadata_of, peer_host
from .latencies import RpcLatencies
from .protocol import service_pb2 as rpc
from .pulling import Pulling
from .receiving import Receiving
from .routing import Routing
from .sending import Sending
from .sessions import Sessions
from .statuses import Refusal, status_of

NAME: Final = rpc.DESCRIPTOR.services_by_name["MessagingService"].full_name


def service_handler(
    routing: Routing,
    sessions: Sessions,
    sending: Sending,
    receiving: Receiving,
    pulling: Pulling,
    latencies: RpcLatencies,
    access: AccessControl | None = None,
) -> Any:
    """Return the handler of all methods. A method that it lacks is answered UNIMPLEMENTED by gRPC.

    `access` is None if every call is served.
    """
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
            _answering(name, method, response, latencies, access),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
        for name, (method, request, response) in unary.items()
    }
    handlers["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
        _streaming("ReceiveMessage", receiving.receive, rpc.ReceiveMessageResponse, latencies, access),
        request_deserializer=rpc.ReceiveMessageRequest.FromString,
        response_serializer=rpc.ReceiveMessageResponse.SerializeToString,
    )
    handlers["PullMessage"] = grpc.unary_stream_rpc_method_handler(
        _streaming("PullMessage", pulling.pull, rpc.PullMessageResponse, latencies, access),
        request_deserializer=rpc.PullMessageRequest.FromString,
        response_serializer=rpc.PullMessageResponse.SerializeToString,
    )
    handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
        _telemetry(sessions, latencies, access),
        request_deserializer=rpc.TelemetryCommand.FromString,
        response_serializer=rpc.TelemetryCommand.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(NAME, handlers)


async def _admitted(access: AccessControl | None, context: Any, request: Any) -> Call:
    """Return what a call says besides its request. Raises Refusal, and ClientError if no broker answers."""
    if access is not None:
        await access.check(metadata_of(context), peer_host(context), request)
    return Call.of(context)


def _answering(
    name: str,
    method: Callable[[Call, Any], Awaitable[Any]],
    response: type[Any],
    latencies: RpcLatencies,
    access: AccessControl | None,
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a handler that turns every error into the status of a response."""

    async def handle(request: Any, context: Any) -> Any:
        began = time.perf_counter()
        latencies.open[name] += 1
        try:
            answer = await method(await _admitted(access, context, request), request)
        except Exception as error:
            answer = response(status=status_of(error))
        finally:
            latencies.open[name] -= 1
        latencies.observe(name, answer.status.code, time.perf_counter() - began)
        return answer

    return handle


def _streaming(
    name: str,
    method: Callable[[Call, Any], AsyncGenerator[Any, None]],
    response: type[Any],
    latencies: RpcLatencies,
    access: AccessControl | None,
) -> Callable[[Any, Any], AsyncGenerator[Any, None]]:
    """Return a handler of a method that yields its responses, and turns its own errors into a status."""

    async def handle(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        began = time.perf_counter()
        try:
            call = await _admitted(access, context, request)
        except Exception as error:
            yield response(status=status_of(error))
            return
        latencies.open[name] += 1
        code: int | None = None
        try:
            async with aclosing(method(call, request)) as responses:
                async for each in responses:
                    if code is None:  # the first response has the status
                        code = each.status.code
                    yield each
        finally:
            latencies.open[name] -= 1
            if code is not None:
                latencies.observe(name, code, time.perf_counter() - began)

    return handle


def _telemetry(
    sessions: Sessions, latencies: RpcLatencies, access: AccessControl | None
) -> Callable[[Any, Any], Awaitable[None]]:
    """Return the handler of telemetry streams. Each command of a stream is checked, not only the first."""

    async def admitted(
        commands: AsyncIterator[rpc.TelemetryCommand], context: Any
    ) -> AsyncIterator[rpc.TelemetryCommand]:
        async for command in commands:
            await _admitted(access, context, command)
            yield command

    async def handle(commands: AsyncIterator[rpc.TelemetryCommand], context: Any) -> None:
        try:
            call = Call.of(context)
        except Refusal as refusal:
            await context.write(rpc.TelemetryCommand(status=status_of(refusal)))
            return
        latencies.open["Telemetry"] += 1
        try:
            await sessions.telemetry(call, admitted(commands, context) if access else commands, context)
        finally:
            latencies.open["Telemetry"] -= 1

    return handle
