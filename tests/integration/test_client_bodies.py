"""Bodies as values of the application, from the producer to all kinds of consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rmq_client import (
    Admin,
    BrokerUnreachable,
    ConsumeResult,
    JsonSerializer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PydanticSerializer,
    SimpleConsumer,
    UnreadableBody,
    blocking,
    body_listener,
    decode_body,
    origin_topic,
)
from rmq_client.consumer.processing.send_back import SendBack
from tests.support.clusters import RunningCluster, cluster_in_a_thread, running_cluster
from tests.support.push_consumers import consumer_of
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_DEAD_LETTERS = "%DLQ%g"
_UNREADABLE = "body not readable"


class Order(BaseModel):
    number: int


_PYDANTIC = PydanticSerializer()


def _dead_letters(cluster: RunningCluster) -> dict[bytes, MessageExt]:
    return {message.body: message for message in cluster.broker.messages(_DEAD_LETTERS)}


async def _send(cluster: RunningCluster, *bodies: bytes) -> None:
    async with Producer(cluster.address, group="p", serializer=_PYDANTIC) as producer:
        queue = MessageQueue("T", "broker-a", 0)
        for body in bodies:
            if body.isdigit():
                await producer.send(Message("T", keys=["k"]), Order(number=int(body)), queue=queue)
            else:
                await producer.send(Message("T", body, tags="bad", properties={"shop": "7"}), queue=queue)


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "pop", "orderly pop"])
@pytest.mark.parametrize("coroutine", [True, False])
async def test_unreadable_bodies_become_dead_letters_at_once(
    kind: str, coroutine: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    got: list[int] = []

    def pay(order: Order, message: MessageExt) -> None:
        assert message.properties["content_type"] == "application/json"
        got.append(order.number)

    async def pay_later(message: MessageExt, order: Order) -> None:
        pay(order, message)

    keys: dict[str, Any] = {"defaultMessageRequestMode": "POP"} if "pop" in kind else {}
    options: dict[str, Any] = {"orderly": "orderly" in kind, "client_rebalance": "pop" not in kind}
    listener: Any = body_listener(pay_later if coroutine else pay, _PYDANTIC)
    async with running_cluster(tmp_path, **keys) as cluster:
        await _send(cluster, b"1", b"{}", b"2", b"\xff\x01\x02", b"3")
        async with consumer_of(cluster, listener, **options):
            await until(lambda: len(got) == 3 and len(_dead_letters(cluster)) == 2, 10)
        assert sorted(got) == [1, 2, 3]
        assert "orderly" not in kind or got == [1, 2, 3]
        letters = _dead_letters(cluster)
        letter = letters[b"{}"]
        assert (
            letter.properties["dead_letter_reason"] == "not read as Order: ValueError: number: Field required"
        )
        assert letter.properties["shop"] == "7"
        assert letter.tags == "bad"
        assert origin_topic(letter) == "T"
        assert letter.receipt_handle is None
        assert "dead_letter_reason" in letters[b"\xff\x01\x02"].properties
        assert len([one for one in caplog.messages if one.startswith(_UNREADABLE)]) == 2
        assert not [one for one in caplog.messages if one.startswith("listener failed")]
        async with consumer_of(cluster, listener, **options):
            await _send(cluster, b"4")
            await until(lambda: 4 in got)
        assert sorted(got) == [1, 2, 3, 4], "all others were consumed and committed"


async def test_without_a_copy_the_dead_letter_has_no_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refuse(*arguments: object) -> None:
        raise BrokerUnreachable("away")

    monkeypatch.setattr(SendBack, "_resend", refuse)
    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, b"{}")
        async with consumer_of(cluster, body_listener(lambda body: None, _PYDANTIC, kind=Order)):
            await until(lambda: len(_dead_letters(cluster)) == 1)
        (letter,) = _dead_letters(cluster).values()
        assert "dead_letter_reason" not in letter.properties


@pytest.mark.parametrize("orderly", [True, False])
async def test_broadcasting_consumers_skip_unreadable_bodies(orderly: bool, tmp_path: Path) -> None:
    got: list[int] = []

    def pay(order: Order) -> None:
        got.append(order.number)

    listener = body_listener(pay, _PYDANTIC)
    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, b"1", b"{}", b"2")
        options = {"broadcasting": True, "orderly": orderly, "offsets_folder": tmp_path / "offsets"}
        async with consumer_of(cluster, listener, **options):
            await until(lambda: sorted(got) == [1, 2])
        assert not cluster.broker.messages(_DEAD_LETTERS)


async def test_an_error_of_the_function_is_retried(tmp_path: Path) -> None:
    attempts: list[int] = []

    def pay(order: Order, message: MessageExt) -> ConsumeResult:
        attempts.append(message.delivery_attempt)
        if message.delivery_attempt == 1:
            raise ValueError("no money")
        return ConsumeResult.LATER if message.delivery_attempt == 2 else ConsumeResult.SUCCESS

    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, b"1")
        async with consumer_of(cluster, body_listener(pay, _PYDANTIC)):
            await until(lambda: attempts == [1, 2, 3])
        assert not cluster.broker.messages(_DEAD_LETTERS)


async def test_of_a_batch_only_the_unreadable_message_becomes_a_dead_letter(tmp_path: Path) -> None:
    calls: list[list[bytes]] = []
    got: list[int] = []

    def pay(messages: list[MessageExt]) -> None:
        calls.append([message.body for message in messages])
        got.extend(order.number for order in [decode_body(one, Order, _PYDANTIC) for one in messages])

    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, b"1", b"{}", b"2")
        async with consumer_of(cluster, pay, max_messages=10):
            await until(lambda: sorted(got) == [1, 2])
        assert list(_dead_letters(cluster)) == [b"{}"]
        assert sum(b"{}" in call for call in calls) == 1


async def test_a_dead_letter_is_sent_again_without_its_reason(tmp_path: Path) -> None:
    got: list[int] = []

    def pay(order: Order) -> None:
        got.append(order.number)

    async with running_cluster(tmp_path) as cluster, Admin(cluster.address) as admin:
        await _send(cluster, b"{}")
        async with consumer_of(cluster, body_listener(pay, _PYDANTIC)):
            await until(lambda: bool(_dead_letters(cluster)))
        (letter,) = await admin.dead_letters("g")
        await admin.resend_dead_letter(letter, to_topic="T")
        again = cluster.broker.messages("T")[-1]
        assert again.user_properties["shop"] == "7"
        assert "dead_letter_reason" not in again.properties


async def test_values_can_be_sent_in_every_way(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="p", serializer=JsonSerializer()) as producer,
    ):
        await producer.send(Message("T"), None)
        await producer.send_oneway(producer.encode(Message("T"), 1))
        await producer.send_batch([producer.encode(Message("T"), number) for number in (2, 3)])
        async with producer.transaction(producer.encode(Message("T"), 4)):
            pass
        await until(lambda: len(cluster.broker.messages()) == 5)
        messages = cluster.broker.messages()
        assert sorted(message.body for message in messages) == [b"1", b"2", b"3", b"4", b"null"]
        assert {message.properties["content_type"] for message in messages} == {"application/json"}


async def test_pull_and_simple_consumers_decode(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, b"1", b"{}")
        async with PullConsumer(
            cluster.address, group="g", topics="T", consume_from="first", serializer=_PYDANTIC
        ) as puller:
            messages: list[MessageExt] = []
            while len(messages) < 2:
                messages += await puller.poll()
            assert puller.decode(messages[0], Order).number == 1
            assert puller.decode(messages[0]) == {"number": 1}
            with pytest.raises(UnreadableBody, match="not read as Order"):
                puller.decode(messages[1], Order)
        async with SimpleConsumer(cluster.address, group="s", topics="T", consume_from="first") as simple:
            async with asyncio.timeout(10):
                popped = await simple.receive(2)
            assert simple.decode(popped[0]) == b'{"number":1}', "bytes without a serializer"


@pytest.fixture
def blocking_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_in_a_thread(tmp_path) as cluster:
        yield cluster


def test_the_blocking_face(blocking_cluster: RunningCluster) -> None:
    address = blocking_cluster.address
    with blocking.Producer(address, group="p", serializer=_PYDANTIC) as producer:
        producer.send(Message("T"), Order(number=1))
        producer.send_nowait(Message("T"), Order(number=2)).result(10)
        assert producer.encode(Message("T"), Order(number=3)).body == b'{"number":3}'
    with blocking.PullConsumer(
        address, group="g", topics="T", consume_from="first", serializer=_PYDANTIC
    ) as consumer:
        orders = [consumer.decode(message, Order) for _, message in zip(range(2), consumer, strict=False)]
        assert [order.number for order in orders] == [1, 2]
