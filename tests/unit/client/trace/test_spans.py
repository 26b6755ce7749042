"""Spans in the format that Apache's tools read."""

from __future__ import annotations

import pytest

from rmq_client import TransactionState
from rmq_client.trace.spans import (
    ConsumeEndSpan,
    ConsumeStartSpan,
    EndTransactionSpan,
    PlainSend,
    PlainSendLines,
    RecallSpan,
    SendSpan,
    Span,
    TracedType,
)

# The order of the fields is that of Apache RocketMQ 5.3.3, TraceDataEncoder.
_SEND = (
    SendSpan(
        "ID", "k1 k2", "paid", "T", "G", "R", "h:1", 9, 1_700_000_000_000, 5, TracedType.DELAY, "OID", True
    ),
    "Pub|1700000000000|R|G|T|ID|paid|k1 k2|h:1|9|5|3|OID|true",
)
_SEND_BARE = (
    SendSpan("ID", None, None, "T", "G", "R", "h:1", 9, 1, 0, TracedType.NORMAL, "OID", False),
    "Pub|1|R|G|T|ID|null|null|h:1|9|0|0|OID|false",
)
_START = (ConsumeStartSpan("ID", "k1", "R", "G", "CALL", 7, 2), "SubBefore|7|R|G|CALL|ID|2|k1")
# Java drops an empty last field.
_START_BARE = (ConsumeStartSpan("ID", "", None, "G", "CALL", 7, 0), "SubBefore|7|null|G|CALL|ID|0|null")
_END = (ConsumeEndSpan("ID", None, "G", "CALL", 8, 3, False, 4), "SubAfter|CALL|ID|3|false|null|4|8|G")

_COMMIT = (
    EndTransactionSpan(
        "ID", "k1", "paid", "T", "G", "R", "h:1", 9, "TID", TransactionState.COMMIT, from_check=False
    ),
    "EndTransaction|9|R|G|T|ID|paid|k1|h:1|2|TID|COMMIT_MESSAGE|false",
)
_CHECKED = (
    EndTransactionSpan(
        "ID", None, None, "T", "G", "R", "h:1", 9, "TID", TransactionState.ROLLBACK, from_check=True
    ),
    "EndTransaction|9|R|G|T|ID|null|null|h:1|2|TID|ROLLBACK_MESSAGE|true",
)
_OPEN = (
    EndTransactionSpan(
        "ID", None, None, "T", "G", "R", "h:1", 9, "TID", TransactionState.UNKNOWN, from_check=True
    ),
    "EndTransaction|9|R|G|T|ID|null|null|h:1|2|TID|UNKNOW|true",
)
_RECALL = (RecallSpan("ID", "T", "G", "R", 9), "Recall|9|R|G|T|ID|true")
_ALL = [_SEND, _SEND_BARE, _START, _START_BARE, _END, _COMMIT, _CHECKED, _OPEN, _RECALL]


@pytest.mark.parametrize(("span", "fields"), _ALL)
def test_a_span_is_a_line(span: Span, fields: str) -> None:
    assert span.line() == fields.replace("|", "\x01") + "\x02"


def test_plain_sends_have_the_lines_of_their_spans() -> None:
    begin_ns = 1_700_000_000_000_999_999
    first: PlainSend = ("T", 9, "ID1", "OID1", "R", "h:1", True, begin_ns, begin_ns + 1)
    sends: list[PlainSend] = [
        first,
        ("T", 9, "ID2", "OID2", "R", "h:1", True, begin_ns, begin_ns + 7_000_000),  # the same begin
        ("T", 9, "ID3", "", "R", "h:1", False, begin_ns + 1_000_000, begin_ns + 1_000_000),  # begins later
        ("U", 8, "ID4", "OID4", "S", "h:2", True, begin_ns + 1_000_000, begin_ns + 2_000_000),
        first,
    ]
    spans = [
        SendSpan(
            msg_id=msg_id,
            keys=None,
            tags=None,
            topic=topic,
            group="G",
            region=region,
            broker=broker,
            body_bytes=body_bytes,
            began_ms=began_ns // 1_000_000,
            cost_ms=ended_ns // 1_000_000 - began_ns // 1_000_000,
            type=TracedType.NORMAL,
            offset_msg_id=offset_msg_id,
            success=stored,
        )
        for topic, body_bytes, msg_id, offset_msg_id, region, broker, stored, began_ns, ended_ns in sends
    ]
    assert PlainSendLines("G").encode(sends) == [span.line() for span in spans]
