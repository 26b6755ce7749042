"""Requests that are rewritten for a physical queue."""

from __future__ import annotations

import pytest

from rmq_broker.static_topics.requests import is_physical, physical_fields, rewritten
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("true", False), ("TRUE", False), ("false", True), ("", True)]
)
def test_forwarded_requests_are_recognized(value: str | None, expected: bool) -> None:
    assert is_physical({} if value is None else {"lo": value}) is expected


def test_the_signature_of_the_client_is_left_out() -> None:
    fields = {"topic": "S", "queueId": "7", "AccessKey": "k", "Signature": "s", "SecurityToken": "t"}
    assert physical_fields(fields, 1, commitOffset=5) == {
        "topic": "S",
        "queueId": "1",
        "lo": "false",
        "commitOffset": "5",
    }


def test_everything_else_stays() -> None:
    request = RemotingCommand.request(
        RequestCode.PULL_MESSAGE, {"queueId": "7"}, b"body", serialization=Serialization.BINARY
    )
    found = rewritten(request, {"queueId": "1"})
    assert found.ext_fields == {"queueId": "1"} and request.ext_fields == {"queueId": "7"}
    for name in ("code", "flag", "opaque", "language", "version", "body", "serialization"):
        assert getattr(found, name) == getattr(request, name)
