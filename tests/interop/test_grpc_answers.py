"""Requests, valid and invalid, are answered as by Apache's proxy, except for the differences listed here.

`tests/data/grpc_answers` has the answers of Apache's proxy. docs/compatibility.md explains the differences.
`python -m tests.interop.test_grpc_answers` records the answers again; it needs a JDK and Maven.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.grpc_fronts import (
    Stack,
    apache_cluster_mode,
    apache_local,
    own_cluster_form,
    own_local_form,
)
from tests.support.golden import DATA, json_file
from tests.support.grpc_requests import transcribe
from tests.support.grpc_transcript import Answer, Transcript, status_codes

pytestmark = pytest.mark.timeout(300)

_FOLDER: Final = "grpc_answers"
_CLASS_NAME: Final = "org.apache.rocketmq.proxy.common.ProxyException: "
_Codes = list[tuple[str, list[str]]]
_BAD_HANDLE: Final[_Codes] = [("INVALID_RECEIPT_HANDLE", [])]
_BAD_ENTRY: Final = [("INVALID_RECEIPT_HANDLE", ["INVALID_RECEIPT_HANDLE"])]
_FAILED: Final[_Codes] = [("INTERNAL_SERVER_ERROR", [])]
_FAILED_ENTRY: Final = [("INTERNAL_SERVER_ERROR", ["INTERNAL_SERVER_ERROR"])]
_OK: Final[_Codes] = [("OK", [])]
_MALFORMED: Final = ("empty", "garbage", "letters", "negative offset", "too few parts")

# Our codes where they differ from Apache's.
_OUR_CODES: Final[Mapping[str, object]] = {
    **{f"AckMessage: handle {name}": _BAD_ENTRY for name in _MALFORMED},
    **{f"ChangeInvisibleDuration: handle {name}": _BAD_HANDLE for name in _MALFORMED},
    **{f"ForwardMessageToDeadLetterQueue: handle {name}": _BAD_HANDLE for name in _MALFORMED},
    "ack: a good one and a bad one": [("MULTIPLE_RESULTS", ["OK", "INVALID_RECEIPT_HANDLE"])],
    "ack: group long": _FAILED_ENTRY,
    "ack: unknown group": _FAILED_ENTRY,
    "ChangeInvisibleDuration: handle cut off": _FAILED,
    "change: the old handle": _FAILED,
    "offsets: GetOffset": _OK,
    "offsets: PullMessage": _OK,
    "offsets: QueryOffset": _OK,
    "offsets: UpdateOffset": _OK,
    "receive: batch of 0": [("BAD_REQUEST", [])],
    "receive: batch of -1": [("BAD_REQUEST", [])],
    "send: batch": [("OK", ["OK", "OK", "OK"])],
    "send: batch of one group": [("OK", ["OK", "OK"])],
    "send: batch of transactions": [("BAD_REQUEST", [])],
    "send: batch with a delay": [("BAD_REQUEST", [])],
    "send: batch, second of another type": [("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", [])],
    "send: trace context with a line feed": [("ILLEGAL_MESSAGE_PROPERTY_KEY", [])],
    "transaction: committed": _OK,
    "transaction: unknown id": [("INVALID_TRANSACTION_ID", [])],
}
# The same in LOCAL mode only, where Apache's proxy takes receipts of every broker for those of its own.
_OUR_LOCAL_CODES: Final[Mapping[str, object]] = {
    **_OUR_CODES,
    "AckMessage: handle unknown broker": _BAD_ENTRY,
    "ChangeInvisibleDuration: handle unknown broker": _BAD_HANDLE,
    "ForwardMessageToDeadLetterQueue: handle unknown broker": _BAD_HANDLE,
    "receive: unknown topic": [("TOPIC_NOT_FOUND", [])],
}
# In LOCAL form the broker gets heartbeats of gRPC consumers, and creates the retry topics of their groups.
# The first heartbeat may come before or after these requests.
_RETRY_TOPIC: Final = ("route, topic retry", "assignment, topic retry")
# Only the text differs: ours names the value and the rule, and repeats no `0` of a broker.
_OUR_TEXTS: Final = frozenset(
    {
        *(f"ForwardMessageToDeadLetterQueue: handle {name}" for name in ("expired", "offset not reached")),
        *(f"ForwardMessageToDeadLetterQueue: handle unknown {name}" for name in ("queue", "revive queue")),
        *("forward", "forward again"),
        *(f"recall: handle {name}" for name in ("empty", "garbage", "base64")),
        *(f"receive: filter {name}" for name in ("SQL empty", "SQL wrong", "tag bars")),
        "send: batch over 4 MiB",
        "settings of nothing",
        "settings with an empty SQL filter",
    }
)


@pytest.mark.parametrize(
    ("stack", "golden", "expected"),
    [
        pytest.param(own_cluster_form, "cluster", _OUR_CODES, id="cluster"),
        pytest.param(own_local_form, "local", _OUR_LOCAL_CODES, id="local"),
    ],
)
def test_ours_answers_as_apaches(
    stack: Stack, golden: str, expected: Mapping[str, object], tmp_path: Path
) -> None:
    apaches: Transcript = json_file(f"{_FOLDER}/{golden}.json")
    ours = _transcribed(stack, tmp_path)
    assert ours.keys() == apaches.keys()
    if stack is own_local_form:
        for name in _RETRY_TOPIC:
            assert status_codes(ours.pop(name)) in (_OK, [("TOPIC_NOT_FOUND", [])])
    different = {
        name: status_codes(answer)
        for name, answer in ours.items()
        if status_codes(answer) != status_codes(apaches[name])
    }
    assert different == expected
    for name, answer in ours.items():
        if name not in expected:
            with_text = name not in _OUR_TEXTS
            assert _content(answer, with_text) == _content(apaches[name], with_text), name


@pytest.mark.long
@pytest.mark.java
@pytest.mark.parametrize(
    ("stack", "golden"),
    [pytest.param(apache_cluster_mode, "cluster"), pytest.param(apache_local, "local")],
    ids=["cluster", "local"],
)
def test_the_recorded_answers_are_apaches(stack: Stack, golden: str, tmp_path: Path) -> None:
    apaches = _transcribed(stack, tmp_path)
    assert apaches == json_file(f"{_FOLDER}/{golden}.json")


def _transcribed(stack: Stack, folder: Path) -> Transcript:
    with stack(folder) as running:
        return asyncio.run(transcribe(running.address, running.namesrv_address, running.broker_port))


def _content(answer: Answer, with_text: bool) -> object:
    """Return an answer to compare, with or without the text of its status."""
    answer = json.loads(json.dumps(answer).replace(_CLASS_NAME, ""))
    if "grpc" in answer and not with_text:
        return answer["grpc"]
    for part in answer.get("responses", [answer]):
        status = part.get("status", {})
        # The client of the name server words it.
        if not with_text or status.get("code") == "TOPIC_NOT_FOUND":
            status.pop("message", None)
    return answer


def _record(stack: Stack, golden: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        transcript = _transcribed(stack, Path(folder))
    _write(transcript, DATA / _FOLDER / f"{golden}.json")


def _write(transcript: Mapping[str, Any], path: Path) -> None:
    lines = [
        f"{json.dumps(name)}: {json.dumps(answer, ensure_ascii=False, sort_keys=True)}"
        for name, answer in transcript.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _record(apache_cluster_mode, "cluster")
    _record(apache_local, "local")
