"""The needs of gRPC requests: topics and groups that a user must have rights for."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_proxy.access.needs import needs_of
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.statuses import Refusal
from rmq_remoting.daemon.access.needs import Need
from rmq_remoting.daemon.access.policies import Action, group, topic
from tests.support.rows import each_row

_T, _U, _G = pb.Resource(name="T"), pb.Resource(name="U"), pb.Resource(name="G")
_QUEUE = pb.MessageQueue(topic=_T)
_PUBLISH, _SUBSCRIBE = Need(topic("T"), (Action.PUB,)), Need(topic("T"), (Action.SUB,))
_CONSUME = Need(group("G"), (Action.SUB,))
_PUBLISHING = pb.Settings(publishing=pb.Publishing(topics=[_T, _U]))
_SUBSCRIPTION = pb.Settings(
    subscription=pb.Subscription(group=_G, subscriptions=[pb.SubscriptionEntry(topic=_T)])
)
_MESSAGES = [pb.Message(topic=_T), pb.Message(topic=_U), pb.Message(topic=_T)]


def _kind(request: Any) -> str:
    return type(request).__name__


@each_row(
    ("request_", "needs"),
    [
        (rpc.QueryRouteRequest(topic=_T), [Need(topic("T"), (Action.PUB, Action.SUB))]),
        (rpc.SendMessageRequest(messages=_MESSAGES), [_PUBLISH, Need(topic("U"), (Action.PUB,))]),
        (rpc.EndTransactionRequest(topic=_T), [_PUBLISH]),
        (rpc.RecallMessageRequest(topic=_T), [_PUBLISH]),
        (rpc.QueryAssignmentRequest(group=_G, topic=_T), [_CONSUME, _SUBSCRIBE]),
        (rpc.AckMessageRequest(group=_G, topic=_T), [_CONSUME, _SUBSCRIBE]),
        (rpc.ChangeInvisibleDurationRequest(group=_G, topic=_T), [_CONSUME, _SUBSCRIBE]),
        (rpc.ForwardMessageToDeadLetterQueueRequest(group=_G, topic=_T), [_CONSUME, _SUBSCRIBE]),
        (rpc.ReceiveMessageRequest(group=_G, message_queue=_QUEUE), [_CONSUME, _SUBSCRIBE]),
        (rpc.PullMessageRequest(group=_G, message_queue=_QUEUE), [_CONSUME, _SUBSCRIBE]),
        (rpc.UpdateOffsetRequest(group=_G, message_queue=_QUEUE), [_CONSUME, _SUBSCRIBE]),
        (rpc.GetOffsetRequest(group=_G, message_queue=_QUEUE), [_CONSUME, _SUBSCRIBE]),
        (rpc.QueryOffsetRequest(message_queue=_QUEUE), [_SUBSCRIBE]),
        (rpc.HeartbeatRequest(group=_G, client_type=pb.PRODUCER), []),
        (rpc.HeartbeatRequest(group=_G, client_type=pb.PUSH_CONSUMER), [_CONSUME]),
        (rpc.HeartbeatRequest(group=_G, client_type=pb.SIMPLE_CONSUMER), [_CONSUME]),
        (rpc.HeartbeatRequest(group=_G, client_type=pb.PULL_CONSUMER), [_CONSUME]),
        (rpc.NotifyClientTerminationRequest(), []),
        (rpc.NotifyClientTerminationRequest(group=_G), [_CONSUME]),
        (rpc.TelemetryCommand(settings=_PUBLISHING), [_PUBLISH, Need(topic("U"), (Action.PUB,))]),
        (rpc.TelemetryCommand(settings=_SUBSCRIPTION), [_CONSUME, _SUBSCRIBE]),
        (rpc.TelemetryCommand(thread_stack_trace=rpc.ThreadStackTrace()), []),
    ],
    ids=_kind,
)
def test_needs(request_: Any, needs: list[Need]) -> None:
    assert needs_of(request_) == needs


@each_row(
    ("request_", "problem"),
    [
        (rpc.QueryRouteRequest(), "topic is null."),
        (rpc.QueryRouteRequest(topic=pb.Resource(name=" ")), "topic is null."),
        (rpc.SendMessageRequest(), "message is null."),
        (rpc.SendMessageRequest(messages=[pb.Message(topic=_T), pb.Message()]), "topic is null."),
        (rpc.AckMessageRequest(topic=_T), "group is null."),
        (rpc.AckMessageRequest(group=_G), "topic is null."),
        (rpc.ReceiveMessageRequest(group=_G), "messageQueue is null."),
        (rpc.ReceiveMessageRequest(message_queue=_QUEUE), "group is null."),
        (rpc.QueryOffsetRequest(), "messageQueue is null."),
        (rpc.QueryOffsetRequest(message_queue=pb.MessageQueue()), "topic is null."),
        (rpc.HeartbeatRequest(client_type=pb.PUSH_CONSUMER), "group is null."),
        (pb.Message(topic=_T), "no rights are known for apache.rocketmq.v2.Message"),
    ],
    ids=_kind,
)
def test_requests_that_name_no_topic_or_group_are_refused(request_: Any, problem: str) -> None:
    with pytest.raises(Refusal) as refusal:
        needs_of(request_)
    assert (refusal.value.code, str(refusal.value)) == (pb.UNAUTHORIZED, problem)


@each_row("method", rpc.DESCRIPTOR.services_by_name["MessagingService"].methods, ids=lambda one: one.name)
def test_every_request_has_needs(method: Any) -> None:
    try:
        needs_of(getattr(rpc, method.input_type.name)())
    except Refusal as refusal:
        assert "no rights are known" not in str(refusal)
