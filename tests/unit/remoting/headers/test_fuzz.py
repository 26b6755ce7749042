"""Any fields give a typed header or a HeaderError."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_remoting import headers
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderError, ProtocolError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.base import Header
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from tests.support.examples import examples
from tests.support.frames import decode_one, golden_frames

for module in pkgutil.iter_modules(headers.__path__):
    importlib.import_module(f"{headers.__name__}.{module.name}")


def all_headers(parent: type[Header] = Header) -> list[type[Header]]:
    found = []
    for child in parent.__subclasses__():
        if child.__module__.startswith(headers.__name__):
            found += [child, *all_headers(child)]
    return found


DECODERS: list[Any] = [
    *sorted({header for header in all_headers()}, key=lambda header: header.__name__),
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageResponseHeader,
]
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "true", "2147483648", str(2**63), "9" * 5000, "1.5", "NaN", "x", "\x00"]
    ),
    st.integers().map(str),
    st.text(max_size=10),
)


@st.composite
def fields_for(draw: st.DrawFn, decoder: Any) -> dict[str, str]:
    """Fields with the names that the header knows, and values of every kind."""
    if issubclass(decoder, Header):
        names = [field.alias or name for name, field in decoder.model_fields.items()]
    else:
        names = sorted({name for golden in golden_frames() for name in golden.decoded["extFields"] or {}})
    return draw(st.dictionaries(st.sampled_from([*names, "other"]), VALUES, max_size=len(names) + 1))


@settings(max_examples=examples(600))
@given(st.data())
def test_any_fields(data: st.DataObject) -> None:
    decoder = data.draw(st.sampled_from(DECODERS))
    fields = data.draw(fields_for(decoder))
    try:
        header = decoder.decode(fields)
    except HeaderError as error:
        assert str(error).startswith(decoder.__name__)
        assert len(str(error)) < 10_000
        # The refusal can be sent.
        encode_frame(RemotingCommand.request(0).response(1, str(error)))
        return
    if hasattr(header, "encode"):
        assert decoder.decode(header.encode()) == header


def test_all_headers_are_here() -> None:
    assert len(DECODERS) > 50


SENDS = [
    golden.frame
    for golden in golden_frames()
    if golden.decoded["code"] in (10, 310, 320) and golden.is_binary
]


@settings(max_examples=examples(400))
@given(st.sampled_from(SENDS), st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=5)), max_size=3))
def test_any_send(frame: bytes, changes: list[tuple[int, bytes]]) -> None:
    decoder = SendHeaderDecoder()
    command = decode_one(frame)
    assert command.raw_ext is not None
    with suppress(HeaderError):  # some of Apache's frames of these codes are responses
        decoder.decode(decode_one(frame))
    raw = bytearray(command.raw_ext)
    for at, noise in changes:
        raw[at : at + len(noise)] = noise
    damaged = RemotingCommand(command.code, 0, 1, raw_ext=bytes(raw), serialization=Serialization.BINARY)
    try:
        header = decoder.decode(damaged)
    except (HeaderError, ProtocolError):
        return
    header.properties.decode()
    assert -(2**63) <= header.born_timestamp_ms < 2**63
