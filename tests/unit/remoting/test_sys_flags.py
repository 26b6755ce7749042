"""The bits of system flags."""

from __future__ import annotations

from rmq_remoting.sys_flags import MessageSysFlag, PullSysFlag
from tests.support.golden import json_file

CONSTANTS = json_file("wire/message_constants.json")


def test_message_bits_are_those_of_apache() -> None:
    ours = {
        "COMPRESSED_FLAG": MessageSysFlag.COMPRESSED,
        "MULTI_TAGS_FLAG": MessageSysFlag.MULTI_TAGS,
        "TRANSACTION_NOT_TYPE": MessageSysFlag.TRANSACTION_NOT,
        "TRANSACTION_PREPARED_TYPE": MessageSysFlag.TRANSACTION_PREPARED,
        "TRANSACTION_COMMIT_TYPE": MessageSysFlag.TRANSACTION_COMMIT,
        "TRANSACTION_ROLLBACK_TYPE": MessageSysFlag.TRANSACTION_ROLLBACK,
        "BORNHOST_V6_FLAG": MessageSysFlag.BORN_HOST_V6,
        "STOREHOSTADDRESS_V6_FLAG": MessageSysFlag.STORE_HOST_V6,
        "NEED_UNWRAP_FLAG": MessageSysFlag.NEED_UNWRAP,
        "INNER_BATCH_FLAG": MessageSysFlag.INNER_BATCH,
        "COMPRESSION_LZ4_TYPE": MessageSysFlag.COMPRESSION_LZ4,
        "COMPRESSION_ZSTD_TYPE": MessageSysFlag.COMPRESSION_ZSTD,
        "COMPRESSION_ZLIB_TYPE": MessageSysFlag.COMPRESSION_ZLIB,
        "COMPRESSION_TYPE_COMPARATOR": MessageSysFlag.COMPRESSION_MASK,
    }
    assert ours == CONSTANTS["MessageSysFlag"]


def test_pull_bits_are_those_of_apache() -> None:
    ours = {
        "FLAG_COMMIT_OFFSET": PullSysFlag.COMMIT_OFFSET,
        "FLAG_SUSPEND": PullSysFlag.SUSPEND,
        "FLAG_SUBSCRIPTION": PullSysFlag.SUBSCRIPTION,
        "FLAG_CLASS_FILTER": PullSysFlag.CLASS_FILTER,
        "FLAG_LITE_PULL_MESSAGE": PullSysFlag.LITE_PULL,
    }
    assert ours == CONSTANTS["PullSysFlag"]


def test_transaction_type_is_replaced() -> None:
    flag = MessageSysFlag.COMPRESSED | MessageSysFlag.TRANSACTION_PREPARED
    committed = MessageSysFlag.with_transaction_type(flag, MessageSysFlag.TRANSACTION_COMMIT)
    assert MessageSysFlag.transaction_type(flag) == MessageSysFlag.TRANSACTION_PREPARED
    assert MessageSysFlag.transaction_type(committed) == MessageSysFlag.TRANSACTION_COMMIT
    assert committed & MessageSysFlag.COMPRESSED


def test_pull_flag_is_built() -> None:
    assert PullSysFlag.build() == 0
    assert PullSysFlag.build(commit_offset=True, suspend=True, subscription=True) == 7
    assert PullSysFlag.build(class_filter=True, lite_pull=True) == 24
