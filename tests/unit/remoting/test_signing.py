"""Signed requests, compared with Apache's signatures, in both serializations."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.ext_fields import encode_binary
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.signing import RequestSigner
from tests.support.rows import each_row

# Frames before and after AclClientRPCHook of Apache RocketMQ 5.3.3 had them.
_SIGNED = Path(__file__).resolve().parents[2] / "data" / "wire" / "signed.jsonl"
_ROWS = [json.loads(line) for line in _SIGNED.read_text().splitlines()]


def decoded(frame: bytes) -> RemotingCommand:
    (command,) = FrameDecoder().feed(frame)
    return command


def seen(command: RemotingCommand) -> tuple[object, ...]:
    return (
        command.code,
        command.flag,
        command.opaque,
        command.language,
        command.version,
        command.remark,
        command.serialization,
        command.ext_fields,
        command.body,
    )


@each_row("row", _ROWS, ids=lambda row: f"{row['name']}-{row['serialization']}")
def test_signatures_equal_the_java_clients(row: dict[str, Any]) -> None:
    signer = RequestSigner(row["access_key"], row["secret_key"], row["security_token"])
    plain, expected = bytes.fromhex(row["plain"]), bytes.fromhex(row["signed"])
    assert seen(decoded(signer.sign(plain))) == seen(decoded(expected))


def test_the_signature_that_apaches_own_test_expects() -> None:
    assert RequestSigner("user", "12345678").signature({}, b"RocketMQ") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


_NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
_FIELDS = st.dictionaries(_NAMES, st.text(max_size=12), max_size=16)


@pytest.mark.parametrize("serialization", Serialization)
@given(fields=_FIELDS, body=st.binary(max_size=64), oneway=st.booleans(), token=st.none() | st.just("t"))
def test_nothing_else_of_a_request_changes(
    serialization: Serialization, fields: dict[str, str], body: bytes, oneway: bool, token: str | None
) -> None:
    flag = FLAG_ONEWAY if oneway else 0
    plain = RemotingCommand(11, flag, 4711, ext_fields=fields, body=body, serialization=serialization)
    as_sent = decoded(encode_frame(plain))  # an empty value is none in a binary header
    signed = decoded(RequestSigner("user", "secret", token).sign(encode_frame(plain)))
    added = {"AccessKey": "user", **({} if token is None else {"SecurityToken": token})}
    content = {**as_sent.ext_fields, **added}
    text = "".join(content[name] for name in sorted(content) if name != "Signature").encode()
    mac = hmac.new(b"secret", text + body, hashlib.sha1).digest()
    content["Signature"] = base64.b64encode(mac).decode()
    as_sent.ext_fields.clear()
    as_sent.ext_fields.update(content)
    assert seen(signed) == seen(as_sent)


def test_prepared_ext_fields_are_signed() -> None:
    raw = encode_binary({"topic": "orders", "queueId": "3"})
    frame = encode_frame(RemotingCommand(11, 0, 1, raw_ext=raw, serialization=Serialization.BINARY))
    fields = decoded(RequestSigner("user", "secret").sign(frame)).ext_fields
    assert fields.pop("Signature") == RequestSigner("user", "secret").signature(fields, b"")
    assert fields == {"topic": "orders", "queueId": "3", "AccessKey": "user"}


def test_a_binary_field_without_a_value_is_omitted() -> None:
    # Apache's server would look for a signature that has the word "null" in it.
    fields = {"b": "orders", "i": ""}
    frame = encode_frame(RemotingCommand(320, 0, 1, ext_fields=fields, serialization=Serialization.BINARY))
    assert b"\x00\x01i" in frame
    assert b"\x00\x01i" not in RequestSigner("user", "secret").sign(frame)


@pytest.mark.parametrize("serialization", Serialization)
def test_a_response_stays_as_it_is(serialization: Serialization) -> None:
    answer = RemotingCommand(
        0, FLAG_RESPONSE, 1, remark="ok", ext_fields={"a": "b"}, body=b"x", serialization=serialization
    )
    frame = encode_frame(answer)
    assert RequestSigner("user", "secret").sign(frame) is frame


def test_a_code_too_large_for_a_binary_header() -> None:
    request = RemotingCommand.request(200_050, {"a": "b"}, b"pop", serialization=Serialization.BINARY)
    signed = decoded(RequestSigner("user", "secret").sign(encode_frame(request)))
    assert (signed.code, signed.serialization, signed.body) == (200_050, Serialization.JSON, b"pop")
    assert signed.ext_fields.keys() == {"a", "AccessKey", "Signature"}


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_the_body_is_signed(size: int) -> None:
    signer = RequestSigner("user", "secret")

    def signature(body: bytes) -> str:
        return decoded(signer.sign(encode_frame(RemotingCommand(1, 0, 1, body=body)))).ext_fields["Signature"]

    assert signature(b"x" * size) == signature(b"x" * size) != signature(b"x" * size + b"y")
