"""The simple consumer against brokers of ours, in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    Admin,
    Message,
    MessageExt,
    MessageQueue,
    NotRunning,
    Producer,
    ReceiptExpired,
    Rejected,
    SimpleConsumer,
    TopicNotFound,
    UsageError,
    blocking,
)
from rmq_client.consumer.requests.pop_client import PopClient
from rmq_remoting import compression
from tests.support.clusters import running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_LONG_SECONDS = 60.0
_WAIT_SECONDS = 10.0
_BROKERS = ("broker-a", "broker-b")


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Yield the name server of two brokers, which have topic T with two queues each."""
    async with running_cluster(tmp_path, {name: {"T": 2} for name in _BROKERS}) as cluster:
        yield cluster.address


@asynccontextmanager
async def _consumer(address: str, **options: Any) -> AsyncIterator[SimpleConsumer]:
    options = {"group": "g", "topics": ["T"], "consume_from": "first", **options}
    async with SimpleConsumer(address, **options) as consumer:
        yield consumer


async def _send(address: str, *bodies: bytes, tags: str | None = None, broker: str | None = None) -> None:
    async with Producer(address, group="p") as producer:
        for body in bodies:
            queue = None if broker is None else MessageQueue("T", broker, 0)
            await producer.send(Message("T", body, tags=tags), queue=queue)


async def _receive(consumer: SimpleConsumer, count: int, **options: Any) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(_WAIT_SECONDS):
        while len(messages) < count:
            messages += await consumer.receive(32, timeout_seconds=5, **options)
    return messages


async def test_messages_of_all_brokers_are_received(address: str) -> None:
    bodies = [b"%d" % number for number in range(40)]
    await _send(address, *bodies)
    async with _consumer(address) as consumer:
        messages = await _receive(consumer, 40)
        assert {message.broker_name for message in messages} == set(_BROKERS)
        assert sorted(message.body for message in messages) == sorted(bodies)
        await asyncio.gather(*(consumer.ack(message) for message in messages))
        assert await consumer.receive(timeout_seconds=0) == []


@pytest.mark.parametrize(("reason", "noted"), [("", None), ("no\nsuch account", "no such account")])
async def test_a_message_becomes_a_dead_letter_at_once(address: str, reason: str, noted: str | None) -> None:
    await _send(address, b"bad")
    async with _consumer(address) as consumer:
        (message,) = await _receive(consumer, 1, invisible_seconds=1)
        await consumer.dead_letter(message, reason)
        assert "dead_letter_reason" not in message.properties
        assert await consumer.receive(timeout_seconds=1.5) == [], "it is acknowledged"
        with pytest.raises(ReceiptExpired, match="made a dead letter"):
            await consumer.dead_letter(message)
    async with Admin(address) as admin:
        (dead,) = await admin.dead_letters("g")
    assert (dead.body, dead.properties.get("dead_letter_reason")) == (b"bad", noted)


@pytest.mark.parametrize("broker", _BROKERS)
async def test_a_message_on_any_broker_wakes_receive(address: str, broker: str) -> None:
    async with _consumer(address) as consumer:
        waiting = asyncio.ensure_future(consumer.receive(timeout_seconds=_WAIT_SECONDS))
        await asyncio.sleep(0.05)
        await _send(address, b"one", broker=broker)
        (message,) = await waiting
        assert (message.body, message.broker_name) == (b"one", broker)


async def test_messages_beyond_the_limit_of_a_response_are_popped_again(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "MAX_RESPONSE_BYTES", 1)
    bodies = [b"%d" % number * 5000 for number in range(3)]
    await _send(address, *bodies, broker="broker-a")
    async with _consumer(address, invisible_seconds=_LONG_SECONDS) as consumer:
        messages = await _receive(consumer, 3)
        assert sorted(message.body for message in messages) == bodies
        assert sorted(message.delivery_attempt for message in messages) == [1, 2, 3]
        await asyncio.gather(*(consumer.ack(message) for message in messages))


async def test_a_receipt_expires(address: str) -> None:
    await _send(address, b"one")
    async with _consumer(address) as consumer:
        (message,) = await _receive(consumer, 1, invisible_seconds=0.2)
        first = message.receipt_handle
        await consumer.change_invisible_time(message, 0.4)
        assert message.receipt_handle != first
        (again,) = await _receive(consumer, 1)
        assert again.delivery_attempt == 2
        with pytest.raises(ReceiptExpired, match="expired"):
            await consumer.ack(message)
        with pytest.raises(ReceiptExpired, match="expired"):
            await consumer.change_invisible_time(message, 5)
        await consumer.ack(again)
        await consumer.ack(again)  # acknowledging is idempotent


async def test_one_expired_receipt_does_not_affect_the_others(address: str) -> None:
    await _send(address, *(b"%d" % number for number in range(4)), broker="broker-a")
    async with _consumer(address) as consumer:
        messages = await _receive(consumer, 4)
        messages[1].properties["POP_CK"] = "0 1 60000 0 0 broker-a 0 1"
        outcomes = await asyncio.gather(
            *(consumer.ack(message) for message in messages), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), ReceiptExpired, type(None), type(None)]


