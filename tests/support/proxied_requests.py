"""Requests of clients on the proxy's remoting port: they name their broker."""

from __future__ import annotations

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand

_COMPACT = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


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
