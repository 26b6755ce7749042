"""Statuses: which code stands for which error, and the status over several entries."""

from __future__ import annotations

import pytest

from rmq_client.errors import BrokerUnreachable, TimedOut, TopicNotFound, broker_error
from rmq_proxy.calls import peer_address
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.protocol.definition_pb2 import Code
from rmq_proxy.statuses import Refusal, combined, ok, status_of
from rmq_remoting.codes import ResponseCode


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Refusal(Code.FORBIDDEN, "no writable queue"), Code.FORBIDDEN, "no writable queue"),
        (TopicNotFound("no route"), Code.TOPIC_NOT_FOUND, "no route"),
        (broker_error(ResponseCode.TOPIC_NOT_EXIST, "gone", "b:1"), Code.TOPIC_NOT_FOUND, "gone"),
        (broker_error(ResponseCode.SYSTEM_BUSY, "busy", "b:1"), Code.TOO_MANY_REQUESTS, "busy"),
        (broker_error(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", "b:1"), Code.NOT_IMPLEMENTED, "no"),
        (
            broker_error(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no group", "b:1"),
            Code.CONSUMER_GROUP_NOT_FOUND,
            "no group",
        ),
        (
            broker_error(ResponseCode.NO_PERMISSION, "read only", "b:1"),
            Code.INTERNAL_SERVER_ERROR,
            "read only",
        ),
        (TimedOut("late"), Code.PROXY_TIMEOUT, "late"),
        (BrokerUnreachable("gone"), Code.INTERNAL_SERVER_ERROR, "gone"),
        (KeyError("bug"), Code.INTERNAL_SERVER_ERROR, "KeyError: 'bug'"),
    ],
)
def test_an_error_has_the_code_that_apaches_proxy_gives(error: Exception, code: Code, text: str) -> None:
    status = status_of(error)
    assert status.code == code
    assert text in status.message


def test_a_response_copies_the_shared_status_of_success() -> None:
    response = rpc.AckMessageResponse(
        status=ok(), entries=[rpc.AckMessageResultEntry(status=combined([Code.OK], ""))]
    )
    response.status.message = response.entries[0].status.message = "changed"
    assert (ok().code, ok().message) == (Code.OK, "OK")


def test_entries_have_one_status_or_several() -> None:
    assert combined([Code.OK, Code.OK], "none").code == Code.OK
    assert combined([Code.OK, Code.INVALID_RECEIPT_HANDLE], "none").code == Code.MULTIPLE_RESULTS
    nothing = combined([], "ack message result is empty")
    assert (nothing.code, nothing.message) == (Code.INTERNAL_SERVER_ERROR, "ack message result is empty")


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:80", "192.0.2.1:80"),
        ("ipv6:%5B2001:db8::1%5D:80", "[2001:db8::1]:80"),
        ("unix:x", ""),
    ],
)
def test_peers_are_addresses(peer: str, address: str) -> None:
    assert peer_address(peer) == address
