"""Commands on their way through the proxy."""

from __future__ import annotations

import pytest

from rmq_client.errors import BrokerError, ClientError, TopicNotFound, UnreachableError, broker_error
from rmq_proxy.remoting.commands import answer_to, broker_name_of, forwarded, refusal_for
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import (
    CommandError,
    ConnectError,
    ConnectionClosed,
    RemotingError,
    RequestTimeout,
    TooManyRequests,
)
from rmq_remoting.framing import FrameDecoder, encode_frame


def _received(command: RemotingCommand) -> RemotingCommand:
    """Return a command as its receiver has it."""
    (decoded,) = FrameDecoder().feed(encode_frame(command))
    return decoded


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.SEND_MESSAGE, "bname"),
        (RequestCode.SEND_MESSAGE_V2, "n"),
        (RequestCode.SEND_BATCH_MESSAGE, "n"),
        (RequestCode.SEND_REPLY_MESSAGE_V2, "n"),
        (RequestCode.SEND_REPLY_MESSAGE, "bname"),
        (RequestCode.PULL_MESSAGE, "bname"),
    ],
)
def test_the_broker_is_named_by_a_field(code: RequestCode, field: str) -> None:
    other = "bname" if field == "n" else "n"
    fields = {field: "broker-a", other: "wrong"}
    assert broker_name_of(code, RemotingCommand.request(code, fields)) == "broker-a"
    for fields in ({other: "wrong"}, {field: ""}, {}):
        with pytest.raises(CommandError, match="doesn't have field bname") as refused:
            broker_name_of(code, RemotingCommand.request(code, fields))
        assert refused.value.code == ResponseCode.VERSION_NOT_SUPPORTED


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("oneway", [True, False])
def test_a_forwarded_request_differs_by_its_number_alone(serialization: Serialization, oneway: bool) -> None:
    sent = RemotingCommand(
        10,
        2 if oneway else 0,
        77,
        LanguageCode.JAVA,
        479,
        "remark",
        {"a": "1", "ä": "ö"},
        None,
        b"body",
        serialization,
    )
    received = _received(sent)
    again = _received(forwarded(10, received))
    assert again.opaque != received.opaque
    assert again.is_oneway is oneway
    for name in ("code", "language", "version", "remark", "ext_fields", "body", "serialization"):
        assert getattr(again, name) == getattr(sent, name), name


def test_a_code_beyond_16_bits_makes_the_header_json() -> None:
    received = _received(RemotingCommand.request(10, {"a": "1"}, b"b", serialization=Serialization.BINARY))
    again = forwarded(RequestCode.POP_MESSAGE, received)
    assert (again.code, again.serialization) == (RequestCode.POP_MESSAGE, Serialization.JSON)
    assert (again.ext_fields, again.body) == ({"a": "1"}, b"b")


def test_an_answer_has_the_number_of_its_request() -> None:
    request = RemotingCommand.request(10)
    response = _received(RemotingCommand.request(11).response(17, "no topic", {"a": "1"}, b"body"))
    answer = answer_to(request, response)
    assert answer.opaque == request.opaque
    assert answer.is_response
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (
        17,
        "no topic",
        {"a": "1"},
        b"body",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandError(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
        (TopicNotFound("no"), ResponseCode.TOPIC_NOT_EXIST),
        (broker_error(ResponseCode.NO_PERMISSION, "no", "b:1", "x"), ResponseCode.NO_PERMISSION),
        (TooManyRequests("full"), ResponseCode.SYSTEM_BUSY),
        (ConnectError("refused"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (ConnectionClosed("ended"), ResponseCode.SYSTEM_ERROR),
        (RequestTimeout("late"), ResponseCode.SYSTEM_ERROR),
        (UnreachableError("no name server"), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_failures_have_codes_that_clients_know(error: ClientError | RemotingError, code: int) -> None:
    refusal = refusal_for(error)
    assert refusal.code == code
    assert refusal.remark
    if isinstance(error, BrokerError):
        assert refusal.remark == "no"
