"""Requests about logical queues, rewritten into requests about physical queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmq_remoting.command import RemotingCommand
from rmq_remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

# Set by Apache's brokers in what they forward: the queue id is physical (TopicRequestHeader.lo).
LOGICAL: Final = "lo"
BROKER_NAME: Final = "bname"

# They sign the fields of the client; this broker signs what it forwards with keys of its own.
_OF_THE_CLIENT: Final = (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)


def is_physical(fields: Mapping[str, str]) -> bool:
    """Whether a request about a static topic names a physical queue: another broker forwarded it."""
    value = fields.get(LOGICAL)
    return value is not None and value.lower() != "true"  # as Java's Boolean.parseBoolean


def physical_fields(fields: Mapping[str, str], queue_id: int, **changes: int) -> dict[str, str]:
    """Return the fields of a request about a physical queue, with changed values by field name."""
    kept = {name: value for name, value in fields.items() if name not in _OF_THE_CLIENT}
    changed = {name: str(value) for name, value in changes.items()}
    return kept | {LOGICAL: "false", "queueId": str(queue_id)} | changed


def rewritten(request: RemotingCommand, fields: dict[str, str]) -> RemotingCommand:
    """Return the client's request with other fields, for a processor of this broker."""
    return RemotingCommand(
        request.code,
        request.flag,
        request.opaque,
        request.language,
        request.version,
        request.remark,
        fields,
        body=request.body,
        serialization=request.serialization,
    )
