"""Traces read back: the events in the body of a trace message (Apache RocketMQ 5.3.3, TraceDataEncoder)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_FIELD: Final = "\x01"
_END: Final = "\x02"
_NULL: Final = "null"
# ConsumeReturnType, by its ordinal.
_OUTCOMES: Final = ("success", "timed out", "exception", "no result", "refused")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event of a message's trace.

    `kind` is Apache's: Pub, SubBefore, SubAfter, EndTransaction or Recall. `client` is the client's address,
    `call_id` joins the begin and the end of a listener's call. `seconds` is how long the send or the call
    took. `outcome` is the outcome of a listener or of a transaction.
    """

    kind: str
    message_id: str
    time: datetime | None
    group: str
    topic: str = ""
    keys: str = ""
    tags: str = ""
    client: str = ""
    broker: str = ""
    seconds: float | None = None
    succeeded: bool | None = None
    retries: int | None = None
    call_id: str = ""
    outcome: str = ""


def decode_trace(body: bytes, client: str = "") -> list[TraceEvent]:
    """Return the events of a trace message. `client` is the address of its sender.

    Lines that cannot be read are skipped: a trace topic may hold messages of other programs.
    """
    return list(_events(body.decode("utf-8", "replace"), client))


def _events(text: str, client: str) -> Iterator[TraceEvent]:
    for line in text.split(_END):
        fields = ["" if field == _NULL else field for field in line.split(_FIELD)]
        read = _READERS.get(fields[0])
        if read is None:
            continue
        try:
            yield read(fields, client)
        except (IndexError, ValueError):
            continue


def _sent(fields: Sequence[str], client: str) -> TraceEvent:
    return TraceEvent(
        kind="Pub",
        message_id=fields[5],
        time=_time(fields[1]),
        group=fields[3],
        topic=fields[4],
        tags=fields[6],
        keys=fields[7],
        broker=fields[8],
        seconds=int(fields[10]) / 1000,
        # Clients before 4.4 write no offset message id, so the outcome is one field earlier.
        succeeded=_bool(fields[13] if len(fields) > 13 else fields[12]),
        client=fields[14] if len(fields) > 14 and fields[14] else client,
    )


def _call_began(fields: Sequence[str], client: str) -> TraceEvent:
    return TraceEvent(
        kind="SubBefore",
        message_id=fields[5],
        time=_time(fields[1]),
        group=fields[3],
        call_id=fields[4],
        retries=int(fields[6]),
        keys=fields[7],
        client=client,
    )


def _call_ended(fields: Sequence[str], client: str) -> TraceEvent:
    code = int(fields[6]) if len(fields) > 6 and fields[6] else None
    return TraceEvent(
        kind="SubAfter",
        message_id=fields[2],
        # Clients before 4.9 write neither time nor group.
        time=_time(fields[7]) if len(fields) > 7 else None,
        group=fields[8] if len(fields) > 8 else "",
        call_id=fields[1],
        seconds=int(fields[3]) / 1000,
        succeeded=_bool(fields[4]),
        keys=fields[5],
        outcome=_OUTCOMES[code] if code is not None and 0 <= code < len(_OUTCOMES) else "",
        client=client,
    )


def _transaction_ended(fields: Sequence[str], client: str) -> TraceEvent:
    return TraceEvent(
        kind="EndTransaction",
        message_id=fields[5],
        time=_time(fields[1]),
        group=fields[3],
        topic=fields[4],
        tags=fields[6],
        keys=fields[7],
        broker=fields[8],
        outcome=fields[11],
        client=client,
    )


def _recalled(fields: Sequence[str], client: str) -> TraceEvent:
    return TraceEvent(
        kind="Recall",
        message_id=fields[5],
        time=_time(fields[1]),
        group=fields[3],
        topic=fields[4],
        succeeded=_bool(fields[6]),
        client=client,
    )


_READERS: Final = {
    "Pub": _sent,
    "SubBefore": _call_began,
    "SubAfter": _call_ended,
    "EndTransaction": _transaction_ended,
    "Recall": _recalled,
}


def _time(text: str) -> datetime | None:
    timestamp_ms = int(text)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms > 0 else None


def _bool(text: str) -> bool:
    return text == "true"
