"""Recall handles as in Apache RocketMQ 5.3.3, and invalid ones."""

from __future__ import annotations

import base64

import pytest

from rmq_remoting.recall_handle import RecallHandle, RecallHandleError
from tests.support.golden import json_file
from tests.support.rows import each_row

_GOLDEN = json_file("hashes.json")["recall_handle"]


@pytest.mark.parametrize("row", _GOLDEN, ids=lambda row: row["messageId"])
def test_handles_equal_apaches(row: dict[str, str]) -> None:
    handle = RecallHandle(row["topic"], row["brokerName"], int(row["timestampStr"]), row["messageId"])
    assert handle.encode() == row["handle"]
    assert RecallHandle.decode(row["handle"]) == handle
    assert RecallHandle.decode(row["handle"].rstrip("=")) == handle


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@each_row(
    "handle",
    [
        "",
        "no base 64!",
        "é",
        "YQ",
        "A",
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        _encoded("v2 T b 1 K"),
        _encoded("v1 T b 1"),
        _encoded("v1 T b -1 K"),
        _encoded("v1 T b soon K"),
        _encoded(f"v1 T b {'9' * 19} K"),
        "A" * 5000,
    ],
)
def test_invalid_handles_are_refused(handle: str) -> None:
    with pytest.raises(RecallHandleError, match="is invalid") as refused:
        RecallHandle.decode(handle)
    assert len(str(refused.value)) < 400
