"""Locks on queues, held by the consumers of orderly groups."""

from __future__ import annotations

from pydantic import Field

from .base import Body
from .message_queue import QueueField


class LockBatchRequestBody(Body):
    """Queues to lock; `only_this_broker` is for requests between brokers of one name."""

    client_id: str
    consumer_group: str
    mq_set: list[QueueField] = Field(default_factory=list)
    only_this_broker: bool = False


class LockBatchResponseBody(Body):
    """Those of the requested queues that the client holds locks on."""

    lock_ok_mq_set: list[QueueField] = Field(default_factory=list, alias="lockOKMQSet")


class UnlockBatchRequestBody(Body):
    """Queues to unlock."""

    client_id: str
    consumer_group: str
    mq_set: list[QueueField] = Field(default_factory=list)
    only_this_broker: bool = False
