"""State of a running consumer, as requested by administrators."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body, WireEnum
from .heartbeat import SubscriptionData
from .message_queue import QueueField

PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


class ProcessQueueInfo(Body):
    """Messages of one queue that a push consumer has buffered; of an orderly one, also those in flight."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_mib: Int32 = Field(default=0, alias="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    dropped: bool = Field(default=False, alias="droped")
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class PopProcessQueueInfo(Body):
    """Messages of one queue that are in flight to a POP consumer."""

    dropped: bool = Field(default=False, alias="droped")
    last_pop_timestamp: Int64 = 0
    wait_ack_count: Int32 = 0


class ConsumeStatus(Body):
    """Rates (per second) and mean times of one topic; failures are those of the last hour."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = Field(default=0.0, alias="consumeFailedTPS")
    consume_ok_tps: float = Field(default=0.0, alias="consumeOKTPS")
    consume_time_ms: float = Field(default=0.0, alias="consumeRT")
    pull_time_ms: float = Field(default=0.0, alias="pullRT")
    pull_tps: float = Field(default=0.0, alias="pullTPS")


class ConsumerRunningInfo(Body):
    """The whole state of a consumer; `jstack` holds its threads' stacks, if they were requested."""

    jstack: str | None = None
    mq_pop_table: dict[QueueField, PopProcessQueueInfo] = Field(default_factory=dict)
    mq_table: dict[QueueField, ProcessQueueInfo] = Field(default_factory=dict)
    properties: dict[str, str] = Field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = Field(default_factory=dict)
    subscription_set: list[SubscriptionData] = Field(default_factory=list)
    user_consumer_info: dict[str, str] = Field(default_factory=dict)


class CMResult(WireEnum):
    """The outcome of a listener to which an administrator sent one message."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body):
    """The result of that delivery."""

    auto_commit: bool = True
    consume_result: CMResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_ms: Int64 = Field(default=0, alias="spentTimeMills")
