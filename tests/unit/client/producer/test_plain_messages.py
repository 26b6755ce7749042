"""Messages without properties in a batch: the same bytes as message by message."""

from __future__ import annotations

import pytest

from rmq_client import Message
from rmq_client.producer.batching import batch_item
from rmq_client.producer.message_encoder import MessageEncoder
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_ids import UniqueKeyGenerator

_BODIES = [b"a", b"bb" * 500, b"a", b"\x00\x01\x02" * 7]


@pytest.mark.parametrize("ip", ["10.0.0.1", "2001:db8::3"])
@pytest.mark.parametrize("namespace", ["", "shop", "bücher"])
def test_columns_and_single_messages_have_the_same_bytes(ip: str, namespace: str) -> None:
    def encoder() -> MessageEncoder:
        return MessageEncoder(UniqueKeyGenerator(ip, 7, 8, lambda: 1_700_000_000_000), None, namespace)

    one_by_one, expected_ids = encoder(), []
    expected = b""
    for body in _BODIES:
        properties, msg_id = one_by_one.properties(Message("T", body))
        expected_ids.append(msg_id)
        expected += batch_item(0, body, properties)
    plain = encoder().plain
    encoded, ids = plain.encode(_BODIES)
    assert (encoded, ids) == (expected, expected_ids)
    assert len(encoded) == sum(len(body) + plain.item_bytes for body in _BODIES)
    assert [message.body for message in decode_batch(encoded)] == _BODIES
