"""Credentials: invalid ones are refused, and no text contains a secret."""

from __future__ import annotations

import logging
import pickle
import traceback

import pytest

from rmq_client import Admin, ClientSettings, Credentials, MessageQueue, RawPuller, UsageError
from rmq_client.errors import NotAuthenticated, NotAuthorized, PermissionDenied, broker_error
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import FakeCluster, Fault
from tests.support.push_consumers import Inbox, consumer_of, put
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_KEYS = Credentials("shop", "open-sesame", "token-of-a-test")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"access_key": ""}, "access_key is empty"),
        ({"secret_key": ""}, "secret_key is empty"),
        ({"security_token": ""}, "security_token is empty"),
        ({"secret_key": "sesame\n"}, "secret_key begins or ends with white space"),
        ({"secret_key": " sesame"}, "secret_key begins or ends with white space"),
        ({"secret_key": "sesa\0me"}, "secret_key contains characters that are not printable"),
        ({"secret_key": b"sesame"}, "secret_key must be a str, not bytes"),
        ({"access_key": None}, "access_key must be a str, not NoneType"),
    ],
)
def test_invalid_credentials_are_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=f"^credentials: {complaint}") as refused:
        Credentials(**{"access_key": "shop", "secret_key": "good", **given})
    assert "sesa" not in "".join(traceback.format_exception(refused.value))


def test_settings_refuse_other_types() -> None:
    with pytest.raises(UsageError, match=r"credentials must be Credentials\(.*, not a tuple") as refused:
        ClientSettings(credentials=("shop", "open-sesame"))  # type: ignore[arg-type]
    assert "sesame" not in str(refused.value)


def test_secrets_are_in_no_text() -> None:
    for text in (repr(_KEYS), str(_KEYS), repr(ClientSettings(credentials=_KEYS)), f"{_KEYS.signer()!r}"):
        assert "sesame" not in text
        assert "token-of" not in text
    assert "shop" in repr(_KEYS)


def test_equal_credentials_are_equal_and_picklable() -> None:
    assert Credentials("shop", "open-sesame", "token-of-a-test") == _KEYS
    assert (
        len({_KEYS, Credentials("shop", "open-sesame", "token-of-a-test"), Credentials("shop", "other")}) == 2
    )
    assert pickle.loads(pickle.dumps(ClientSettings(credentials=_KEYS))).credentials == _KEYS


@pytest.mark.parametrize(
    ("remark", "kind"),
    [
        ("check signature failed.", NotAuthenticated),
        ("username cannot be null.", NotAuthenticated),
        ("User:shop is not found.", NotAuthenticated),
        ("User:shop is disabled.", NotAuthenticated),
        ("User:shop not found.", NotAuthenticated),
        ("Authentication failed. Please verify the credentials and try again.", NotAuthenticated),
        (
            "User:shop has no permission to access Topic:orders from 127.0.0.1, no matched policies.",
            NotAuthorized,
        ),
        ("Authorization failed. Please verify your access rights and try again.", NotAuthorized),
        ("the broker[10.0.0.1] sending message is forbidden", PermissionDenied),
        (None, PermissionDenied),
    ],
)
def test_refusals_by_apaches_remarks(remark: str | None, kind: type[PermissionDenied]) -> None:
    error = broker_error(ResponseCode.NO_PERMISSION, remark, "b:1", "send")
    assert type(error) is kind
    assert error.remark == (remark or "")
    assert error.advice in str(error)


async def test_errors_and_logs_of_refused_keys_contain_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        for code in (RequestCode.PULL_MESSAGE, RequestCode.GET_MAX_OFFSET):
            fault = Fault(code=ResponseCode.NO_PERMISSION, remark="check signature failed.")
            cluster.broker.order(code, fault)
        settings = ClientSettings(credentials=_KEYS)
        queue = MessageQueue("T", cluster.broker.name, 0)
        async with (
            RawPuller(cluster.address, group="g", settings=settings) as puller,
            Admin(cluster.address, settings=settings) as admin,
        ):
            with pytest.raises(NotAuthenticated, match=r"signature failed.*check access key") as refused:
                await puller.pull(queue, 0)
            assert "sesame" not in "".join(traceback.format_exception(refused.value))
            with pytest.raises(NotAuthenticated):
                await admin.max_offset(queue)
    assert "sesame" not in caplog.text
    assert "token-of" not in caplog.text


async def test_a_consumer_without_the_get_right_begins_at_zero() -> None:
    remark = "User:shop has no permission to access Topic:T from 127.0.0.1, no matched policies."
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        bodies = put(cluster, 3, queues=1)
        cluster.broker.order(
            RequestCode.GET_MIN_OFFSET, *[Fault(code=ResponseCode.NO_PERMISSION, remark=remark)] * 10
        )
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: inbox.bodies == bodies)
        assert RequestCode.GET_MIN_OFFSET in cluster.broker.codes()
