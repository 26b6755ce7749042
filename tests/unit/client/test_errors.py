"""Errors: one root, retryable codes, and texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rmq_client.blocking
from rmq_client import errors
from rmq_client.errors import (
    BrokerError,
    BrokerUnreachable,
    Busy,
    ClientError,
    NotAuthenticated,
    NotAuthorized,
    NotRunning,
    PermissionDenied,
    Rejected,
    SubscriptionError,
    TimedOut,
    TooMuchUnderWay,
    TopicNotOnBroker,
    Unavailable,
    broker_error,
    request_failure,
)
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import ConnectError, ConnectionClosed, RequestTimeout, TooManyRequests


def test_all_errors_have_one_root() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    own = [one for one in classes if one.__module__ == errors.__name__]
    assert len(own) > 15
    assert all(issubclass(one, ClientError) for one in own)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ResponseCode.SYSTEM_BUSY, Busy),
        (ResponseCode.FLOW_CONTROL, Busy),
        (ResponseCode.SYSTEM_ERROR, Unavailable),
        (ResponseCode.NO_PERMISSION, PermissionDenied),
        (ResponseCode.TOPIC_NOT_EXIST, TopicNotOnBroker),
        (ResponseCode.MESSAGE_ILLEGAL, Rejected),
        (ResponseCode.SUBSCRIPTION_NOT_LATEST, SubscriptionError),
        (99_999, BrokerError),
    ],
)
def test_a_code_has_one_class(code: int, kind: type[BrokerError]) -> None:
    error = broker_error(code, "because", "b:1", "the request")
    assert type(error) is kind
    assert (error.code, error.remark, error.address) == (code, "because", "b:1")
    assert "the request: b:1 answered" in str(error)
    assert "because" in str(error)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("No accessKey is configured", NotAuthenticated),
        ("No acl config for shop", NotAuthenticated),
        ("Check signature failed for accessKey=shop", NotAuthenticated),
        ("No default permission for T", NotAuthorized),
        ("Need admin permission for request code=17, but accessKey=shop is not", NotAuthorized),
        ("something else", Unavailable),
    ],
)
def test_access_control_remarks_of_brokers_before_5_3(said: str, kind: type[BrokerError]) -> None:
    place = "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:394)"
    remark = f"org.apache.rocketmq.acl.common.AclException: {said}, {place}"
    error = broker_error(ResponseCode.SYSTEM_ERROR, remark, "b:1")
    assert type(error) is kind
    assert error.is_outcome_unknown is (kind is Unavailable)


def test_retried_errors_match_apaches_client() -> None:
    retried = {int(code) for code in ResponseCode if broker_error(code, None, "b:1").retryable}
    apache = {17, 14, 1, 2, 16, 204, 205, 1500}  # DefaultMQProducer.retryResponseCodes
    assert retried == apache | {ResponseCode.FLOW_CONTROL, ResponseCode.POLLING_FULL}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectError("x"), BrokerUnreachable),
        (ConnectionClosed("x"), BrokerUnreachable),
        (TooManyRequests("x"), TooMuchUnderWay),
        (RequestTimeout("x"), TimedOut),
    ],
)
def test_requests_without_an_answer(error: ConnectError, kind: type[ClientError]) -> None:
    assert type(request_failure(error, "send")) is kind
    text = str(request_failure(error, "send"))
    assert text.startswith("send: x")
    assert ("brokerIP1" in text) == isinstance(error, ConnectError)


@pytest.mark.parametrize("module", [rmq_client, rmq_client.blocking])
def test_the_advice_for_an_object_that_does_not_run_fits_both_faces(module: Any) -> None:
    with pytest.raises(NotRunning, match=r"`async with` \(`with` in rmq_client.blocking\)"):
        outcome = module.Producer("127.0.0.1:1", group="g").send(rmq_client.Message("T", b"x"))
        asyncio.run(outcome)
