"""The header of ends of transactions (37).

Every message of a transaction passes here, so it has a codec of its own. Source: Apache RocketMQ 5.3.3,
EndTransactionRequestHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import HeaderError
from ..integer_bounds import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from .optional_fields import with_optional
from .problems import IntegerFields, header_error

_TEXTS: Final = ("producerGroup", "msgId")
_INTEGERS: Final[IntegerFields] = (
    (("commitOrRollback",), INT32_MIN, INT32_MAX),
    (("commitLogOffset", "tranStateTableOffset"), INT64_MIN, INT64_MAX),
)


@dataclass(slots=True, init=False)
class EndTransactionRequestHeader:
    """37: `commit_or_rollback` is a transaction state of the system flag, 0 if it is not known yet."""

    commit_log_offset: int
    commit_or_rollback: int
    msg_id: str
    producer_group: str
    tran_state_table_offset: int
    topic: str | None
    transaction_id: str | None
    broker_name: str | None
    from_transaction_check: bool

    # Written out: a compiled class keeps a dataclass's own as interpreted code.
    def __init__(
        self,
        *,
        commit_log_offset: int,
        commit_or_rollback: int,
        msg_id: str,
        producer_group: str,
        tran_state_table_offset: int,
        topic: str | None = None,
        transaction_id: str | None = None,
        broker_name: str | None = None,
        from_transaction_check: bool = False,
    ) -> None:
        self.commit_log_offset = commit_log_offset
        self.commit_or_rollback = commit_or_rollback
        self.msg_id = msg_id
        self.producer_group = producer_group
        self.tran_state_table_offset = tran_state_table_offset
        self.topic = topic
        self.transaction_id = transaction_id
        self.broker_name = broker_name
        self.from_transaction_check = from_transaction_check

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> EndTransactionRequestHeader:
        """Decode the header from ext fields. Raises HeaderError."""
        get = fields.get
        try:
            header = EndTransactionRequestHeader(
                commit_log_offset=int(fields["commitLogOffset"]),
                commit_or_rollback=int(fields["commitOrRollback"]),
                msg_id=fields["msgId"],
                producer_group=fields["producerGroup"],
                tran_state_table_offset=int(fields["tranStateTableOffset"]),
                topic=get("topic"),
                transaction_id=get("transactionId"),
                broker_name=get("bname"),
                from_transaction_check=get("fromTransactionCheck", "false").lower() == "true",
            )
        except (KeyError, ValueError) as error:
            raise _error(fields) from error
        if not (
            INT64_MIN <= header.commit_log_offset <= INT64_MAX
            and INT32_MIN <= header.commit_or_rollback <= INT32_MAX
            and INT64_MIN <= header.tran_state_table_offset <= INT64_MAX
        ):
            raise _error(fields)
        return header

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""
        fields = {
            "commitLogOffset": str(self.commit_log_offset),
            "commitOrRollback": str(self.commit_or_rollback),
            "fromTransactionCheck": "true" if self.from_transaction_check else "false",
            "msgId": self.msg_id,
            "producerGroup": self.producer_group,
            "tranStateTableOffset": str(self.tran_state_table_offset),
        }
        return with_optional(
            fields, topic=self.topic, transactionId=self.transaction_id, bname=self.broker_name
        )


def _error(fields: Mapping[str, str]) -> HeaderError:
    return header_error("EndTransactionRequestHeader", fields, _TEXTS, _INTEGERS)
