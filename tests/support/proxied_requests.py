"""A cluster behind the proxy's remoting port, and requests of its clients: they name their broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand

from .clusters import RunningCluster, running_cluster

_COMPACT = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


@asynccontextmanager
async def permissive_cluster(folder: Path) -> AsyncIterator[RunningCluster]:
    """Two brokers with the topic T, which recall messages and filter by properties, and take mixed types."""
    keys = {
        "timerPrecisionMs": 100,
        "recallMessageEnable": "true",
        "enablePropertyFilter": "true",
        "enableMixedMessageType": "true",
    }
    async with running_cluster(folder, {"broker-a": {"T": 2}, "broker-b": {"T": 2}}, **keys) as running:
        yield running


def to_broker(command: RemotingCommand, name: str = "broker-a") -> RemotingCommand:
    """Return a request with the name of the broker that it is for."""
    field = "n" if command.code in _COMPACT else "bname"
    return RemotingCommand.request(
        command.code,
        {**command.ext_fields, field: name},
        command.body,
        oneway=command.is_oneway,
        serialization=command.serialization,
    )
