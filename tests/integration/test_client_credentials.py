"""With credentials every request is signed: a proxy checks all requests."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    BatchPolicy,
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    ConsumerTiming,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    RawPuller,
    RetryPolicy,
    Serialization,
    SimpleConsumer,
)
from rmq_client.network.broker_api import BrokerApi
from rmq_client.network.instance import ClientInstance
from rmq_client.producer.encoded import EncodedProducer
from rmq_client.producer.encoding import Outgoing
from rmq_remoting.bodies.running_info import ConsumerRunningInfo
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.client import GetConsumerRunningInfoRequestHeader
from tests.support.fronts import fronted_cluster, needs_fronts
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

pytestmark = needs_fronts

_QUICK = ConsumerTiming(rebalance_again_seconds=0.02, commit_seconds=0.05, lock_renewal_seconds=0.05)
_KEYS = Credentials("shop", "open-sesame", "token-0815")


@dataclass(slots=True)
class Judge:
    """The requests of clients, and those with a wrong signature."""

    requests: Counter[int] = field(default_factory=Counter)
    answers: int = 0
    wrong: list[str] = field(default_factory=list)

    def hear(self, command: RemotingCommand) -> None:
        if command.is_response:
            self.answers += 1
            if "Signature" in command.ext_fields:
                self.wrong.append(f"an answer is signed: {command}")
            return
        self.requests[command.code] += 1
        fields = command.ext_fields
        content = "".join(fields[name] for name in sorted(fields) if name != "Signature").encode()
        mac = hmac.new(_KEYS.secret_key.encode(), content + command.body, hashlib.sha1).digest()
        named = (fields.get("AccessKey"), fields.get("SecurityToken"), fields.get("Signature"))
        if named != ("shop", "token-0815", b64encode(mac).decode()):
            self.wrong.append(f"{command} has {named}")


class Refusing:
    """A listener that refuses each message once."""

    def __init__(self) -> None:
        self.done: list[bytes] = []

    async def consume(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        if messages[0].reconsume_times == 0:
            context.delay_level = 1  # a second
            return ConsumeResult.LATER
        self.done += [message.body for message in messages]
        return ConsumeResult.SUCCESS


async def _administer(address: str, settings: ClientSettings) -> None:
    async with Admin(address, settings=settings) as admin:
        for topic in ("T", "P"):
            await admin.create_topic(topic, queues=2)
        await admin.topics()
        await admin.topic_route("T")
        await admin.topic_stats("T")


async def _send(address: str, settings: ClientSettings) -> None:
    async with Producer(address, group="p", settings=settings) as producer:
        result = await producer.send(Message("T", b"one", keys=["k"]))
        await producer.send_batch([Message("T", b"two"), Message("T", b"three")])
        await producer.send_oneway(Message("T", b"four"))
        await producer.send(Message("P", b"popped"))
        async with producer.transaction(Message("T", b"in a transaction")):
            pass
    async with Producer(address, group="q", settings=settings, batching=BatchPolicy()) as producer:
        await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(8)))
    encoded = EncodedProducer(address, "e", settings, RetryPolicy())
    await encoded.start()
    await encoded.send("T", result.queue, Outgoing(b"encoded", b""), 3.0)
    await encoded.stop()
    async with Admin(address, settings=settings) as admin:
        await admin.query_messages("T", "k")
        await admin.view_message("T", result.offset_msg_id)


async def _consume(address: str, settings: ClientSettings) -> None:
    refusing = Refusing()
    async with PushConsumer(
        address,
        group="g",
        topics=["T"],
        listener=refusing.consume,
        consume_from="first",
        timing=_QUICK,
        settings=settings,
    ):
        # Answers to requests of brokers use the same connections.
        instance = await ClientInstance.acquire(address, settings)
        (broker,) = instance.routes.brokers().values()
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group="g", client_id=instance.client_id, jstack_enable=False
        )
        await BrokerApi(instance.bridge(), settings).ask(
            broker[0],
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
            "running info",
            lambda answer: ConsumerRunningInfo.decode(answer.body),
        )
        await instance.release()
        await until(lambda: b"one" in refusing.done, 30)
    ordered: list[bytes] = []
    async with PushConsumer(
        address,
        group="o",
        topics=["T"],
        listener=lambda messages: ordered.extend(message.body for message in messages),
        consume_from="first",
        timing=_QUICK,
        orderly=True,
        settings=settings,
    ):
        await until(lambda: b"one" in ordered, 30)
    async with PullConsumer(address, group="l", consume_from="first", settings=settings) as puller:
        await puller.assign(await puller.queues("T"))
        assert await puller.poll(timeout_seconds=10)
        await puller.commit()
        for queue in await puller.queues("T"):
            await puller.committed(queue)
            await puller.seek_to_end(queue)
    async with RawPuller(address, group="r", settings=settings) as raw:
        for queue in await _queues(address, settings):
            await raw.pull(queue, 0)


async def _queues(address: str, settings: ClientSettings) -> list[MessageQueue]:
    async with Admin(address, settings=settings) as admin:
        return list(await admin.topic_stats("T"))


async def _pop(address: str, settings: ClientSettings) -> None:
    async with SimpleConsumer(
        address, group="s", topics=["P"], consume_from="first", settings=settings
    ) as consumer:
        (message,) = await consumer.receive(1, invisible_seconds=30, timeout_seconds=10)
        await consumer.change_invisible_time(message, 20)
        await consumer.ack(message)
        waiting = asyncio.ensure_future(consumer.receive(1, timeout_seconds=10))
        await asyncio.sleep(0)
        async with Producer(address, group="p", settings=settings) as producer:
            await producer.send(Message("P", b"again"))
        assert len(await waiting) == 1


@pytest.mark.parametrize("serialization", Serialization)
async def test_every_request_is_signed(serialization: Serialization, tmp_path: Path) -> None:
    judge = Judge()
    settings = ClientSettings(credentials=_KEYS, serialization=serialization)
    async with fronted_cluster(tmp_path, on_command=judge.hear) as address:
        for step in (_administer, _send, _consume, _pop):
            await step(address, settings)
        async with Admin(address, settings=settings) as admin:
            await admin.lag("g")
            await admin.delete_topic("P")
    assert judge.wrong == []
    assert judge.answers >= 1
    expected = {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.END_TRANSACTION,
        RequestCode.PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
    assert expected <= judge.requests.keys()
