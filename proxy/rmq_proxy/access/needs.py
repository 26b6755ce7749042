"""What each request does with which topic and group: the needs that a user's rules must allow.

Source: Apache RocketMQ 5.3.3, DefaultAuthorizationContextBuilder. This module also checks the topics of all
messages of a send, the topic of a change of an invisible time, and the methods that Apache's proxy lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rmq_remoting.daemon.access import policies
from rmq_remoting.daemon.access.needs import Actions, Need
from rmq_remoting.daemon.access.policies import Action

from ..protocol import definition_pb2 as pb
from ..protocol import service_pb2 as rpc
from ..protocol.definition_pb2 import Code
from ..statuses import Refusal

_PUB: Final[Actions] = (Action.PUB,)
_SUB: Final[Actions] = (Action.SUB,)
_PUB_OR_SUB: Final[Actions] = (Action.PUB, Action.SUB)
_CONSUMERS: Final = frozenset({pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER, pb.PULL_CONSUMER})


def needs_of(request: Any) -> list[Need]:
    """Return the needs of a request, each once; none for one that every known user may make.

    Raises Refusal for a request that names no topic or group.
    """
    find = _NEEDS.get(type(request))
    if find is None:
        raise Refusal(Code.UNAUTHORIZED, f"no rights are known for {request.DESCRIPTOR.full_name}")
    return list(dict.fromkeys(find(request)))


def _topic(resource: pb.Resource, actions: Actions) -> Need:
    return Need(policies.topic(_name(resource, "topic")), actions)


def _group(resource: pb.Resource) -> Need:
    return Need(policies.group(_name(resource, "group")), _SUB)


def _name(resource: pb.Resource, kind: str) -> str:
    if not resource.name.strip():
        raise Refusal(Code.UNAUTHORIZED, f"{kind} is null.")
    return resource.name


def _send(request: rpc.SendMessageRequest) -> Iterator[Need]:
    if not request.messages:
        raise Refusal(Code.UNAUTHORIZED, "message is null.")
    for message in request.messages:
        yield _topic(message.topic, _PUB)


def _publish(request: Any) -> Iterator[Need]:
    yield _topic(request.topic, _PUB)


def _consume(request: Any) -> Iterator[Need]:
    yield _group(request.group)
    yield _topic(request.topic, _SUB)


def _consume_queue(request: Any) -> Iterator[Need]:
    yield _group(request.group)
    yield from _read_queue(request)


def _read_queue(request: Any) -> Iterator[Need]:
    if not request.HasField("message_queue"):
        raise Refusal(Code.UNAUTHORIZED, "messageQueue is null.")
    yield _topic(request.message_queue.topic, _SUB)


def _heartbeat(request: rpc.HeartbeatRequest) -> Iterator[Need]:
    if request.client_type in _CONSUMERS:
        yield _group(request.group)


def _terminate(request: rpc.NotifyClientTerminationRequest) -> Iterator[Need]:
    if request.group.name.strip():
        yield _group(request.group)


def _route(request: rpc.QueryRouteRequest) -> Iterator[Need]:
    yield _topic(request.topic, _PUB_OR_SUB)


def _telemetry(command: rpc.TelemetryCommand) -> Iterator[Need]:
    if command.WhichOneof("command") != "settings":
        return
    settings = command.settings
    if settings.HasField("publishing"):
        for topic in settings.publishing.topics:
            yield _topic(topic, _PUB)
    if settings.HasField("subscription"):
        yield _group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            yield _topic(entry.topic, _SUB)


_NEEDS: Final[Mapping[type[Any], Callable[[Any], Iterator[Need]]]] = {
    rpc.QueryRouteRequest: _route,
    rpc.QueryAssignmentRequest: _consume,
    rpc.HeartbeatRequest: _heartbeat,
    rpc.NotifyClientTerminationRequest: _terminate,
    rpc.TelemetryCommand: _telemetry,
    rpc.SendMessageRequest: _send,
    rpc.EndTransactionRequest: _publish,
    rpc.RecallMessageRequest: _publish,
    rpc.ReceiveMessageRequest: _consume_queue,
    rpc.AckMessageRequest: _consume,
    rpc.ChangeInvisibleDurationRequest: _consume,
    rpc.ForwardMessageToDeadLetterQueueRequest: _consume,
    rpc.PullMessageRequest: _consume_queue,
    rpc.UpdateOffsetRequest: _consume_queue,
    rpc.GetOffsetRequest: _consume_queue,
    rpc.QueryOffsetRequest: _read_queue,
}