async def test_concurrent_acknowledgements_share_requests(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    whole = PopClient.ack_batch

    async def counted(client: PopClient, address: str, topic: str, held: Any) -> bool:
        batches.append(len(held))
        return await whole(client, address, topic, held)

    monkeypatch.setattr(PopClient, "ack_batch", counted)
    await _send(address, *(b"%d" % number for number in range(32)), broker="broker-a")
    async with _consumer(address) as consumer:
        messages = await _receive(consumer, 32)
        await asyncio.gather(*(consumer.ack(message) for message in messages))
    assert batches == [32]


async def test_messages_of_a_cancelled_receive_go_to_the_next(address: str) -> None:
    await _send(address, b"one")
    async with _consumer(address) as consumer:
        receiving = asyncio.ensure_future(consumer.receive())
        while not consumer._receiver._pops:  # noqa: ASYNC110  # a few turns of the loop
            await asyncio.sleep(0)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        (message,) = await _receive(consumer, 1)
        assert (message.body, message.delivery_attempt) == (b"one", 1)


async def test_stop_makes_unreturned_messages_visible(address: str) -> None:
    await _send(address, *(b"%d" % number for number in range(8)), broker="broker-a")
    async with _consumer(address, invisible_seconds=_LONG_SECONDS) as consumer:
        async for message in consumer:
            await consumer.ack(message)
            break
    async with _consumer(address) as consumer:
        assert len(await _receive(consumer, 7)) == 7


async def test_iterating_renews_the_invisible_time(address: str) -> None:
    await _send(address, b"0", b"1", broker="broker-a")
    async with _consumer(address, invisible_seconds=1.0) as consumer:
        receipts = []
        async for message in consumer:
            receipts.append(message.receipt_handle or "")
            if len(receipts) == 2:
                break
            await asyncio.sleep(0.6)
        assert [receipt.split(" ")[1] for receipt in receipts] != [receipts[0].split(" ")[1]] * 2
        await consumer.ack(message)


async def test_receive_renews_the_invisible_time(address: str) -> None:
    await _send(address, *(b"%d" % number for number in range(4)), broker="broker-a")
    async with _consumer(address, invisible_seconds=20.0) as consumer:
        async for message in consumer:
            await consumer.ack(message)
            break
        messages = await consumer.receive(invisible_seconds=_LONG_SECONDS)
        assert len(messages) == 3
        hidden_ms = {int((message.receipt_handle or "").split(" ")[2]) for message in messages}
        assert hidden_ms == {_LONG_SECONDS * 1000}
        await asyncio.gather(*(consumer.ack(message) for message in messages))


async def test_stop_waits_for_a_start_in_progress(address: str) -> None:
    consumer = SimpleConsumer(address, group="g", topics=["T"])
    starting = asyncio.ensure_future(consumer.start())
    await asyncio.sleep(0)
    await consumer.stop()
    assert starting.done()
    await starting
    assert not consumer.is_running
    async with consumer:  # and can start again
        assert consumer.is_running


async def test_tags_are_compared_after_their_hash_codes(address: str) -> None:
    # "Aa" and "BB" have the same hash code.
    await _send(address, b"other", tags="BB", broker="broker-a")
    await _send(address, b"mine", tags="Aa", broker="broker-a")
    async with _consumer(address, topics={"T": "Aa"}) as consumer:
        (message,) = await _receive(consumer, 1, invisible_seconds=0.3)
        assert message.body == b"mine"
        await consumer.ack(message)
        assert await consumer.receive(timeout_seconds=0.6) == []


async def test_topics_come_and_go(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("U", queues=1)
    async with _consumer(address) as consumer:
        await consumer.subscribe("U", "paid")
        async with Producer(address, group="p") as producer:
            await producer.send(Message("U", b"u", tags="paid"))
        (message,) = await _receive(consumer, 1)
        assert message.topic == "U"
        await consumer.ack(message)
        await consumer.unsubscribe("U")
        await consumer.unsubscribe("T")
        with pytest.raises(UsageError, match="has no topics"):
            await consumer.receive()
        with pytest.raises(TopicNotFound):
            await consumer.subscribe("nowhere")


async def test_invalid_calls_raise(address: str) -> None:
    with pytest.raises(TopicNotFound):
        async with _consumer(address, topics=["nowhere"]):
            pass
    with pytest.raises(UsageError, match="consume_from"):
        SimpleConsumer(address, group="g", consume_from="then")  # type: ignore[arg-type]
    consumer = SimpleConsumer(address, group="g", topics=["T"])
    with pytest.raises(NotRunning):
        await consumer.receive()
    async with consumer:
        for bad in ({"max_messages": 0}, {"invisible_seconds": 0}):
            with pytest.raises(UsageError):
                await consumer.receive(**bad)
        with pytest.raises(UsageError, match="no receipt"):
            await consumer.ack(MessageExt("T", b"pulled"))
        forged = MessageExt("T", b"", properties={"POP_CK": "0 1 2 3 0 broker-a 7 0"})
        with pytest.raises(Rejected, match="queue id 7"):
            await consumer.ack(forged)
        with pytest.raises(UsageError, match="started already"):
            await consumer.start()


async def test_the_blocking_simple_consumer(address: str) -> None:
    await _send(address, b"one", b"two", broker="broker-a")

    def run() -> list[bytes]:
        got = []
        options: dict[str, Any] = {"group": "g", "topics": ["T"], "consume_from": "first"}
        with blocking.SimpleConsumer(address, **options) as consumer:
            for message in consumer:
                got.append(message.body)
                consumer.ack(message)
                if len(got) == 2:
                    return got
        return got

    assert await asyncio.to_thread(run) == [b"one", b"two"]


async def test_the_example(address: str) -> None:
    await _send(address, b"one")
    command = [sys.executable, "-W", "error", str(_EXAMPLES / "quickstart_simple.py"), address, "T"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "attempt 1: one\n")


async def test_a_consumer_belongs_to_one_loop(address: str) -> None:
    await _send(address, b"x")
    async with _consumer(address) as consumer:

        def elsewhere() -> None:
            with pytest.raises(UsageError, match="of group g belongs to another event loop"):
                asyncio.run(consumer.receive())

        await asyncio.to_thread(elsewhere)
        (message,) = await consumer.receive(timeout_seconds=_WAIT_SECONDS)
        await consumer.ack(message)
