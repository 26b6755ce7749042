"""Transactions: their states, and the request that ends one.

Source: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.endTransaction and checkTransactionState,
ClientRemotingProcessor.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader
from rmq_remoting.sys_flags import MessageSysFlag

log = logging.getLogger(__name__)


class TransactionState(Enum):
    """Outcome of a transaction."""

    COMMIT = MessageSysFlag.TRANSACTION_COMMIT
    ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK
    UNKNOWN = MessageSysFlag.TRANSACTION_NOT  # unknown yet: the broker asks (again)


@dataclass(frozen=True, slots=True)
class HalfMessagePosition:
    """Position of a half message in the broker's log and queue, and its ids."""

    topic: str | None
    broker_name: str | None
    commit_log_offset: int
    queue_offset: int
    msg_id: str
    transaction_id: str | None


def end_request(
    group: str,
    place: HalfMessagePosition,
    state: TransactionState,
    *,
    remark: str | None = None,
    from_check: bool = False,
    serialization: Serialization,
) -> RemotingCommand:
    """37, one-way: build the request that ends a transaction."""
    header = EndTransactionRequestHeader(
        commit_log_offset=place.commit_log_offset,
        commit_or_rollback=state.value,
        from_transaction_check=from_check,
        msg_id=place.msg_id,
        producer_group=group,
        topic=place.topic,
        tran_state_table_offset=place.queue_offset,
        transaction_id=place.transaction_id,
        broker_name=place.broker_name,
    )
    request = RemotingCommand.request(
        RequestCode.END_TRANSACTION, header.encode(), oneway=True, serialization=serialization
    )
    request.remark = remark
    return request
