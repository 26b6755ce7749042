"""Automatic batching in virtual time: when a batch is sent, and its content."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from rmq_client import BatchPolicy, Message, MessageQueue, UsageError
from rmq_client.producer.batching import Batch, Batcher, batch_item, can_batch
from rmq_client.producer.plain_messages import PlainEncoder
from rmq_client.results import SendResult, SendStatus
from rmq_remoting.message_batch import decode_batch, encode_batch
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.message_properties import encode_properties, find_property

_PLAIN = PlainEncoder(
    UniqueKeyGenerator("10.0.0.1", 7, 8, lambda: 1_700_000_000_000), b"UNIQ_KEY\x01", b"\x02"
)
_RESULT = SendResult(SendStatus.SEND_OK, "", MessageQueue("T", "b", 0), 0, "")


class _Bench:
    """Delivers batches after a second."""

    def __init__(self, policy: BatchPolicy, seconds: float = 1.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.sent: list[tuple[float, Batch]] = []
        self.batcher = Batcher(policy, self._deliver, _PLAIN)
        self._seconds = seconds

    async def _deliver(self, batch: Batch) -> None:
        self.sent.append((round(self.loop.time() - self.began, 6), batch))
        await asyncio.sleep(self._seconds)
        for future in batch.waiting:
            future.set_result(_RESULT)

    def add(
        self, topic: str = "T", size: int = 10, queue: MessageQueue | None = None
    ) -> asyncio.Future[SendResult]:
        return self.batcher.add(Message(topic, b"x"), queue, b"i" * size, "id")

    def log(self) -> list[tuple[float, int]]:
        return [(when, len(batch.items)) for when, batch in self.sent]


@pytest.mark.virtual_time
async def test_a_single_message_is_sent_at_once() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1))
    await bench.add()
    await bench.add()
    assert bench.log() == [(0, 1), (1.0, 1)]


@pytest.mark.virtual_time
async def test_sends_of_one_turn_share_a_batch() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1))

    async def send() -> None:
        await bench.add()

    await asyncio.gather(*(send() for _ in range(5)))
    assert bench.log() == [(0, 5)]


@pytest.mark.virtual_time
async def test_a_batch_collects_while_another_is_in_flight() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1))
    waiting = [bench.add()]
    await asyncio.sleep(0.01)
    for _ in range(3):
        waiting.append(bench.add())
        await asyncio.sleep(0.01)
    await asyncio.gather(*waiting)
    assert bench.log() == [(0, 1), (0.11, 3)]


@pytest.mark.virtual_time
async def test_the_next_batch_is_sent_after_the_one_in_flight() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1), seconds=0.05)
    senders = 4

    async def send() -> None:
        for _ in range(3):
            await bench.add()

    await asyncio.gather(*(send() for _ in range(senders)))
    assert bench.log() == [(0, 4), (0.05, 4), (0.1, 4)]


@pytest.mark.virtual_time
async def test_without_eager_every_batch_lingers() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1, eager=False), seconds=0.01)
    first = bench.add()
    await asyncio.sleep(0.05)
    await asyncio.gather(first, bench.add())
    await bench.add()
    assert bench.log() == [(0.1, 2), (0.21, 1)]


@pytest.mark.virtual_time
async def test_full_batches_do_not_wait_for_batches_in_flight() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1, max_messages=3, max_bytes=1000, eager=False))
    waiting = [bench.add() for _ in range(7)]
    await asyncio.sleep(0)
    assert bench.log() == [(0, 3), (0, 3)]
    await asyncio.gather(*waiting)
    assert bench.log() == [(0, 3), (0, 3), (0.1, 1)]


@pytest.mark.virtual_time
async def test_bytes_are_bounded_too() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=0.1, max_bytes=25, eager=False))
    waiting = [bench.add(size=10) for _ in range(3)] + [bench.add(size=100)]
    await asyncio.gather(*waiting)
    assert [batch.size_bytes for _, batch in bench.sent] == [20, 10, 100]


@pytest.mark.virtual_time
async def test_topics_queues_and_durability_do_not_mix() -> None:
    bench = _Bench(BatchPolicy())
    patient, hasty = Message("T", b"x"), Message("T", b"x")
    hasty.wait_store_ok = False
    queue = MessageQueue("T", "b", 1)
    waiting = [bench.add(), bench.add("U"), bench.add(queue=queue), bench.add()]
    waiting += [bench.batcher.add(message, None, b"i", "id") for message in (patient, hasty)]
    await asyncio.gather(*waiting)
    kinds = [(batch.topic, batch.queue, batch.wait_store_ok, len(batch.items)) for _, batch in bench.sent]
    assert kinds == [("T", None, True, 3), ("U", None, True, 1), ("T", queue, True, 1), ("T", None, False, 1)]


@pytest.mark.virtual_time
async def test_flush_sends_all_open_batches() -> None:
    bench = _Bench(BatchPolicy(linger_seconds=60, eager=False))
    waiting = [bench.add(), bench.add("U")]
    bench.batcher.flush()
    await asyncio.gather(*waiting)
    assert bench.log() == [(0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("message", "possible"),
    [
        (Message("T", b"x", tags="a", keys="k"), True),
        (Message("T", b"x", delay_level=1), False),
        (Message("%RETRY%g", b"x"), False),
    ],
)
def test_can_batch_excludes_special_messages(message: Message, possible: bool) -> None:
    assert can_batch(message) is possible


def test_delayed_messages_cannot_be_in_a_batch() -> None:
    assert not can_batch(Message("T", b"x", delay_seconds=5))
    assert not can_batch(Message("T", b"x", deliver_at=datetime.now(UTC)))


def test_items_are_those_of_the_codec() -> None:
    messages = [Message("T", b"body", properties={"a": "ü"}, flag=-3), Message("T", b"y")]
    items = [batch_item(one.flag, one.body, encode_properties(one.properties)) for one in messages]
    assert b"".join(items) == encode_batch(messages)
    assert [item.body for item in decode_batch(b"".join(items))] == [b"body", b"y"]


@pytest.mark.parametrize(("linger_seconds", "max_bytes", "max_messages"), [(-1, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_invalid_policies_are_refused(linger_seconds: float, max_bytes: int, max_messages: int) -> None:
    with pytest.raises(UsageError):
        BatchPolicy(linger_seconds, max_bytes, max_messages)


@pytest.mark.virtual_time
async def test_messages_with_and_without_properties_share_a_batch_in_order() -> None:
    bench = _Bench(BatchPolicy())
    with_tag = Message("T", b"2", tags="t")
    item = batch_item(0, b"2", encode_properties(with_tag.properties))
    waiting = [
        bench.batcher.add_plain("T", b"0"),
        bench.batcher.add_plain("T", b"1"),
        bench.batcher.add(with_tag, None, item, "own"),
        bench.batcher.add_plain("T", b"3"),
    ]
    await asyncio.gather(*waiting)
    ((_, batch),) = bench.sent
    batch.seal(_PLAIN)
    encoded = b"".join(batch.items)
    messages = decode_batch(encoded)
    assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
    keys = [find_property(message.raw_properties, b"UNIQ_KEY") or b"own" for message in messages]
    assert [key.decode() for key in keys] == batch.msg_ids
    assert batch.size_bytes == len(encoded)


@pytest.mark.virtual_time
async def test_plain_messages_are_bounded_by_the_policy() -> None:
    size = _PLAIN.item_bytes + 1
    bench = _Bench(BatchPolicy(linger_seconds=0.1, max_messages=3, max_bytes=10_000, eager=False))
    await asyncio.gather(*(bench.batcher.add_plain("T", b"x") for _ in range(4)))
    assert [len(batch.waiting) for _, batch in bench.sent] == [3, 1]
    bench = _Bench(BatchPolicy(linger_seconds=0.1, max_bytes=2 * size + 1, eager=False))
    await asyncio.gather(*(bench.batcher.add_plain("T", b"x") for _ in range(3)))
    assert [len(batch.waiting) for _, batch in bench.sent] == [2, 1]
