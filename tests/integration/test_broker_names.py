"""Broker names with the separators of receipts, tables and lists."""

from __future__ import annotations

from pathlib import Path

from rmq_client import Admin, Message, Producer, SimpleConsumer
from tests.support.brokers import running_broker
from tests.support.namesrv import running_namesrv

# All printable characters but letters, digits and the space, which is refused.
_NAME = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ä"


async def test_every_allowed_name_serves_acknowledgements_and_recalls(tmp_path: Path) -> None:
    async with (
        running_namesrv(tmp_path) as namesrv,
        running_broker(
            tmp_path / "broker", namesrvAddr=namesrv.address, brokerName=_NAME, recallMessageEnable=True
        ),
        Admin(namesrv.address) as admin,
        Producer(namesrv.address, group="p") as producer,
    ):
        await admin.create_topic("T", queues=1)
        await producer.send(Message("T", b"x"))
        async with SimpleConsumer(namesrv.address, group="g", topics=["T"], consume_from="first") as consumer:
            [message] = await consumer.receive(timeout_seconds=10)
            assert message.broker_name == _NAME
            await consumer.ack(message)

        timed = await producer.send(Message("T", b"y", delay_seconds=3_600))
        assert timed.recall_handle is not None
        assert await producer.recall(timed.recall_handle) == timed.msg_id
