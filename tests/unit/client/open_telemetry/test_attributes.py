"""Attributes of spans and metrics."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rmq_client import Message, MessageExt, MessageQueue, TimedOut
from rmq_client.errors import broker_error
from rmq_client.open_telemetry import attributes as names
from rmq_client.open_telemetry.attributes import ClientIdentity, ConsumerIdentity
from rmq_remoting.codes import ResponseCode

_IDENTITY = ClientIdentity("n", lambda: None)


def _received(queue_id: int = 0, port: int = 10911) -> MessageExt:
    message = MessageExt("T", b"x", 0, {"UNIQ_KEY": "id"}, queue_id, store_host=("10.0.0.1", port))
    message.broker_name = "broker-a"
    return message


def test_an_operation_has_the_required_attributes() -> None:
    assert _IDENTITY.operation("send", "T") == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.rocketmq.namespace": "n",
    }
    assert "messaging.destination.name" not in _IDENTITY.operation("receive", None)
    assert "messaging.operation.type" not in _IDENTITY.operation("recall", "T")


def test_a_consumer_has_its_group_and_model() -> None:
    attributes = ConsumerIdentity("", lambda: None, "g", broadcasting=True).operation("settle", "T")
    assert attributes["messaging.consumer.group.name"] == "g"
    assert attributes["messaging.rocketmq.consumption_model"] == "broadcasting"


def test_the_id_of_a_client_is_kept_after_its_stop() -> None:
    ids = [None, "client-7", None]
    identity = ClientIdentity("", lambda: ids.pop(0))
    found = [identity.operation("send", "T").get("messaging.client.id") for _ in range(3)]
    assert found == [None, "client-7", "client-7"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("T"), "normal"),
        (Message("T", delay_level=3), "delay"),
        (Message("T", delay_seconds=3), "delay"),
    ],
)
def test_the_type_of_a_message(message: Message, kind: str) -> None:
    assert names.of_message(message)["messaging.rocketmq.message.type"] == kind


def test_a_message_with_a_sharding_key_is_fifo() -> None:
    message = Message("T", b"x", tags="paid", keys=["a", "b"])
    message.sharding_key = "customer-7"
    assert names.of_message(message) == {
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.group": "customer-7",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ["a", "b"],
    }


def test_the_delivery_of_a_delayed_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "now_ms", lambda: 1_000)
    at = datetime.fromtimestamp(5, tz=UTC)
    assert names.of_delay(Message("T")) == {}
    assert names.of_delay(Message("T", delay_level=3)) == {"messaging.rocketmq.message.delay_time_level": 3}
    name = "messaging.rocketmq.message.delivery_timestamp"
    assert names.of_delay(Message("T", deliver_at=at)) == {name: 5_000}
    assert names.of_delay(Message("T", delay_seconds=2)) == {name: 3_000}


def test_received_messages_have_their_common_attributes() -> None:
    one = names.of_received([_received()])
    assert one["messaging.message.id"] == "id"
    assert (one["server.address"], one["server.port"]) == ("10.0.0.1", 10911)
    assert one["messaging.destination.partition.id"] == "0"
    assert names.of_received([_received(0), _received(1)]) == {
        "server.address": "10.0.0.1",
        "server.port": 10911,
    }
    assert names.of_received([_received(0, 1), _received(0, 2)]) == {
        "messaging.destination.partition.id": "0"
    }


def test_addresses_of_servers() -> None:
    assert names.of_server("[::1]:10911") == {"server.address": "::1", "server.port": 10911}
    assert names.of_server("broker") == {"server.address": "broker"}
    assert names.of_server("") == {}


def test_queues_of_several_numbers_have_no_partition() -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in (0, 1)]
    assert names.of_queues(queues) == {}
    assert names.of_queues(queues[:1]) == {"messaging.destination.partition.id": "0"}


def test_errors_have_the_name_of_the_answer_or_of_the_class() -> None:
    busy = broker_error(ResponseCode.SYSTEM_BUSY, "later", "10.0.0.1:10911", "send")
    assert names.of_error(busy) == {
        "error.type": "SYSTEM_BUSY",
        "server.address": "10.0.0.1",
        "server.port": 10911,
    }
    assert names.error_type(broker_error(99_999, "?", "a:1", "send")) == "99999"
    assert names.of_error(TimedOut("late")) == {"error.type": "TimedOut"}


def test_metrics_have_no_attributes_of_single_messages() -> None:
    attributes = _IDENTITY.operation("send", "T") | names.of_message(_received())
    assert names.of_metric(attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.destination.name": "T",
    }
    assert names.of_metric(attributes, with_type=True)["messaging.operation.type"] == "send"
