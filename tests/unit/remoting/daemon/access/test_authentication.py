"""The check of signatures."""

from __future__ import annotations

from typing import cast

import pytest

from rmq_remoting.bodies.access_control import UserInfo
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.access.authentication import Authentication
from rmq_remoting.daemon.access.users import UserTable
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.signing import RequestSigner


class _Peer:
    peer = "10.0.0.1:5000"


_CONNECTION = cast(Connection, _Peer())
_VERSION_4_9_3 = 399


@pytest.fixture
def users() -> UserTable:
    table = UserTable()
    table.create(UserInfo(username="root", password="r", user_type="Super"))
    table.create(UserInfo(username="anna", password="secret"))
    return table


@pytest.fixture
def authentication(users: UserTable) -> Authentication:
    return Authentication(users, frozenset({105}))


def _request(
    user: str = "anna",
    password: str = "secret",
    serialization: Serialization = Serialization.JSON,
    code: int = 310,
) -> RemotingCommand:
    """A signed request, as it arrives."""
    sent = RemotingCommand.request(code, {"b": "orders", "a": "group"}, b"body", serialization=serialization)
    (received,) = FrameDecoder().feed(RequestSigner(user, password).sign(encode_frame(sent)))
    return received


async def _problem(authentication: Authentication, request: RemotingCommand) -> str:
    try:
        authentication.check(_CONNECTION, request)
    except CommandError as refusal:
        assert refusal.code == 16
        return refusal.remark
    return ""


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_known_users_are_admitted(authentication: Authentication, serialization: Serialization) -> None:
    assert await _problem(authentication, _request(serialization=serialization)) == ""
    assert await _problem(authentication, _request("root", "r", serialization)) == ""


async def test_others_are_refused(
    authentication: Authentication, users: UserTable, caplog: pytest.LogCaptureFixture
) -> None:
    unsigned = RemotingCommand.request(310, {"b": "orders"})
    assert "set the client's credentials" in await _problem(authentication, unsigned)
    assert await _problem(authentication, _request("bert")) == "User:bert is not found."
    assert await _problem(authentication, _request(password="wrong")) == "check signature failed."
    users.update(UserInfo(username="anna", user_status="disable"))
    assert await _problem(authentication, _request()) == "User:anna is disabled."
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("authentication failed user='' code=310 peer=10.0.0.1:5000 refused=1 cause=")


@pytest.mark.parametrize(
    "change",
    [
        {"b": "orders2"},
        {"AccessKey": "root"},
        {"further": "field"},
        {"Signature": ""},
        {"Signature": "äöü"},
    ],
)
async def test_altered_requests_are_refused(authentication: Authentication, change: dict[str, str]) -> None:
    request = _request()
    request.ext_fields.update(change)
    assert await _problem(authentication, request) == "check signature failed."


async def test_altered_bodies_are_refused(authentication: Authentication) -> None:
    request = _request()
    request.body = b"Body"
    assert await _problem(authentication, request) == "check signature failed."


async def test_codes_of_the_white_list_need_no_signature(authentication: Authentication) -> None:
    assert await _problem(authentication, RemotingCommand.request(105, {"topic": "orders"})) == ""
    # A name that nobody has proved is removed; a proved one stays.
    claimed = RemotingCommand.request(105, {"topic": "orders", "AccessKey": "root", "Signature": "x"})
    assert authentication.check(_CONNECTION, claimed) is None
    assert "AccessKey" not in claimed.ext_fields
    user = authentication.check(_CONNECTION, _request(code=105))
    assert user is not None and user.name == "anna"


async def test_a_field_that_old_clients_do_not_sign(authentication: Authentication) -> None:
    request = _request()
    request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    assert await _problem(authentication, request) == "check signature failed."
    request.version = _VERSION_4_9_3
    assert await _problem(authentication, request) == ""


async def test_changes_of_users_take_effect_at_once(authentication: Authentication, users: UserTable) -> None:
    assert await _problem(authentication, _request()) == ""
    users.update(UserInfo(username="anna", password="other"))
    assert await _problem(authentication, _request()) == "check signature failed."
    assert await _problem(authentication, _request(password="other")) == ""
    users.delete("anna")
    assert await _problem(authentication, _request(password="other")) == "User:anna is not found."
