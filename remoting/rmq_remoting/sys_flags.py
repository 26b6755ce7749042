"""Bits of the system flags of messages and pulls (Apache RocketMQ 5.3.3, MessageSysFlag and PullSysFlag).

Plain integers, not `enum.Flag`: an `enum.Flag` operation costs as much as decoding a whole header.
"""

from __future__ import annotations

from typing import Final


class MessageSysFlag:
    """Bits of a stored message's `sys_flag`."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x1 << 1

    TRANSACTION_NOT: Final = 0
    TRANSACTION_PREPARED: Final = 0x1 << 2
    TRANSACTION_COMMIT: Final = 0x2 << 2
    TRANSACTION_ROLLBACK: Final = 0x3 << 2
    TRANSACTION_MASK: Final = 0x3 << 2

    BORN_HOST_V6: Final = 0x1 << 4
    STORE_HOST_V6: Final = 0x1 << 5

    # A record whose body is a client's batch: both bits are set.
    NEED_UNWRAP: Final = 0x1 << 6
    INNER_BATCH: Final = 0x1 << 7

    COMPRESSION_LZ4: Final = 0x1 << 8
    COMPRESSION_ZSTD: Final = 0x2 << 8
    COMPRESSION_ZLIB: Final = 0x3 << 8
    COMPRESSION_MASK: Final = 0x7 << 8
    COMPRESSION_SHIFT: Final = 8

    @staticmethod
    def transaction_type(sys_flag: int) -> int:
        """Return one of TRANSACTION_NOT, _PREPARED, _COMMIT and _ROLLBACK."""
        return sys_flag & MessageSysFlag.TRANSACTION_MASK

    @staticmethod
    def with_transaction_type(sys_flag: int, transaction_type: int) -> int:
        """Return the flag with another transaction type."""
        return (sys_flag & ~MessageSysFlag.TRANSACTION_MASK) | transaction_type

    @staticmethod
    def is_inner_batch(sys_flag: int) -> bool:
        """Return whether the record's body is a batch, which its reader must unwrap."""
        both = MessageSysFlag.NEED_UNWRAP | MessageSysFlag.INNER_BATCH
        return sys_flag & both == both


class PullSysFlag:
    """Bits of a pull request's `sys_flag`."""

    COMMIT_OFFSET: Final = 0x1
    SUSPEND: Final = 0x1 << 1
    SUBSCRIPTION: Final = 0x1 << 2
    CLASS_FILTER: Final = 0x1 << 3
    LITE_PULL: Final = 0x1 << 4

    @staticmethod
    def build(
        *,
        commit_offset: bool = False,
        suspend: bool = False,
        subscription: bool = False,
        class_filter: bool = False,
        lite_pull: bool = False,
    ) -> int:
        """Return the flag with the given bits set."""
        return (
            commit_offset * PullSysFlag.COMMIT_OFFSET
            | suspend * PullSysFlag.SUSPEND
            | subscription * PullSysFlag.SUBSCRIPTION
            | class_filter * PullSysFlag.CLASS_FILTER
            | lite_pull * PullSysFlag.LITE_PULL
        )
