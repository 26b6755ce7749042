"""Credentials on every request code: whoever cannot prove to be a known user reaches no processor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_client import Credentials
from rmq_remoting.bodies.access_control import UserInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import FrameDecoder, encode_frame
from tests.support.brokers import RunningBroker, running_broker
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import RawClient, raw_client
from tests.support.rows import each_row
from tests.support.signed_requests import AUTHENTICATION, ROOT, signed

_ANNA = Credentials("anna", "annas-secret")
_BAD_SIGNATURE = "check signature failed."

# Makes what a client would send of an unsigned request.
_Forgery = Callable[[RemotingCommand], RemotingCommand]


def _without_keys(request: RemotingCommand) -> RemotingCommand:
    return request


def _by(keys: Credentials) -> _Forgery:
    return lambda request: signed(request, keys)


def _with_fields(**fields: str) -> _Forgery:
    """A request whose fields were changed after it was signed."""

    def altered(request: RemotingCommand) -> RemotingCommand:
        proven = signed(request, ROOT)
        proven.ext_fields.update(fields)
        return proven

    return altered


def _with_body(body: bytes) -> _Forgery:
    def altered(request: RemotingCommand) -> RemotingCommand:
        proven = signed(request, ROOT)
        proven.body = body
        return proven

    return altered


def _without_signature(request: RemotingCommand) -> RemotingCommand:
    proven = signed(request, ROOT)
    del proven.ext_fields["Signature"]
    return proven


def _of_another(request: RemotingCommand) -> RemotingCommand:
    """A valid signature, taken from another request."""
    other = RemotingCommand.request(request.code, {"topic": "other"}, request.body)
    signature = signed(other, ROOT).ext_fields["Signature"]
    return _with_fields(Signature=signature)(request)


_FORGERIES: dict[str, tuple[_Forgery, str]] = {
    "missing": (_without_keys, "set the client's credentials"),
    "unknown user": (_by(Credentials("nobody", "roots-secret")), "User:nobody is not found."),
    "wrong password": (_by(Credentials("root", "wrong")), _BAD_SIGNATURE),
    "password of another user": (_by(Credentials("root", _ANNA.secret_key)), _BAD_SIGNATURE),
    "disabled user": (_by(_ANNA), "User:anna is disabled."),
    "no signature": (_without_signature, _BAD_SIGNATURE),
    "signature of another request": (_of_another, _BAD_SIGNATURE),
    "altered field": (_with_fields(topic="U"), _BAD_SIGNATURE),
    "added field": (_with_fields(zone="z"), _BAD_SIGNATURE),
    "another user's name": (_with_fields(AccessKey="inner"), _BAD_SIGNATURE),
    "altered body": (_with_body(b'{"a":2}'), _BAD_SIGNATURE),
    "no body": (_with_body(b""), _BAD_SIGNATURE),
    "longer body": (_with_body(b'{"a":1} '), _BAD_SIGNATURE),
}


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A broker with a disabled user."""
    async with running_broker(tmp_path, signatureReplayWindowSeconds=60, **AUTHENTICATION) as broker:
        disabled = UserInfo(username="anna", password=_ANNA.secret_key, user_status="disable")
        broker.services.access.tables.users.create(disabled)
        yield broker


@each_row("serialization", list(Serialization))
@each_row("forgery", _FORGERIES)
async def test_no_forged_request_reaches_a_processor(
    secured: RunningBroker, forgery: str, serialization: Serialization
) -> None:
    forge, remark = _FORGERIES[forgery]
    listeners = secured.broker.listeners
    for dispatcher, port in (
        (listeners.main.dispatcher, secured.port),
        (listeners.fast.dispatcher, secured.fast_port),
    ):
        async with raw_client(port) as client:
            await _check(client, dispatcher, forge, remark, serialization)


async def _check(
    client: RawClient, dispatcher: Dispatcher, forge: _Forgery, remark: str, serialization: Serialization
) -> None:
    """Send a forged request, and a one-way one, of every code, and expect that nothing runs."""
    codes = [row.code for row in dispatcher.registrations()]
    assert len(codes) > 60
    before = dispatcher.guard_refusals
    for code in codes:
        for oneway in (False, True):
            request = RemotingCommand.request(
                code, {"topic": "T"}, b'{"a":1}', oneway=oneway, serialization=serialization
            )
            (copy,) = FrameDecoder().feed(encode_frame(request))
            forged = forge(copy)
            if oneway:
                client.send(forged)
                continue
            refused = await client.ask(forged)
            name = RequestCode(code).name
            assert refused.code == ResponseCode.NO_PERMISSION, name
            assert remark in (refused.remark or ""), name
            assert refused.body == b"", name
    last = await client.ask(signed(RemotingCommand.request(9_999), ROOT))
    assert last.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert dispatcher.guard_refusals == before + 2 * len(codes)
    assert not any(row.answered for row in dispatcher.registrations())
    assert not any(tier.statistics.accepted for tier in dispatcher.tiers())
