"""Queues that ordered consumers lock for themselves."""

from __future__ import annotations

from pydantic import Field

from .base import Body
from .message_queue import QueueField


class LockBatchRequestBody(Body):
    """Queues to lock; `only_this_broker` is for requests between the brokers of a group."""

    client_id: str
    consumer_group: str
    mq_set: list[QueueField] = Field(default_factory=list)
    only_this_broker: bool = False


class LockBatchResponseBody(Body):
    """The queues that the client has locked now, of those it asked for."""

    lock_ok_mq_set: list[QueueField] = Field(default_factory=list, alias="lockOKMQSet")


class UnlockBatchRequestBody(Body):
    """Queues to unlock."""

    client_id: str
    consumer_group: str
    mq_set: list[QueueField] = Field(default_factory=list)
    only_this_broker: bool = False
