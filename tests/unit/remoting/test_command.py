"""RemotingCommand as a value."""

from __future__ import annotations

import pytest

from rmq_remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    VERSION_5_3_3,
    LanguageCode,
    RequestCode,
    ResponseCode,
)
from rmq_remoting.command import RemotingCommand, Serialization, next_opaque
from rmq_remoting.errors import CommandError, HeaderDecodeError, shown
from tests.support.frames import ext_field
from tests.support.golden import json_file


def test_request() -> None:
    request = RemotingCommand.request(
        RequestCode.PULL_MESSAGE, {"a": "b"}, b"body", serialization=Serialization.BINARY
    )

    assert type(request.code) is int
    assert (request.code, request.flag, request.ext_fields, request.body) == (11, 0, {"a": "b"}, b"body")
    assert (request.language, request.version) == (LanguageCode.PYTHON, VERSION_5_3_3)
    assert not request.is_response
    assert not request.is_oneway
    assert request.remark is None


def test_oneway_request() -> None:
    request = RemotingCommand.request(10, oneway=True)
    assert request.is_oneway
    assert request.flag == FLAG_ONEWAY


@pytest.mark.parametrize("serialization", Serialization)
def test_response_belongs_to_its_request(serialization: Serialization) -> None:
    request = RemotingCommand.request(10, {"x": "y"}, b"body", serialization=serialization)

    response = request.response(ResponseCode.SYSTEM_BUSY, "busy", {"a": "b"}, b"answer")

    assert type(response.code) is int
    assert response.is_response
    assert response.flag == FLAG_RESPONSE
    assert response.opaque == request.opaque
    assert response.serialization is serialization
    assert (response.code, response.remark, response.ext_fields, response.body) == (
        2,
        "busy",
        {"a": "b"},
        b"answer",
    )


def test_response_to_a_oneway_request_is_a_plain_response() -> None:
    assert RemotingCommand.request(10, oneway=True).response(0).flag == FLAG_RESPONSE


def test_request_numbers_differ_and_stay_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [next_opaque() for _ in range(1000)]
    assert len(set(numbers)) == 1000

    monkeypatch.setattr("rmq_remoting.command._opaque_counter", iter([2**31 - 1, 2**31, 2**31 + 1]))
    assert [next_opaque() for _ in range(3)] == [2**31 - 1, 0, 1]


def test_ext_fields_are_decoded_once() -> None:
    command = RemotingCommand(10, 0, 1, raw_ext=ext_field(b"a", b"b"), serialization=Serialization.BINARY)

    assert command.has_ext_fields
    assert "ext=?" in repr(command)
    assert command.ext_fields is command.ext_fields
    assert command.ext_fields == {"a": "b"}
    assert "ext={'a': 'b'}" in repr(command)


def test_command_without_fields_has_an_empty_map() -> None:
    command = RemotingCommand(10, 0, 1)
    assert not command.has_ext_fields
    assert command.ext_fields == {}


def test_a_command_with_damaged_fields_has_a_repr() -> None:
    command = RemotingCommand(10, 1, 1, raw_ext=b"\xff", serialization=Serialization.BINARY)
    assert repr(command).startswith("<response code=10 opaque=1 BINARY remark=None ext=?")
    with pytest.raises(HeaderDecodeError):
        _ = command.ext_fields


@pytest.mark.parametrize(
    ("names", "file"),
    [(RequestCode, "request_codes"), (ResponseCode, "response_codes"), (LanguageCode, "language_codes")],
)
def test_numbers_are_those_of_apache(
    names: type[RequestCode | ResponseCode | LanguageCode], file: str
) -> None:
    expected = json_file(f"protocol/{file}.json")
    ours = {member.name: int(member) for member in names}
    assert {name: expected.get(name) for name in ours} == ours


def test_a_refusal_shows_the_name_of_its_code() -> None:
    assert str(CommandError(2, "try later")) == "2 (SYSTEM_BUSY): try later"
    assert str(CommandError(31_999, "what")) == "31999 (?): what"


def test_values_from_outside_are_truncated() -> None:
    assert shown("abc") == "'abc'"
    assert shown(5) == "5"
    assert shown(None) == "None"
    assert len(shown("x" * 10_000_000)) <= 101
    assert len(shown(["x" * 1000])) <= 101
    assert "\n" not in shown("a\nb")
