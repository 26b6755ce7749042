"""The time of a signed send, which nobody can change afterwards."""

from __future__ import annotations

import pytest

from rmq_broker.access.signed_times import TIMED_CODES, signed_time_ms
from rmq_client import Credentials
from rmq_remoting.bodies.access_control import UserInfo
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.daemon.access.authentication import Authentication
from rmq_remoting.daemon.access.users import UserTable
from rmq_remoting.errors import CommandError
from tests.support.broker_requests import BORN_MS, send
from tests.support.peers import Peer
from tests.support.signed_requests import signed

_ANNA = Credentials("anna", "annas-secret")
_KEY = {"UNIQ_KEY": "7F0000010001"}


def _refused(request: RemotingCommand) -> str:
    with pytest.raises(CommandError) as refusal:
        signed_time_ms(request)
    assert refusal.value.code == 16
    return refusal.value.remark


@pytest.mark.parametrize("code", sorted(TIMED_CODES))
@pytest.mark.parametrize("serialization", list(Serialization))
def test_the_time_of_each_kind_of_send(code: int, serialization: Serialization) -> None:
    long_names = {Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE}
    request = send("T", properties=_KEY, code=Code.SEND_MESSAGE if code in long_names else code)
    request.code, request.serialization = code, serialization
    assert signed_time_ms(signed(request, _ANNA)) == BORN_MS


@pytest.mark.parametrize("change", [{"g": ""}, {"g": "12"}, {"g": "1700000000123x"}, {"g": " 700000000123"}])
def test_texts_that_are_no_time(change: dict[str, str]) -> None:
    request = send("T", properties=_KEY)
    request.ext_fields.update(change)
    assert "signatureReplayWindowSeconds" in _refused(request)


def test_a_send_without_a_time() -> None:
    for code, name in ((Code.SEND_MESSAGE_V2, "g"), (Code.SEND_MESSAGE, "bornTimestamp")):
        request = send("T", code=code)
        del request.ext_fields[name]
        _refused(request)


def _admits(request: RemotingCommand) -> bool:
    """Whether the signature of a request is valid."""
    users = UserTable()
    users.create(UserInfo(username=_ANNA.access_key, password=_ANNA.secret_key))
    try:
        Authentication(users, frozenset()).check(Peer().connection, request)
    except CommandError:
        return False
    return True


def _relabelled(recorded: RemotingCommand, **fields: str) -> RemotingCommand:
    """The values of a recorded request under other names, or cut at other places."""
    altered = {**recorded.ext_fields, **fields}
    return RemotingCommand.request(recorded.code, altered, recorded.body)


async def test_a_number_of_the_properties_cannot_be_called_the_time() -> None:
    """The signature stays valid, since it covers the values without names and borders."""
    later = str(BORN_MS + 3_600_000)
    recorded = signed(send("T", properties=f"DUE\x01{later}0\x02".encode()), _ANNA)
    fields = recorded.ext_fields
    # A field that no broker reads holds the left-over digits.
    rest = f"{fields['g']}{fields['h']}DUE\x01"
    forged = _relabelled(recorded, fz=rest, g=later, h="0", i="\x02")
    assert _admits(forged)
    _refused(forged)


async def test_the_default_topic_cannot_hold_what_is_left_over() -> None:
    later = str(BORN_MS + 3_600_000)
    recorded = signed(send("T", properties=f"DUE\x01123{later}0\x02".encode()), _ANNA)
    fields = recorded.ext_fields
    rest = "".join(fields[name] for name in "cdefgh") + "DUE\x01"
    forged = _relabelled(recorded, c=rest, d="1", e="2", f="3", g=later, h="0", i="\x02")
    assert _admits(forged)
    _refused(forged)


@pytest.mark.parametrize("name", ["SecurityToken", "a", "bname"])
async def test_long_names_do_not_help_either(name: str) -> None:
    """With long names the time stands close to the beginning; a field before it could hold the rest."""
    later = str(BORN_MS + 3_600_000)
    recorded = signed(send("T", properties=f"DUE\x01{later}x\x02".encode()), _ANNA)
    fields = recorded.ext_fields
    before = "".join(fields[each] for each in "abcdefgh") + "DUE\x01"
    after = "x\x02" + "".join(fields[each] for each in sorted(fields) if each > "i")
    forged = RemotingCommand.request(
        Code.SEND_MESSAGE,
        {
            "AccessKey": fields["AccessKey"],
            name: before,
            "bornTimestamp": later,
            "defaultTopic": after,
            "Signature": fields["Signature"],
        },
        recorded.body,
    )
    assert _admits(forged)
    _refused(forged)
