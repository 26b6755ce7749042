"""The message writer: what it returns, counts and caches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.delivery.message_writer import Written, delayed_properties
from rmq_broker.store.api import MessageRejected
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import decode_properties
from tests.support.clock import START_MS
from tests.unit.broker.delivery.parts import SCHEDULE, DeliveryBroker, inner


@pytest.fixture
async def delivery(tmp_path: Path) -> AsyncIterator[DeliveryBroker]:
    delivery = DeliveryBroker(tmp_path, mappedFileSizeCommitLog=4 << 20)
    yield delivery
    delivery.store.close()


async def test_the_place_of_each_kind_of_message(delivery: DeliveryBroker) -> None:
    plain = delivery.writer.put(inner("T"))
    delayed = delivery.writer.put(inner("T"), 3)
    timed = delivery.writer.put(inner("T", TIMER_DELAY_SEC="5"))

    (stored,) = delivery.stored("T")
    assert plain == Written(0, 0, stored.store_size, None)
    (stored,) = delivery.stored(SCHEDULE, 2)
    assert delayed == Written(stored.physical_offset, 0, stored.store_size, None)
    (stored,) = delivery.stored("rmq_sys_wheel_timer")
    assert timed == Written(stored.physical_offset, 0, stored.store_size, START_MS + 4000)


async def test_messages_with_a_due_delivery_time_are_stored_at_once(delivery: DeliveryBroker) -> None:
    assert delivery.writer.put(inner("T", TIMER_DELIVER_MS=str(START_MS))).timer_out_ms is None
    assert delivery.bodies("T") == [b"body"]


_DELAY_VALUES = ("3", "2", "", "03")
_NAMES = ("DELAY", "XDELAY", "TIMER_DELAY_SEC", "REAL_TOPIC", "REAL_QID", "a", "UNIQ_KEY")


@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_DELAY_VALUES)), max_size=5), st.booleans()
)
async def test_properties_of_delayed_messages(fields: list[tuple[str, str]], ended: bool) -> None:
    """They are the same for messages whose properties are decoded and for those whose are not."""
    message = inner("T", queue_id=7)
    message.properties = "\x02".join(f"{name}\x01{value}" for name, value in fields).encode()
    message.properties += b"\x02" if ended else b""
    expected = decode_properties(message.properties)
    expected.pop("TIMER_DELAY_SEC", None)

    found = decode_properties(delayed_properties(message, 3))

    assert found == {**expected, "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "7"}


async def test_a_topic_whose_name_is_too_long_for_a_folder_is_refused(delivery: DeliveryBroker) -> None:
    with pytest.raises(MessageRejected, match="choose shorter names"):
        delivery.writer.put(inner("%RETRY%" + "g" * 255))


async def test_templates_are_cached_within_bounds(delivery: DeliveryBroker) -> None:
    templates, _ = delivery.writer.caches
    for _ in range(3):
        delivery.writer.put(inner("T"))
    assert (len(templates), templates.insertions) == (1, 1)
    for number in range(4100):
        delivery.writer.put(inner("T", reconsume_times=number))
    assert 0 < len(templates) <= templates.max_entries == 4096
    assert templates.evictions > 0


async def test_tags_are_cached_within_bounds(delivery: DeliveryBroker) -> None:
    _, tags = delivery.writer.caches
    for _ in range(2):
        delivery.writer.put(inner("T", TAGS="paid"))
    assert dict(tags.entries) == {b"paid": tags_code("paid")}
    delivery.writer.put(inner("T", TAGS="t" * 256))
    assert len(tags) == 1
    entries = delivery.store.queue_entries("T", 0, 0, 9)
    assert entries is not None
    assert [code for _, _, code in entries] == [tags_code("paid")] * 2 + [tags_code("t" * 256)]
