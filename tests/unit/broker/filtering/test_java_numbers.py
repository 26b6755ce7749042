"""Numbers in texts, parsed as Java does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rmq_broker.filtering.java_numbers import (
    NotANumber,
    compare_doubles,
    read_double,
    read_int32,
    read_int64,
)
from tests.support.rows import each_row

_INTEGERS = {
    "5": 5,
    "-5": -5,
    "+5": 5,
    "007": 7,
    "0" * 5000 + "7": 7,
    "-0": 0,
    "2147483647": 2147483647,
    "-2147483648": -2147483648,
    "٥": 5,
    "１２": 12,
}


@pytest.mark.parametrize("read", [read_int32, read_int64])
def test_integers(read: Callable[[bytes], int]) -> None:
    for text, value in _INTEGERS.items():
        assert read(text.encode()) == value
    for text in ("", "+", "-", "+-5", " 5", "5 ", "5.0", "1e1", "5L", "1_0", "0x5", "x", "𝟓", "9" * 5000):
        with pytest.raises(NotANumber):
            read(text.encode())
    with pytest.raises(NotANumber):
        read(b"\xff5")


def test_sizes() -> None:
    assert read_int64(b"2147483648") == 2**31
    assert read_int64(b"-9223372036854775808") == -(2**63)
    for text in (b"2147483648", b"-2147483649"):
        with pytest.raises(NotANumber):
            read_int32(text)
    for text in (b"9223372036854775808", b"-9223372036854775809"):
        with pytest.raises(NotANumber):
            read_int64(text)


@each_row(
    ("text", "value"),
    [
        ("5", 5.0),
        (" 5.0\t\n", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("+1e2", 100.0),
        ("-1E-2", -0.01),
        ("5f", 5.0),
        ("5.5D", 5.5),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("1e-400", 0.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("-0X.8P1d", -1.0),
        ("0x1p99999", math.inf),
        ("9" * 400, math.inf),
    ],
)
def test_doubles(text: str, value: float) -> None:
    assert read_double(text.encode()) == value


def test_invalid_doubles_are_refused() -> None:
    assert math.isnan(read_double(b"NaN")) and math.isnan(read_double(b"-NaN"))
    for text in (
        "",
        " ",
        "x",
        "1_0",
        "inf",
        "nan",
        "infinity",
        "0x1",
        "1e",
        ".",
        "5L",
        "٥",
        "\u00a05",
        "5 5",
    ):
        with pytest.raises(NotANumber):
            read_double(text.encode())


def test_the_order_of_doubles() -> None:
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for left, one in enumerate(ordered):
        for right, other in enumerate(ordered):
            assert compare_doubles(one, other) == (left > right) - (left < right)
