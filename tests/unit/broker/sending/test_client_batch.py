"""Client batches: the fast path for messages of one size reads the same as the path message by message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.sending import client_batch
from rmq_broker.sending.client_batch import read_batch
from rmq_broker.sending.properties import PropertiesEditor, tags_codes_cache
from rmq_broker.store.api import BatchMessages
from rmq_remoting.errors import CommandError
from rmq_remoting.java_hash import tags_code

_Item = tuple[int, bytes, bytes]


def editor() -> PropertiesEditor:
    return PropertiesEditor("cluster", "region", True, lambda: "KEY", tags_codes_cache(), append_crc=False)


def encoded(items: list[_Item]) -> bytes:
    parts = []
    for flag, body, properties in items:
        size = 22 + len(body) + len(properties)
        head = size.to_bytes(4, "big") + bytes(8) + flag.to_bytes(4, "big", signed=True)
        parts += [head, len(body).to_bytes(4, "big"), body, len(properties).to_bytes(2, "big"), properties]
    return b"".join(parts)


def as_rows(messages: BatchMessages) -> list[tuple[int, bytes, bytes, int]]:
    columns = (messages.flags, messages.bodies, messages.own_properties, messages.tags_codes)
    return list(zip(*columns, strict=True))


def expected(items: list[_Item], shared: bytes = b"") -> list[tuple[int, bytes, bytes, int]]:
    rows = []
    for flag, body, properties in items:
        own = properties if not properties or properties.endswith(b"\x02") else properties + b"\x02"
        rows.append((flag, body, own, editor().tags_code(own + shared)))
    return rows


_property = st.sampled_from(
    [b"TAGS\x01a\x02", b"TAGS\x01b\x02", b"KEYS\x01k\x02", b"x\x01y\x02", b"UNIQ_KEY\x01K"]
)
_properties = st.lists(_property, max_size=3).map(b"".join) | st.just("ä\x01ö\x02".encode())
_items = st.lists(st.tuples(st.integers(-9, 9), st.binary(max_size=50), _properties), min_size=1, max_size=40)


@given(_items)
def test_a_batch_is_read_message_by_message(items: list[_Item]) -> None:
    messages, has_keys = read_batch(encoded(items), b"", 0, editor())
    assert as_rows(messages) == expected(items)
    assert has_keys or not any(b"KEYS\x01" in properties for _, _, properties in items)


@given(_items, st.integers(2, 40))
def test_a_batch_of_messages_of_one_size(items: list[_Item], count: int) -> None:
    items = items[:1] * count
    messages, _ = read_batch(encoded(items), b"", 0, editor())
    assert as_rows(messages) == expected(items)


def test_messages_of_one_size_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_batch, "_one_by_one", None)
    items = [(1, b"%03d" % number, b"UNIQ_KEY\x01%03d\x02" % number) for number in range(200)]
    messages, has_keys = read_batch(encoded(items), b"b\x01c\x02", 0, editor())
    assert as_rows(messages) == expected(items, b"b\x01c\x02") and not has_keys
    assert messages.shared_properties == b"b\x01c\x02"


def test_tags_and_keys_of_the_batch_belong_to_each_message() -> None:
    body = encoded([(0, b"a", b""), (0, b"bb", b"")])
    messages, has_keys = read_batch(body, b"TAGS\x01t\x02KEYS\x01k\x02", tags_code("t"), editor())
    assert list(messages.tags_codes) == [tags_code("t")] * 2 and has_keys


@given(_items.filter(lambda items: len(items) > 1), st.data())
def test_a_truncated_batch_is_refused_or_read_up_to_the_cut(items: list[_Item], data: st.DataObject) -> None:
    body = encoded(items)
    cut = data.draw(st.integers(1, len(body) - 1))
    try:
        messages, _ = read_batch(body[:cut], b"", 0, editor())
    except CommandError as error:
        assert "of the batch" in error.remark
        return
    # The cut fell between two messages.
    assert as_rows(messages) == expected(items)[: len(messages.flags)]
    assert len(encoded(items[: len(messages.flags)])) == cut


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read(body: bytes) -> None:
    try:
        messages, _ = read_batch(body, b"", 0, editor())
    except CommandError:
        return
    assert sum(map(len, messages.bodies)) <= len(body)


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([(0, b"a", b"\xff\x01b\x02")] * 2, "message 0 of the batch has properties that are not UTF-8"),
        ([(0, b"a", b"x\x01" + b"b" * 32_765)] * 2, "message 0 of the batch has properties of .* too many"),
    ],
)
def test_invalid_properties_are_refused(items: list[_Item], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        read_batch(encoded(items), b"", 0, editor())


@pytest.mark.parametrize("length", [-1, 1 << 30])
def test_invalid_lengths_are_refused(length: int) -> None:
    body = bytearray(encoded([(0, b"a", b"")] * 2))
    body[16:20] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CommandError, match=f"message 0 of the batch has a body length of {length}"):
        read_batch(bytes(body), b"", 0, editor())
