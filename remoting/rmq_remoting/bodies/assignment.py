"""Queues that the broker, not the client, divides among a group's consumers."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32
from .base import Body, WireEnum
from .heartbeat import MessageModel
from .message_queue import QueueField


class MessageRequestMode(WireEnum):
    """How a consumer gets messages."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequestBody(Body):
    """Asks for a client's queues of a topic."""

    client_id: str
    consumer_group: str
    message_model: MessageModel = MessageModel.CLUSTERING
    strategy_name: str | None = None
    topic: str


class MessageQueueAssignment(Body):
    """One queue and how to consume it."""

    attachments: dict[str, str] | None = None
    message_queue: QueueField | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL


class QueryAssignmentResponseBody(Body):
    """The queues that the client has; None: they cannot be told, and it keeps those that it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = Field(default_factory=list)


class SetMessageRequestModeRequestBody(Body):
    """How a group consumes a topic, and in how many POP consumers' hands a queue may be at once (0: all)."""

    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0
    topic: str


class MessageRequestModeSerializeWrapper(Body):
    """All modes of a broker (its messageRequestMode.json) by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = Field(
        default_factory=dict
    )
