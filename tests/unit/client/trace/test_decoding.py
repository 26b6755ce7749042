"""Traces read back from the bodies of trace messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rmq_client.trace.decoding import TraceEvent, decode_trace
from rmq_client.trace.spans import (
    ConsumeEndSpan,
    ConsumeStartSpan,
    EndTransactionSpan,
    RecallSpan,
    SendSpan,
    Span,
    TracedType,
)
from rmq_client.transactions import TransactionState

_MS = 1_764_000_000_123
_TIME = datetime.fromtimestamp(_MS / 1000, UTC)

_SPANS: list[tuple[Span, TraceEvent]] = [
    (
        SendSpan("id", "k", "t", "T", "g", "r", "b:1", 7, _MS, 12, TracedType.NORMAL, "offset-id", True),
        TraceEvent("Pub", "id", _TIME, "g", "T", "k", "t", "c", "b:1", 0.012, True),
    ),
    (
        ConsumeStartSpan("id", "k", "r", "g", "call", _MS, 3),
        TraceEvent("SubBefore", "id", _TIME, "g", keys="k", client="c", retries=3, call_id="call"),
    ),
    (
        ConsumeEndSpan("id", None, "g", "call", _MS, 250, False, 4),
        TraceEvent(
            "SubAfter",
            "id",
            _TIME,
            "g",
            client="c",
            seconds=0.25,
            succeeded=False,
            call_id="call",
            outcome="refused",
        ),
    ),
    (
        EndTransactionSpan(
            "id", "k", "t", "T", "g", "r", "b:1", _MS, "tx", TransactionState.COMMIT, from_check=False
        ),
        TraceEvent("EndTransaction", "id", _TIME, "g", "T", "k", "t", "c", "b:1", outcome="COMMIT_MESSAGE"),
    ),
    (
        RecallSpan("id", "T", "g", "r", _MS),
        TraceEvent("Recall", "id", _TIME, "g", "T", client="c", succeeded=True),
    ),
]


@pytest.mark.parametrize(("span", "event"), _SPANS, ids=[event.kind for _, event in _SPANS])
def test_a_span_of_the_sdk_is_read_back(span: Span, event: TraceEvent) -> None:
    assert decode_trace(span.line().encode(), "c") == [event]


def test_lines_of_old_clients_lack_fields() -> None:
    old_send = "\x01".join(["Pub", str(_MS), "r", "g", "T", "id", "t", "k", "b:1", "7", "12", "0", "false"])
    old_end = "\x01".join(["SubAfter", "call", "id", "250", "true", "k"])
    sent, ended = decode_trace(f"{old_send}\x02{old_end}\x02".encode())
    assert (sent.message_id, sent.succeeded) == ("id", False)
    assert (ended.time, ended.group, ended.outcome, ended.succeeded) == (None, "", "", True)


def test_the_client_of_a_new_line_counts_before_the_sender() -> None:
    fields = ["Pub", str(_MS), "r", "g", "T", "id", "t", "k", "b:1", "7", "12", "0", "o", "true", "10.0.0.7"]
    assert decode_trace("\x01".join(fields).encode(), "10.0.0.8")[0].client == "10.0.0.7"


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"Pub\x01x\x02", b"Other\x011\x02", b"SubAfter\x01a\x02"])
def test_what_is_no_trace_is_skipped(body: bytes) -> None:
    assert decode_trace(body) == []
