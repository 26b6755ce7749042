"""Receipt handles and transaction ids: texts that hold all that a proxy needs, and texts that do not."""

from __future__ import annotations

import pytest

from rmq_proxy.protocol.definition_pb2 import Code
from rmq_proxy.receipt_handles import ReceiptHandle
from rmq_proxy.statuses import Refusal
from rmq_proxy.transaction_id import TransactionId

HANDLE = "5 1700000000000 60000 3 0 broker-a 2 7 4711"


def test_a_handle_is_read_as_it_was_written() -> None:
    handle = ReceiptHandle.parse(HANDLE)
    assert (handle.queue_id, handle.queue_offset, handle.commit_log_offset) == (2, 7, 4711)
    assert str(handle) == HANDLE
    assert handle.topic("T", "G") == "T"


def test_a_handle_names_the_retry_topic_of_its_message() -> None:
    assert ReceiptHandle.parse(HANDLE.replace(" 0 broker", " 2 broker")).topic("T", "G") == "%RETRY%G+T"
    assert ReceiptHandle.parse(HANDLE.replace(" 0 broker", " 1 broker")).topic("T", "G") == "%RETRY%G_T"


def test_a_handle_without_a_commit_log_offset_is_good_for_acknowledgements() -> None:
    assert ReceiptHandle.parse(HANDLE.rpartition(" ")[0]).commit_log_offset == -1


@pytest.mark.parametrize(
    "text", ["", "1 2 3", HANDLE.replace("60000", "x"), "5 1 6 3 0 broker-a", "5 1 6 3 0 b 2"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        ReceiptHandle.parse(text)
    assert refused.value.code == Code.INVALID_RECEIPT_HANDLE


def test_a_handle_expires_with_the_invisible_time() -> None:
    handle = ReceiptHandle.parse(HANDLE)
    handle.check_not_expired(1_700_000_059_999)
    with pytest.raises(Refusal, match="receipt handle is expired"):
        handle.check_not_expired(1_700_000_060_000)


@pytest.mark.parametrize("message_id", ["01ABCDEF", "with:colons:1:2"])
def test_a_transaction_id_is_read_as_it_was_written(message_id: str) -> None:
    transaction = TransactionId(message_id, 9_223_372_036_854_775_807, 0, "broker-a")
    assert TransactionId.parse(str(transaction)) == transaction


@pytest.mark.parametrize("text", [" ", "01ABCDEF", "id:1:2:", "id:-1:2:b", "id:1:x:b", f"id:{1 << 63}:0:b"])
def test_other_transaction_ids_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        TransactionId.parse(text)
    assert refused.value.code == Code.INVALID_TRANSACTION_ID
