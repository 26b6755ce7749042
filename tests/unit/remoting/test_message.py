"""The messages that applications see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_errors import InvalidPropertyError, MessageEncodeError

# 6 ms after the beginning of 1970.
_SIX: Final = datetime(1970, 1, 1, 0, 0, 0, 6_000, UTC)


class TestMessage:
    def test_as_an_application_writes_it(self) -> None:
        message = Message("orders", b"body", tags="paid", keys=["k1", "k2"], properties={"shop": "7"}, flag=3)
        assert (message.topic, message.body, message.flag) == ("orders", b"body", 3)
        assert (message.tags, message.keys) == ("paid", ["k1", "k2"])
        assert message.properties == {"TAGS": "paid", "KEYS": "k1 k2", "shop": "7"}
        assert message.user_properties == {"shop": "7"}

    def test_defaults(self) -> None:
        message = Message("t")
        assert (message.body, message.flag, message.properties) == (b"", 0, {})
        assert (message.tags, message.keys, message.sharding_key, message.unique_key) == (
            None,
            [],
            None,
            None,
        )
        assert (message.delay_level, message.delay_seconds, message.deliver_at) == (0, 0.0, None)
        assert message.wait_store_ok

    @pytest.mark.parametrize("body", [bytearray(b"body"), memoryview(b"body")])
    def test_other_kinds_of_bytes(self, body: bytearray | memoryview) -> None:
        assert type(Message("t", body).body) is bytes
        assert Message("t", body).body == b"body"

    def test_a_text_is_no_body(self) -> None:
        with pytest.raises(MessageEncodeError, match=r"not str: encode texts with \.encode\(\)"):
            Message("t", "text")  # type: ignore[arg-type]

    def test_properties_are_copied(self) -> None:
        given = {"a": "1"}
        Message("t", properties=given).properties["b"] = "2"
        assert given == {"a": "1"}

    def test_attributes_are_views_of_properties(self) -> None:
        message = Message("t", delay_level=3)
        assert message.properties == {"DELAY": "3"}
        message.delay_level = 0
        message.tags = "a"
        message.keys = "k1  k2"
        message.sharding_key = "s"
        message.unique_key = "u"
        message.delay_seconds = 0.005
        message.deliver_at = _SIX
        message.wait_store_ok = False
        assert message.properties == {
            "TAGS": "a",
            "KEYS": "k1  k2",
            "__SHARDINGKEY": "s",
            "UNIQ_KEY": "u",
            "TIMER_DELAY_MS": "5",
            "TIMER_DELIVER_MS": "6",
            "WAIT": "false",
        }
        assert message.keys == ["k1", "k2"]
        assert (message.delay_seconds, message.deliver_at, message.wait_store_ok) == (0.005, _SIX, False)
        message.tags = message.sharding_key = message.unique_key = None
        message.keys = []
        message.delay_seconds, message.deliver_at = 0, None
        message.wait_store_ok = True
        assert message.properties == {}

    @pytest.mark.parametrize(
        ("times", "properties"),
        [
            ({"delay_seconds": 0.005}, {"TIMER_DELAY_MS": "5"}),
            ({"delay_seconds": timedelta(seconds=90)}, {"TIMER_DELAY_MS": "90000"}),
            ({"delay_seconds": 1e-9}, {"TIMER_DELAY_MS": "1"}),
            ({"deliver_at": _SIX}, {"TIMER_DELIVER_MS": "6"}),
            ({"delay_seconds": 0, "deliver_at": None}, {}),
        ],
    )
    def test_a_message_that_comes_later(self, times: dict[str, Any], properties: dict[str, str]) -> None:
        assert Message("t", **times).properties == properties

    @pytest.mark.parametrize(
        ("times", "problem"),
        [
            ({"delay_seconds": -1}, "delay_seconds is -1: it must be at least 0"),
            ({"delay_seconds": float("nan")}, "delay_seconds is nan: it must be at least 0"),
            ({"delay_seconds": "5"}, "a number of seconds or a timedelta"),
            ({"deliver_at": 1.5}, "deliver_at is 1.5: it must be a datetime with a time zone"),
            ({"deliver_at": datetime(2030, 1, 1)}, "it must be a datetime with a time zone"),
            ({"deliver_at": datetime(1969, 1, 1, tzinfo=UTC)}, "after the beginning of 1970"),
            ({"delay_level": -1}, "delay_level is -1: it must be a whole number, 0 for none"),
            ({"delay_seconds": 5, "deliver_at": _SIX}, "a message has one delivery time"),
            ({"delay_seconds": 5, "delay_level": 1}, "a message has one delivery time"),
        ],
    )
    def test_a_time_that_is_none(self, times: dict[str, Any], problem: str) -> None:
        with pytest.raises(InvalidPropertyError, match=problem):
            Message("t", **times)

    def test_numbers_of_other_programs_that_are_none(self) -> None:
        message = Message("t")
        message.properties["DELAY"] = "soon"
        assert message.delay_level == 0

    @pytest.mark.parametrize(
        "properties", [{"TAGS": "a"}, {"n": ""}, {"": "v"}, {"n": "a\x02b"}, {"n": 5}, {"n": None}]
    )
    def test_properties_that_are_refused(self, properties: dict[str, str]) -> None:
        with pytest.raises(InvalidPropertyError):
            Message("t", properties=properties)

    def test_tags_and_keys_that_are_refused(self) -> None:
        with pytest.raises(InvalidPropertyError, match="TAGS"):
            Message("t", tags="a\x02")
        with pytest.raises(InvalidPropertyError, match="'k 1'"):
            Message("t", keys=["k 1"])

    def test_put_user_property(self) -> None:
        message = Message("t")
        message.put_user_property("shop", "7")
        assert message.properties == {"shop": "7"}
        with pytest.raises(InvalidPropertyError, match="UNIQ_KEY"):
            message.put_user_property("UNIQ_KEY", "7")

    def test_equality_and_text(self) -> None:
        assert Message("t", b"x", tags="a") == Message("t", b"x", tags="a")
        assert Message("t", b"x") != Message("t", b"y")
        assert (
            repr(Message("t", b"secret", tags="a"))
            == "Message(topic='t', body=<6 bytes>, flag=0, properties={'TAGS': 'a'})"
        )

    def test_has_no_room_for_misspelt_attributes(self) -> None:
        with pytest.raises(AttributeError):
            Message("t").tag = "a"  # type: ignore[attr-defined]


class TestMessageExt:
    stored = ("10.0.0.1", 10911)

    def test_id_is_the_senders_where_there_is_one(self) -> None:
        message = MessageExt("t", store_host=self.stored, physical_offset=9876543210)
        assert message.msg_id == message.offset_msg_id == "0A00000100002A9F000000024CB016EA"
        message.unique_key = "0A000003162E18B4AAC2123456780000"
        assert message.msg_id == "0A000003162E18B4AAC2123456780000"
        assert message.offset_msg_id == "0A00000100002A9F000000024CB016EA"

    def test_has_the_attributes_of_a_message(self) -> None:
        message = MessageExt("t", b"x", properties={"TAGS": "a", "KEYS": "k1 k2"})
        assert isinstance(message, Message)
        assert (message.tags, message.keys) == ("a", ["k1", "k2"])

    def test_text(self) -> None:
        text = repr(MessageExt("t", b"secret", queue_id=3, queue_offset=70, broker_name="b"))
        assert "secret" not in text
        assert "broker_name='b', queue_id=3, queue_offset=70, msg_id='0000000000000000" in text

    def test_messages_share_no_properties(self) -> None:
        assert MessageExt("t").properties is not MessageExt("t").properties
