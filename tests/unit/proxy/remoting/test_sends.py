"""Checks of message types where brokers do not tell them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rmq_client.errors import PermissionDenied
from rmq_proxy.metadata import Metadata, TopicType
from rmq_proxy.remoting.relay import Relay
from rmq_proxy.remoting.sends import Sends
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from tests.support.broker_requests import send
from tests.unit.proxy.remoting.parts import Peer

pytestmark = pytest.mark.virtual_time


class _Metadata:
    """Tells the type of each topic, unless a broker refuses it."""

    def __init__(self) -> None:
        self.refuses = False
        self.asked = 0

    async def allowed_topic_type(self, topic: str) -> TopicType:
        self.asked += 1
        if self.refuses:
            raise PermissionDenied(ResponseCode.NO_PERMISSION, "no keys", "b:1", "configuration of topic")
        return TopicType.DELAY


class _Relay:
    async def by_name(self, client: Connection, code: int, request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS)


async def test_after_a_refusal_brokers_are_not_asked_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    metadata = _Metadata()
    sends = Sends(cast(Relay, _Relay()), cast(Metadata, metadata), checks_types=True)
    client = Peer().connection

    async def pass_on() -> None:
        await sends.send(client, RequestCode.SEND_MESSAGE_V2, send("T"))

    with pytest.raises(CommandError, match="the expected type is DELAY"):
        await pass_on()
    metadata.refuses = True
    for _ in range(3):
        await pass_on()
    assert metadata.asked == 2
    await asyncio.sleep(21)
    await pass_on()
    assert metadata.asked == 3
    assert len([each for each in caplog.messages if "types of messages not checked" in each]) == 1
    metadata.refuses = False
    await asyncio.sleep(21)
    with pytest.raises(CommandError, match="the expected type is DELAY"):
        await pass_on()
