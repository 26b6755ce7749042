"""Messages of brokers as clients of gRPC receive them."""

from __future__ import annotations

import pytest

from rmq_proxy.messages import fill, message_of, resource
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.message import MessageExt
from rmq_remoting.sys_flags import MessageSysFlag

_BORN_MS = 1_700_000_000_123
_STORED_MS = 1_700_000_000_999


def _received(**properties: str) -> MessageExt:
    message = MessageExt("T", b"body")
    message.properties = {"UNIQ_KEY": "01ID", **properties}
    message.queue_id, message.queue_offset, message.reconsume_times = 3, 77, 1
    message.born_timestamp, message.store_timestamp = _BORN_MS, _STORED_MS
    message.born_host, message.store_host = ("192.0.2.1", 4711), ("192.0.2.2", 10911)
    return message


def test_a_message_has_all_that_the_broker_knows() -> None:
    message = message_of(
        _received(
            TAGS="A",
            KEYS="k1 k2",
            POP_CK="1 2 3 4 0 b 3 77 9",
            __SHARDINGKEY="g",
            TRACE_CONTEXT="t",
            colour="red",
        )
    )
    system = message.system_properties
    assert (message.topic.name, message.topic.resource_namespace, message.body) == ("T", "", b"body")
    assert message.user_properties["colour"] == "red"
    assert "TAGS" not in message.user_properties
    assert (system.message_id, system.tag, list(system.keys)) == ("01ID", "A", ["k1", "k2"])
    assert (system.message_group, system.trace_context) == ("g", "t")
    assert (system.message_type, system.body_encoding) == (pb.FIFO, pb.IDENTITY)
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 77, 2)
    assert (system.born_host, system.store_host) == ("192.0.2.1", "192.0.2.2:10911")
    assert system.receipt_handle == "1 2 3 4 0 b 3 77 9"
    assert system.body_digest.type == pb.MD5
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
    assert not system.HasField("delivery_timestamp")
    assert not system.HasField("dead_letter_queue")


def test_times_have_milliseconds() -> None:
    system = message_of(_received(TIMER_DELIVER_MS=str(_STORED_MS + 1))).system_properties
    assert system.born_timestamp.ToMilliseconds() == _BORN_MS
    assert system.store_timestamp.ToMilliseconds() == _STORED_MS
    assert system.delivery_timestamp.ToMilliseconds() == _STORED_MS + 1
    assert system.message_type == pb.DELAY


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "253402300800000"},
        {"TIMER_DELIVER_MS": "9" * 40},
        {"TIMER_DELIVER_MS": "-1"},
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELAY_SEC": "9" * 40},
    ],
)
def test_a_delivery_time_that_cannot_be_told_does_not_keep_the_message_back(
    properties: dict[str, str],
) -> None:
    """Clients of the remoting protocol write what they like into properties."""
    system = message_of(_received(**properties)).system_properties
    assert not system.HasField("delivery_timestamp")
    assert system.message_id == "01ID"


def test_the_number_of_deliveries_fits_its_field() -> None:
    received = _received()
    received.reconsume_times = 2**31 - 1
    assert message_of(received).system_properties.delivery_attempt == 2**31 - 1


def test_a_time_before_1970_has_no_negative_nanoseconds() -> None:
    received = _received()
    received.born_timestamp = -1
    born = message_of(received).system_properties.born_timestamp
    assert (born.seconds, born.nanos, born.ToMilliseconds()) == (-1, 999_000_000, -1)


def test_a_compressed_body_counts_as_gzip() -> None:
    received = _received()
    received.sys_flag |= MessageSysFlag.COMPRESSED
    assert message_of(received).system_properties.body_encoding == pb.GZIP


def test_a_message_is_set_in_its_response() -> None:
    response, received = rpc.ReceiveMessageResponse(), _received(colour="red")
    fill(response.message, received)
    assert response.WhichOneof("content") == "message"
    assert response.message == message_of(received)


@pytest.mark.parametrize(
    ("full", "namespace", "name"),
    [("T", "", "T"), ("ns%T", "ns", "T"), ("%RETRY%ns%G", "ns", "%RETRY%G"), ("%RETRY%G", "", "%RETRY%G")],
)
def test_a_namespace_stands_apart(full: str, namespace: str, name: str) -> None:
    made = resource(full)
    assert (made.resource_namespace, made.name) == (namespace, name)
