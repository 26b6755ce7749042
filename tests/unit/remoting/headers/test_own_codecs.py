"""Headers of POP and of ends of transactions, with codecs of their own, in both directions."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rmq_remoting.errors import HeaderError
from rmq_remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader
from tests.support.golden import json_file
from tests.support.rows import each_row

CLASSES: Final[dict[str, Any]] = {
    each.__name__: each
    for each in (
        AckMessageRequestHeader,
        ChangeInvisibleTimeRequestHeader,
        ChangeInvisibleTimeResponseHeader,
        EndTransactionRequestHeader,
        PopMessageRequestHeader,
        PopMessageResponseHeader,
    )
}
# What a request may carry and nobody here asks for (RpcRequestHeader, TopicRequestHeader).
IGNORED: Final = frozenset({"ns", "nsd", "oway", "lo"})
LIMITS: Final = {
    "int": (-(2**31), 2**31 - 1),
    "Integer": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
    "Long": (-(2**63), 2**63 - 1),
}


def _golden(name: str) -> list[dict[str, Any]]:
    fields = json_file("protocol/headers.json")[name]["fields"]
    return [field for field in fields if field["name"] not in IGNORED]


def _sample(field: dict[str, Any]) -> str:
    return {"String": "text", "Boolean": "true"}.get(field["type"], "7")


def _is_needed(field: dict[str, Any]) -> bool:
    return field["required"] and "default" not in field


INTEGERS: Final = [
    (name, field["name"], field["type"])
    for name in CLASSES
    for field in _golden(name)
    if field["type"] in LIMITS
]


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_of_apaches_is_decoded_and_encoded(name: str) -> None:
    fields = {field["name"]: _sample(field) for field in _golden(name)}
    header = CLASSES[name].decode({**fields, "unknown": "x", "ns": "n"})
    assert header.encode() == fields
    assert CLASSES[name].decode(header.encode()) == header


@pytest.mark.parametrize("name", CLASSES)
def test_optional_fields_have_apaches_defaults(name: str) -> None:
    needed = {field["name"]: _sample(field) for field in _golden(name) if _is_needed(field)}
    encoded = CLASSES[name].decode(needed).encode()
    defaults = {field["name"]: field["default"] for field in _golden(name) if "default" in field}
    expected = {key: str(value).lower() for key, value in defaults.items() if value is not None}
    assert encoded == needed | expected


@pytest.mark.parametrize("name", CLASSES)
def test_a_missing_field_is_named(name: str) -> None:
    fields = {field["name"]: _sample(field) for field in _golden(name)}
    for field in _golden(name):
        if _is_needed(field):
            rest = {key: value for key, value in fields.items() if key != field["name"]}
            with pytest.raises(HeaderError, match=f"^{name}: required field {field['name']} is missing$"):
                CLASSES[name].decode(rest)


@each_row(("name", "field", "kind"), INTEGERS)
def test_numbers_must_be_integers(name: str, field: str, kind: str) -> None:
    fields = {each["name"]: _sample(each) for each in _golden(name)}
    lowest, highest = LIMITS[kind]
    for value in (lowest, highest):
        assert CLASSES[name].decode({**fields, field: str(value)}).encode()[field] == str(value)
    for bad in ("", "x", "1.5", "9" * 5000):
        with pytest.raises(HeaderError, match=f"^{name}: {field} must be an integer from") as caught:
            CLASSES[name].decode({**fields, field: bad})
        assert len(str(caught.value)) < 300


@each_row(("name", "field", "kind"), [row for row in INTEGERS if "Request" in row[0]])
def test_numbers_of_requests_must_fit_java_types(name: str, field: str, kind: str) -> None:
    fields = {each["name"]: _sample(each) for each in _golden(name)}
    lowest, highest = LIMITS[kind]
    for bad in (lowest - 1, highest + 1):
        with pytest.raises(HeaderError, match=f"^{name}: {field} must be an integer from"):
            CLASSES[name].decode({**fields, field: str(bad)})


@pytest.mark.parametrize(("text", "order"), [("true", True), ("TRUE", True), ("false", False), ("x", False)])
def test_booleans_are_decoded_as_in_java(text: str, order: bool) -> None:
    fields = {"consumerGroup": "g", "topic": "t", "order": text}
    assert PopMessageRequestHeader.decode(fields).order is order
