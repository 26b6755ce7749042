"""Names that are each allowed, and too long together: their requests are refused, no other one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent
from tests.support.brokers import running_broker
from tests.support.pop_requests import pop, popped

_TOPIC = "t" * 127


async def test_a_pop_is_refused_if_the_names_are_too_long_for_a_retry_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic(_TOPIC, 1))
        sent(await client.ask(send(_TOPIC, b"0", queue_id=0)))
        refused = await client.ask(pop(_TOPIC, group="g" * 121))
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert refused.remark is not None
        assert "choose shorter names" in refused.remark
        # `%RETRY%`, the group, a separator and the topic: 255.
        assert [item.body for item in popped(await client.ask(pop(_TOPIC, group="g" * 120)))] == [b"0"]


@pytest.mark.parametrize("level", [1, -1])
async def test_a_send_back_is_refused_if_the_group_name_is_too_long(tmp_path: Path, level: int) -> None:
    group = "g" * 255
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        sent(await client.ask(send("T", b"0", queue_id=0)))
        [message] = pulled(await client.ask(pull("T", group)))
        answer = await client.ask(
            request(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                group=group,
                offset=message.physical_offset,
                delayLevel=level,
            )
        )
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        broker.store.queues.write_out()
        sent(await client.ask(send("T", b"1", queue_id=0)))
    async with running_broker(tmp_path) as broker, broker.client() as client:
        assert [message.body for message in pulled(await client.ask(pull("T")))] == [b"0", b"1"]
