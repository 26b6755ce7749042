"""Headers of transactions (codes 39, 323, and the response to 37); the request 37 is in `transaction_end`."""

from __future__ import annotations

from ..integers import Int32, Int64
from .base import Header
from .rpc import RpcHeader


class EndTransactionResponseHeader(Header):
    """An empty header."""


class CheckTransactionStateRequestHeader(RpcHeader):
    """39: a broker asks a producer for the outcome of a transaction; the half message is the body."""

    commit_log_offset: Int64
    msg_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    tran_state_table_offset: Int64
    transaction_id: str | None = None


class CheckTransactionStateResponseHeader(Header):
    """Not in use: producers answer with END_TRANSACTION."""

    commit_log_offset: Int64
    commit_or_rollback: Int32
    producer_group: str
    tran_state_table_offset: Int64


class ResumeCheckHalfMessageRequestHeader(Header):
    """323: resume the checks of a half message that the broker had given up."""

    msg_id: str | None = None
    topic: str | None = None
