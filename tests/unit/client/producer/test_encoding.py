"""Send frames against the decoder of the protocol package, and responses of every kind of broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_client import BrokerError, Busy, MessageQueue, SendStatus
from rmq_client.producer.encoding import Outgoing, QueueEndpoint, Stored, decode_send_response
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.headers.send import SendTarget
from rmq_remoting.headers.send_answers import SendResponseEncoder
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from tests.support.rows import each_row

_HANDLE = "djEgVCBicm9rZXItYSAxIEs="
_QUEUE = MessageQueue("Töpic", "broker-a", 3)
_TARGET = SendTarget("group", "Töpic", "TBW102", 4, 3, broker_name="broker-a")
_BORN_MS = 1_700_000_000_123


def _endpoint(serialization: Serialization = Serialization.BINARY) -> QueueEndpoint:
    return QueueEndpoint(_QUEUE, "127.0.0.1:1", _TARGET, serialization)


def _decoded(frame: bytes) -> RemotingCommand:
    (command,) = FrameDecoder().feed(frame)
    return command


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("oneway", [False, True])
@given(
    body=st.binary(max_size=50),
    properties=st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=50).map(str.encode),
    sys_flag=st.sampled_from([0, 0x301, 0x101]),
    flag=st.integers(-(2**31), 2**31 - 1),
    batch=st.booleans(),
)
def test_the_servers_decoder_reads_send_frames(
    serialization: Serialization,
    oneway: bool,
    body: bytes,
    properties: bytes,
    sys_flag: int,
    flag: int,
    batch: bool,
) -> None:
    endpoint = _endpoint(serialization)
    outgoing = Outgoing(body, properties, sys_flag, flag, batch)
    decoder = SendHeaderDecoder()
    for opaque in (1, 2**31 - 1):  # the second time from prepared pieces, and the decoder's cache
        command = _decoded(endpoint.frame(opaque, _BORN_MS, outgoing, oneway))
        assert (command.code, command.opaque, command.body) == (320 if batch else 310, opaque, body)
        assert (command.is_oneway, command.is_response) == (oneway, False)
        assert (command.language, command.version, command.serialization) == (3, 479, serialization)
        header = decoder.decode(command)
        assert (header.born_timestamp_ms, header.properties) == (_BORN_MS, properties)
        target = header.target
        assert (target.producer_group, target.topic, target.queue_id) == ("group", "Töpic", 3)
        assert (target.default_topic, target.default_topic_queue_nums) == ("TBW102", 4)
        assert (target.sys_flag, target.flag, target.batch) == (sys_flag, flag, batch)
        assert (target.reconsume_times, target.unit_mode, target.broker_name) == (0, False, "broker-a")


def test_the_decoder_finds_the_constant_part_by_its_bytes() -> None:
    endpoint, decoder = _endpoint(), SendHeaderDecoder()
    headers = [
        decoder.decode(_decoded(endpoint.frame(n, _BORN_MS + n, Outgoing(b"", b"p%d" % n)))) for n in range(3)
    ]
    assert headers[0].target is headers[1].target is headers[2].target


def test_prepared_frame_pieces_are_bounded() -> None:
    endpoint = _endpoint()
    for flag in range(1000):
        endpoint.frame(1, _BORN_MS, Outgoing(b"", b"p", flag=flag))
    assert len(endpoint._pieces) <= 64


# --- responses ---


def _request(serialization: Serialization) -> RemotingCommand:
    return RemotingCommand.request(310, serialization=serialization)


def _received(answer: bytes | RemotingCommand) -> RemotingCommand:
    return _decoded(answer if isinstance(answer, bytes) else encode_frame(answer))


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize(("queue_id", "offset"), [(0, 0), (3, 7), (2_000_000, 2**62)])
def test_answers_of_our_broker(serialization: Serialization, queue_id: int, offset: int) -> None:
    msg_id = b"7F00000100002A9F0000000000000000"
    encoder = SendResponseEncoder("DefaultRegion", trace_on=True)
    answer = encoder.encode(_request(serialization), msg_id, queue_id, offset)
    stored = decode_send_response(_received(answer), _endpoint())
    assert stored == Stored(SendStatus.SEND_OK, msg_id.decode(), queue_id, offset)


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize(("region", "trace_on"), [("DefaultRegion", True), ("east", True), ("east", False)])
def test_region_of_traces_in_answers_of_our_broker(
    serialization: Serialization, region: str, trace_on: bool
) -> None:
    encoder = SendResponseEncoder(region, trace_on=trace_on)
    for offset in (7, 123_456):
        answer = encoder.encode(_request(serialization), b"7F00000100002A9F0000000000000000", 1, offset)
        stored = decode_send_response(_received(answer), _endpoint())
        assert stored.traced_region == (region if trace_on else None)


@each_row("serialization", list(Serialization))
@each_row("order", [("msgId", "queueId", "queueOffset"), ("queueOffset", "msgId", "queueId")])
@each_row("count", [1, 8, 500])
def test_answers_in_any_order_and_of_any_length(
    serialization: Serialization, order: tuple[str, ...], count: int
) -> None:
    values = {"msgId": ",".join(["A" * 32] * count), "queueId": "1", "queueOffset": "12"}
    fields = {"MSG_REGION": "r", **{name: values[name] for name in order}, "TRACE_ON": "true"}
    for ext_fields in (fields, {name: values[name] for name in order}):
        answer = _request(serialization).response(0, ext_fields=ext_fields)
        stored = decode_send_response(_received(answer), _endpoint())
        assert stored == Stored(SendStatus.SEND_OK, values["msgId"], 1, 12)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_statuses_of_stored_messages(code: int, status: SendStatus) -> None:
    fields = {"msgId": "A", "queueId": "1", "queueOffset": "2"}
    answer = _request(Serialization.BINARY).response(code, ext_fields=fields)
    assert decode_send_response(_received(answer), _endpoint()).status is status


def test_refusals() -> None:
    answer = _request(Serialization.BINARY).response(ResponseCode.SYSTEM_BUSY, "too much")
    with pytest.raises(
        Busy, match=r"send to Töpic \(broker-a:3\): 127.0.0.1:1 answered 2 \(SYSTEM_BUSY\): too much"
    ):
        decode_send_response(_received(answer), _endpoint())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"msgId": "A"},
        {"msgId": "A", "queueId": "x", "queueOffset": "2"},
        {"msgId": "A", "queueId": "1", "queueOffset": "2.5"},
    ],
)
@pytest.mark.parametrize("serialization", list(Serialization))
def test_unreadable_send_answers_raise_broker_error(
    serialization: Serialization, fields: dict[str, str]
) -> None:
    answer = _request(serialization).response(0, ext_fields=fields)
    with pytest.raises(BrokerError, match="unreadable answer"):
        decode_send_response(_received(answer), _endpoint())


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("handle", [None, _HANDLE])
def test_recall_handles_of_delayed_messages(serialization: Serialization, handle: str | None) -> None:
    request = RemotingCommand.request(310, {}, serialization=serialization)
    fields = {"msgId": "00", "queueId": "3", "queueOffset": "7", "MSG_REGION": "r"}
    if handle is not None:
        fields["recallHandle"] = handle
    answer = encode_frame(request.response(ResponseCode.SUCCESS, ext_fields=fields))
    assert decode_send_response(_decoded(answer), _endpoint()).recall_handle == handle
