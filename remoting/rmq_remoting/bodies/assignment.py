"""Assignment of a topic's queues to the members of a group by the broker, instead of by the clients."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32
from .base import Body, WireEnum
from .heartbeat import MessageModel
from .message_queue import QueueField


class MessageRequestMode(WireEnum):
    """How a consumer requests messages."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequestBody(Body):
    """Request for the queues of a topic that are assigned to a client."""

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
    """The assigned queues; None if the broker cannot tell: the client keeps its current ones."""

    message_queue_assignments: list[MessageQueueAssignment] | None = Field(default_factory=list)


class SetMessageRequestModeRequestBody(Body):
    """How a group consumes a topic, and how many additional POP consumers may share a queue (0: all)."""

    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0
    topic: str


class MessageRequestModeSerializeWrapper(Body):
    """All modes of a broker (its messageRequestMode.json) by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = Field(
        default_factory=dict
    )
