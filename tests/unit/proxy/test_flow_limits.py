"""Flow limits: calls in progress, refusals, and the rate of log lines."""

from __future__ import annotations

import logging

import pytest

from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.flow_limits import FlowLimit, FlowLimits, Slot
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.statuses import Refusal


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _limit(most: int, clock: _Clock | None = None) -> FlowLimit:
    return FlowLimit("producer", most, "grpcProducerThreadQueueCapacity", clock or _Clock())


def test_a_call_beyond_the_limit_is_refused_until_another_one_ends() -> None:
    limit = _limit(2)
    first = limit.enter()
    with limit.enter():
        with pytest.raises(Refusal) as refused:
            limit.enter()
        assert refused.value.code == pb.TOO_MANY_REQUESTS
        assert str(refused.value).startswith("flow limit: 2 calls (producer) are in progress")
        assert "grpcProducerThreadQueueCapacity is 2" in str(refused.value)
        first.release()
        limit.enter().release()
    assert (limit.in_progress, limit.refused) == (0, 1)


def test_a_slot_is_released_once() -> None:
    limit = _limit(5)
    with limit.enter() as slot:
        slot.release()
        other = limit.enter()
    slot.release()
    assert limit.in_progress == 1
    other.release()
    Slot().release()
    assert limit.in_progress == 0


def test_the_log_tells_once_a_minute_with_the_number_of_refusals(caplog: pytest.LogCaptureFixture) -> None:
    clock = _Clock()
    limit = _limit(1, clock)
    slot = limit.enter()

    def refuse(times: int) -> None:
        for _ in range(times):
            with pytest.raises(Refusal):
                limit.enter()

    with caplog.at_level(logging.WARNING, "rmq.proxy"):
        refuse(3)
        clock.now += 59
        refuse(4)
        clock.now += 1
        refuse(1)
    slot.release()
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"gRPC calls refused kind=producer refused={number} limit=1 setting=grpcProducerThreadQueueCapacity"
        for number in (1, 7)
    ]


def test_each_method_has_the_limit_of_its_kind() -> None:
    settings = ProxyDaemonSettings.model_validate(
        {
            "namesrvAddr": "127.0.0.1:1",
            "grpcProducerThreadQueueCapacity": 1,
            "grpcConsumerThreadQueueCapacity": 2,
            "grpcRouteThreadQueueCapacity": 3,
            "grpcClientManagerThreadQueueCapacity": 4,
            "grpcTransactionThreadQueueCapacity": 5,
        }
    )
    flows = FlowLimits(settings)
    most = {
        method.name: flows.of(method.name).most
        for method in rpc.DESCRIPTOR.services_by_name["MessagingService"].methods
        if "Lite" not in method.name
    }
    assert most == {
        "QueryRoute": 3,
        "Heartbeat": 4,
        "SendMessage": 1,
        "QueryAssignment": 3,
        "ReceiveMessage": 2,
        "AckMessage": 2,
        "ForwardMessageToDeadLetterQueue": 2,
        "PullMessage": 2,
        "UpdateOffset": 2,
        "GetOffset": 2,
        "QueryOffset": 2,
        "EndTransaction": 5,
        "Telemetry": 4,
        "NotifyClientTermination": 4,
        "ChangeInvisibleDuration": 2,
        "RecallMessage": 1,
    }
