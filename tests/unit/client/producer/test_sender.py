"""Retries of a send, in virtual time: their pauses."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from rmq_client import ClientError, RetryPolicy
from rmq_client.network.routing import TopicRoute
from rmq_client.producer.encoding import Outgoing
from rmq_client.producer.sender import MessageSender
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import ConnectError
from rmq_remoting.message_queue import MessageQueue

_ATTEMPTS = 12


class _Bridge:
    """Notes when each request is sent; none arrives."""

    def __init__(self) -> None:
        self.sent_at: list[float] = []

    async def send(self, address: str, opaque: int, frame: bytes, seconds: float) -> RemotingCommand:
        self.sent_at.append(asyncio.get_running_loop().time())
        raise ConnectError("refused")


class _Instance:
    """A client instance that knows the route of topic T to one broker."""

    def __init__(self) -> None:
        route = TopicRoute("T", (MessageQueue("T", "b", 0),), (), {"b": {0: "b:1"}})
        self.settings = SimpleNamespace(namespace="", serialization=Serialization.BINARY)
        self.routes = SimpleNamespace(publishable={"T": route}, request_failed=lambda topic: None)
        self.loop = asyncio.get_running_loop()
        self._bridge = _Bridge()

    def bridge(self) -> _Bridge:
        return self._bridge


@pytest.mark.virtual_time
async def test_pauses_before_retries_on_the_same_broker_are_bounded_and_random() -> None:
    instance = _Instance()
    sender = MessageSender(instance, "g", RetryPolicy(retries=_ATTEMPTS - 1), 4)  # type: ignore[arg-type]
    publish_info = await sender.publish_info("T", 1.0)
    with pytest.raises(ClientError):
        await sender.send(publish_info, None, Outgoing(b"x", b""), 60.0)

    sent_at = instance.bridge().sent_at
    pauses = [later - earlier for earlier, later in pairwise(sent_at)]
    longest = [min(0.05 * 2**number, 1.0) for number in range(_ATTEMPTS - 1)]
    shares = [pause / most for pause, most in zip(pauses, longest, strict=True)]
    assert 0.4999 < min(shares) < 0.99
    assert max(shares) < 1.0001
