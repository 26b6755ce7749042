"""Messages of the transcripts (`grpc_requests`): valid ones, and one for each check that a proxy makes."""

from __future__ import annotations

import time
from typing import Final

from rmq_proxy.protocol import definition_pb2 as pb
from tests.support.grpc_client import message

BODY_LIMIT: Final = 4 * 1024 * 1024
_DAY_S: Final = 86_400
# Invalid names, each with its fault as key.
NAMES: Final = {
    "empty": "",
    "blank": " ",
    "space": "a b",
    "dot": "a.b",
    "umlaut": "ä",
    "long": "t" * 128,
    "longer": "t" * 256,
}


def _many(count: int) -> pb.Message:
    made = message("N")
    for number in range(count):
        made.user_properties[f"k{number}"] = "v"
    return made


def _with(key: str, value: str) -> pb.Message:
    made = message("N")
    made.user_properties[key] = value
    return made


def due(topic: str, seconds: int) -> pb.Message:
    """Return a message to deliver at a time, in seconds since 1970."""
    made = message(topic)
    made.system_properties.delivery_timestamp.FromSeconds(seconds)
    return made


def single_messages() -> dict[str, pb.Message]:
    """Return messages for one send each; the key names the special part."""
    now = int(time.time())
    recovered = message("X", message_type=pb.TRANSACTION)
    recovered.system_properties.orphaned_transaction_recovery_duration.FromSeconds(_DAY_S)
    return {
        "plain": message("N", tag="t", keys=["a", "b"]),
        "declared normal": message("N", message_type=pb.NORMAL),
        "body empty": message("N", b""),
        "body of 4 MiB": message("N", bytes(BODY_LIMIT)),
        "body over 4 MiB": message("N", bytes(BODY_LIMIT + 1)),
        "no id": message("N", message_id=""),
        "blank id": message("N", message_id=" "),
        "tag blank": message("N", tag=" "),
        "tag with a bar": message("N", tag="a|b"),
        "tag with a line feed": message("N", tag="a\nb"),
        "key empty": message("N", keys=[""]),
        "key blank": message("N", keys=[" "]),
        "key with a line feed": message("N", keys=["a\nb"]),
        "key with a space": message("N", keys=["a b"]),
        "property of the system": _with("TAGS", "v"),
        "property without a name": _with("", "v"),
        "property without a value": _with("k", ""),
        "property name with a control character": _with("a\x01", "v"),
        "property value with a control character": _with("a", "v\x02"),
        "property with a non-ASCII name": _with("ü", "ö"),
        "128 properties": _many(128),
        "129 properties": _many(129),
        "properties of 16 KiB": _with("k", "v" * 16_383),
        "properties over 16 KiB": _with("k", "v" * 16_384),
        "group in a normal topic": message("N", message_group="g"),
        "group": message("F", message_group="g"),
        "group blank": message("F", message_group=" "),
        "group of 63 bytes": message("F", message_group="g" * 63),
        "group of 64 bytes": message("F", message_group="g" * 64),
        "group with a line feed": message("F", message_group="a\nb"),
        "no group in a FIFO topic": message("F"),
        "declared FIFO without a group": message("F", message_type=pb.FIFO),
        "due soon": due("D", now + 3600),
        "due in two days": due("D", now + 2 * _DAY_S),
        "due in the past": due("D", now - 3600),
        "due at the epoch": due("D", 0),
        "no time in a delay topic": message("D"),
        "time in a normal topic": due("N", now + 3600),
        "declared a transaction": message("N", message_type=pb.TRANSACTION),
        "not declared a transaction": message("X"),
        "recovery after a day": recovered,
        "declared LITE": message("N", message_type=5),
        "compressed": message("N", b"no gzip", body_encoding=pb.GZIP),
        "trace context": message("N", trace_context="00-1-2-01"),
        "trace context with a line feed": message("N", trace_context="a\nb"),
        "queue 7": message("N", queue_id=7),
        "attempt 3": message("N", delivery_attempt=3),
        "namespace": pb.Message(
            topic=pb.Resource(name="N", resource_namespace="ns"),
            body=b"x",
            system_properties=pb.SystemProperties(message_id="01"),
        ),
        "unknown topic": message("none"),
        "system topic": message("TBW102"),
    }
