"""The file of ordered pops is never older than the file of offsets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rmq_broker.pop.check_point import QueueKey
from rmq_remoting.codes import RequestCode
from tests.support.broker_requests import create_topic, pull, request, send, sent, succeeded
from tests.support.brokers import running_broker
from tests.support.pop_requests import pop, popped
from tests.unit.broker.pop.parts import GROUP, pop_broker

_QUEUE = QueueKey("T", GROUP, 0)


async def test_the_order_is_written_before_a_reset_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flushConsumerOffsetInterval=600_000) as running:
        config = running.broker.settings.config_dir
        async with running.client() as client:
            succeeded(await client.ask(create_topic("T", 1)))
            sent(await client.ask(send("T", b"x")))
            popped(await client.ask(pop("T", GROUP, order=True)))
            await client.ask(pull("T", group="Other"))
            reset = {"topic": "T", "group": "Other", "timestamp": 0, "isForce": True, "queueId": 0}
            succeeded(await client.ask(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)))
            written = await asyncio.to_thread((config / "consumerOrderInfo.json").read_bytes)
            offsets = await asyncio.to_thread((config / "consumerOffset.json").read_text)
    assert '"T@Other":{0:0}' in offsets
    with pop_broker(tmp_path / "other") as broker:
        broker.pops.orders.decode(written)
        assert broker.pops.orders.get(_QUEUE) is not None
