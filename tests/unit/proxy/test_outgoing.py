"""Messages of clients: properties in the store, limits, and the texts of refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_proxy.metadata import TopicType, check_type, type_of
from rmq_proxy.outgoing import OutgoingMessages, sys_flag_of
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol.definition_pb2 import Code
from rmq_proxy.settings import ProxySettings
from rmq_proxy.statuses import Refusal
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.rows import each_row

NOW_MS = 1_700_000_000_000
PEER = "192.0.2.1:4711"


def _message(body: bytes = b"x") -> pb.Message:
    message = pb.Message(body=body)
    message.topic.name = "T"
    message.system_properties.message_id = "01ID"
    return message


def _properties(message: pb.Message) -> dict[str, str]:
    return OutgoingMessages(ProxySettings(), lambda: NOW_MS).convert(message, PEER).properties


def test_every_system_property_is_stored() -> None:
    message = _message()
    system = message.system_properties
    message.user_properties["colour"] = "red"
    system.tag = "A"
    system.keys.extend(["k1", "k2"])
    system.message_group = "customer-7"
    system.trace_context = "00-1-2-01"
    system.born_timestamp.FromMilliseconds(NOW_MS - 5)
    assert _properties(message) == {
        "colour": "red",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "01ID",
        "PGROUP": "T",
        "RECONSUME_TIME": "0",
        "__SHARDINGKEY": "customer-7",
        "TRACE_CONTEXT": "00-1-2-01",
        "__BORNHOST": PEER,
        "BORN_TIMESTAMP": str(NOW_MS - 5),
    }


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_000, NOW_MS + 999, -1, -1_500])
def test_the_time_of_birth_is_stored_in_milliseconds(milliseconds: int) -> None:
    message = _message()
    message.system_properties.born_timestamp.FromMilliseconds(milliseconds)
    assert _properties(message)["BORN_TIMESTAMP"] == str(milliseconds)


@pytest.mark.parametrize(("seconds", "nanos"), [(1 << 62, 0), (1, -1), (1, 1_000_000_000)])
def test_a_time_of_birth_that_protobuf_does_not_allow_is_refused(seconds: int, nanos: int) -> None:
    message = _message()
    born = message.system_properties.born_timestamp
    born.seconds, born.nanos = seconds, nanos
    with pytest.raises(Refusal, match="the born timestamp cannot be used: Timestamp is not valid") as refused:
        _properties(message)
    assert refused.value.code == Code.BAD_REQUEST


def test_a_delivery_time_that_protobuf_does_not_allow_is_refused() -> None:
    message = _message()
    message.system_properties.delivery_timestamp.seconds = 1 << 62
    with pytest.raises(Refusal, match="the delivery timestamp cannot be used") as refused:
        _properties(message)
    assert refused.value.code == Code.ILLEGAL_DELIVERY_TIME


def test_a_half_message_has_its_flag_and_its_time_until_the_first_check() -> None:
    message = _message()
    message.system_properties.message_type = pb.TRANSACTION
    message.system_properties.orphaned_transaction_recovery_duration.FromSeconds(30)
    properties = _properties(message)
    assert (properties["TRAN_MSG"], properties["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")
    assert type_of(properties) is TopicType.TRANSACTION
    assert sys_flag_of(message) == MessageSysFlag.TRANSACTION_PREPARED


def test_a_delayed_message_has_its_time() -> None:
    message = _message()
    message.system_properties.delivery_timestamp.FromMilliseconds(NOW_MS + 86_400_000)
    properties = _properties(message)
    assert properties["TIMER_DELIVER_MS"] == str(NOW_MS + 86_400_000)
    assert type_of(properties) is TopicType.DELAY


def _delayed_too_long(message: pb.Message) -> None:
    message.system_properties.delivery_timestamp.FromMilliseconds(NOW_MS + 86_400_001)


def _checked_too_late(message: pb.Message) -> None:
    message.system_properties.message_type = pb.TRANSACTION
    message.system_properties.orphaned_transaction_recovery_duration.FromSeconds(3601)


def _set(name: str, value: str) -> Callable[[pb.Message], None]:
    def change(message: pb.Message) -> None:
        if name == "keys":
            message.system_properties.keys.append(value)
        else:
            setattr(message.system_properties, name, value)

    return change


def _property(name: str, value: str) -> Callable[[pb.Message], None]:
    def change(message: pb.Message) -> None:
        message.user_properties[name] = value

    return change


def _many_properties(message: pb.Message) -> None:
    message.user_properties.update({f"p{number}": "x" for number in range(129)})


@each_row(
    ("change", "code", "text"),
    [
        (_set("message_id", " "), Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty"),
        (_set("tag", " "), Code.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace"),
        (_set("tag", "a|b"), Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'"),
        (_set("tag", "a\x01"), Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character"),
        (_set("keys", "\t"), Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace"),
        (_set("keys", "a\x7f"), Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character"),
        (
            _set("message_group", "a\x01"),
            Code.ILLEGAL_MESSAGE_GROUP,
            "message group cannot contain control character",
        ),
        (_set("message_group", "x" * 64), Code.ILLEGAL_MESSAGE_GROUP, "message group exceed the max size 64"),
        (_property("TAGS", "x"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "property is used by system: TAGS"),
        (
            _property("a\x02", "x"),
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "the key of property cannot contain control character",
        ),
        (
            _property("a", "x\n"),
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "the value of property cannot contain control character",
        ),
        # These two would add properties of their own to the message.
        (
            _set("trace_context", "a\x02TAGS\x01b"),
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "the trace context cannot contain control character",
        ),
        (
            _set("born_host", "a\x02TAGS\x01b"),
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "the born host cannot contain control character",
        ),
        (_many_properties, Code.MESSAGE_PROPERTIES_TOO_LARGE, "too many user properties, max is 128"),
        (
            _property("a", "x" * 16384),
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            "the total size of user property is too large, max is 16384",
        ),
        (
            _delayed_too_long,
            Code.ILLEGAL_DELIVERY_TIME,
            "the max delay time of message is too large, max is 86400000",
        ),
        (
            _checked_too_late,
            Code.BAD_REQUEST,
            "the max transaction recovery time of message is too large, max is 3600",
        ),
    ],
)
def test_refusals_have_the_codes_and_texts_of_apaches_proxy(
    change: Callable[[pb.Message], None], code: Code, text: str
) -> None:
    message = _message()
    change(message)
    with pytest.raises(Refusal) as refused:
        _properties(message)
    assert (refused.value.code, str(refused.value)) == (code, text)


def test_bodies_are_neither_empty_nor_too_large() -> None:
    outgoing = OutgoingMessages(ProxySettings.model_validate({"maxMessageSize": 10}))
    outgoing.convert(_message(b"x" * 10), PEER)
    for body, code in ((b"", Code.MESSAGE_BODY_EMPTY), (b"x" * 11, Code.MESSAGE_BODY_TOO_LARGE)):
        with pytest.raises(Refusal) as refused:
            outgoing.convert(_message(body), PEER)
        assert refused.value.code == code


@pytest.mark.parametrize("expected", [TopicType.NORMAL, TopicType.MIXED])
def test_a_topic_takes_messages_of_its_type(expected: TopicType) -> None:
    check_type(expected, TopicType.NORMAL)


def test_a_topic_refuses_messages_of_another_type() -> None:
    with pytest.raises(Refusal, match="the expected type is FIFO, but actual type is NORMAL") as refused:
        check_type(TopicType.FIFO, TopicType.NORMAL)
    assert refused.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_properties_without_a_value_are_not_stored() -> None:
    message = _message()
    message.user_properties["colour"] = ""
    message.system_properties.keys.append("")
    message.system_properties.born_host = " "
    assert _properties(message) == {
        "UNIQ_KEY": "01ID",
        "PGROUP": "T",
        "RECONSUME_TIME": "0",
        "__BORNHOST": PEER,
    }
