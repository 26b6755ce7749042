"""Editing properties: the stored ones are those that Apache's broker stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.sending.kinds import SendKind
from rmq_broker.sending.properties import PropertiesEditor, tags_codes_cache
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import decode_properties, encode_properties

_ADDED = {"MSG_REGION": "R", "TRACE_ON": "true", "CLUSTER": "C"}
_NAMES = st.sampled_from(
    [
        *("UNIQ_KEY", "TAGS", "KEYS", "WAIT", "a", "POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON", "TRAN_MSG"),
        *("DELAY", "XDELAY", "DELAYED", "MY_POP_CK", "TIMER_D", "TIMER_DEL_UNIQKEY", "_CLUSTER"),
    ]
)
_VALUES = st.sampled_from(["", "x", "false", "0", "ü", "DELAY\x013", "a\x01b", "UNIQ_KEY\x01no"])


def _editor(trace_on: bool = True) -> PropertiesEditor:
    return PropertiesEditor("C", "R", trace_on, lambda: "MADE", tags_codes_cache())


def _as_apache(raw: bytes) -> dict[str, str]:
    """Return the properties that a consumer reads from a message stored by Apache's broker."""
    properties = decode_properties(raw)
    properties.pop("POP_CK", None)
    if not properties.get("UNIQ_KEY"):
        properties["UNIQ_KEY"] = "MADE"
    return properties | _ADDED


def _without_delays(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, "0" if name == "DELAY" else value) for name, value in fields]


@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=8).map(_without_delays), st.booleans())
def test_consumers_read_the_same_properties_as_from_apache(
    fields: list[tuple[str, str]], ended: bool
) -> None:
    raw = "\x02".join(f"{name}\x01{value}" for name, value in fields).encode() + (b"\x02" if ended else b"")

    assert decode_properties(_editor().of_message(raw)[0]) == _as_apache(raw)


@given(st.text(alphabet="\x01\x02ABÜ", max_size=40))
def test_malformed_properties_are_read_as_from_apache(text: str) -> None:
    assert decode_properties(_editor().of_message(text.encode())[0]) == _as_apache(text.encode())


@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=8))
def test_the_last_tags_count(fields: list[tuple[str, str]]) -> None:
    raw = "".join(f"{name}\x01{value}\x02" for name, value in fields).encode()

    assert _editor().tags_code(raw) == tags_code(decode_properties(raw).get("TAGS"))


def test_the_trace_switch_follows_the_settings() -> None:
    assert decode_properties(_editor(trace_on=False).of_message(b"")[0])["TRACE_ON"] == "false"


def test_a_batch_gets_no_unique_key() -> None:
    shared = _editor().of_batch(b"WAIT\x01true\x02POP_CK\x01x")
    assert decode_properties(shared) == {"WAIT": "true"} | _ADDED


@pytest.mark.parametrize("others_before", [0, 1, 5])
def test_a_delay_level_is_found_at_any_place(others_before: int) -> None:
    others = {f"other{number}": "x" for number in range(others_before)}
    raw = encode_properties({**others, "DELAY": "7", "TIMER_DELAY_MS": "5", "last": "y"})

    properties, _, kind, delay_level = _editor().of_message(raw)

    assert (kind, delay_level) == (SendKind.DELAYED, 7)
    assert decode_properties(properties)["DELAY"] == "7"
    with pytest.raises(CommandError, match="a batch cannot be delayed") as refused:
        _editor().of_batch(raw)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("level", [b"0", b"-1", b"-18"])
def test_a_delay_level_below_1_is_no_delay(level: bytes) -> None:
    raw = b"DELAY\x01%b\x02" % level
    properties, _, kind, delay_level = _editor().of_message(raw)

    assert (kind, delay_level) == (SendKind.PLAIN, 0)
    assert decode_properties(properties)["DELAY"] == level.decode()
    assert decode_properties(_editor().of_batch(raw))["DELAY"] == level.decode()


def test_a_delayed_retry_is_no_half_message() -> None:
    """Clients before 4.6.1 leave TRAN_MSG on messages that they send to their retry topic."""
    raw = b"TRAN_MSG\x01true\x02DELAY\x013\x02"

    assert _editor().of_message(raw, 1)[2:] == (SendKind.DELAYED, 3)
    assert _editor().of_message(b"TRAN_MSG\x01true\x02", 1)[2:] == (SendKind.HALF, 0)
    with pytest.raises(CommandError, match=r"cannot be delayed .property DELAY='3'"):
        _editor().of_message(raw)


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_a_half_message_cannot_be_in_a_batch(value: str) -> None:
    raw = encode_properties({"TRAN_MSG": value})
    assert _editor().of_message(raw)[2] is SendKind.HALF
    with pytest.raises(CommandError, match="a batch cannot be part of a transaction"):
        _editor().of_batch(raw)


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
@pytest.mark.parametrize("others_before", [0, 1, 5])
def test_a_delivery_time_is_found_at_any_place(name: str, others_before: int) -> None:
    others = {f"other{number}": "x" for number in range(others_before)}
    raw = encode_properties({**others, name: "7", "last": "y"})
    assert _editor().of_message(raw)[2:] == (SendKind.TIMED, 0)
    for refused_raw, remark in (
        (raw, "a batch cannot be sent for a time"),
        (raw + b"TRAN_MSG\x01true\x02", f"cannot be delayed .property {name}='7'"),
    ):
        edit = _editor().of_batch if refused_raw is raw else _editor().of_message
        with pytest.raises(CommandError, match=remark) as refused:
            edit(refused_raw)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_refusal_shows_only_the_beginning_of_a_long_value() -> None:
    with pytest.raises(CommandError) as refused:
        _editor().of_message(b"DELAY\x01" + b"9" * 10_000)
    assert len(refused.value.remark) < 300


@pytest.mark.parametrize("first", [b"", b"CLUSTER\x01c\x02"])
def test_the_limit_applies_to_the_stored_properties(first: bytes) -> None:
    key = b"UNIQ_KEY\x01K\x02v\x01"
    added = len(encode_properties(_ADDED))
    longest = 32_767 - added - len(key) - 1

    assert len(_editor().of_message(first + key + b"x" * longest)[0]) == 32_767
    with pytest.raises(CommandError, match="the limit is 32767") as refused:
        _editor().of_message(first + key + b"x" * (longest + 1))
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    with pytest.raises(CommandError, match="the limit is 32767"):
        _editor().of_batch(first + key + b"x" * 40_000)


def test_the_cache_of_tags_is_bounded() -> None:
    cache = tags_codes_cache()
    editor = PropertiesEditor("C", "R", True, lambda: "MADE", cache)
    for number in range(20_001):
        editor.tags_code(b"TAGS\x01%d\x02" % number)
    assert 0 < len(cache) <= 10_000
    editor.tags_code(b"TAGS\x01%b\x02" % (b"t" * 256))
    assert max(map(len, cache.entries)) <= 255
