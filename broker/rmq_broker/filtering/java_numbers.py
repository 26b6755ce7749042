"""Parse numbers as Java does: Integer.valueOf, Long.valueOf, Double.valueOf."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import copysign
from typing import Final

_ALL_BLANKS: Final = bytes(range(0x21))
_INTEGER: Final = re.compile(r"([+-]?)(\d+)")
_PLAIN_DOUBLE: Final = re.compile(rb"[+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?")
_DOUBLE: Final = re.compile(
    rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<suffix>[fFdD]?)", re.ASCII
)
_HEX_DOUBLE: Final = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+(?P<suffix>[fFdD]?)"
)
_NAMED: Final = {
    sign + name: float(sign + name.lower()) for sign in ("", "+", "-") for name in ("NaN", "Infinity")
}


class NotANumber(ValueError):
    """A text that is not a number of the requested type."""


def _integer_reader(bits: int) -> Callable[[bytes], int]:
    highest = 2 ** (bits - 1) - 1
    most_digits = len(str(highest))

    def read(text: bytes) -> int:
        """Return an integer of the given number of bits. Raises NotANumber."""
        if text.isdigit() and len(text) <= most_digits:
            value = int(text)
        else:
            value = _read_odd_integer(text, most_digits)
        if -highest - 1 <= value <= highest:
            return value
        raise NotANumber(text)

    return read


def _read_odd_integer(text: bytes, most_digits: int) -> int:
    """Parse an integer with a sign, leading zeros, or digits of another script."""
    match = _INTEGER.fullmatch(text.decode("utf-8", "replace"))
    # Java examines single UTF-16 units: a digit outside the basic plane is not a digit to it.
    if match is None or max(match[2]) > "\uffff":
        raise NotANumber(text)
    digits = "".join([str(int(digit)) for digit in match[2]]).lstrip("0") or "0"
    if len(digits) > most_digits:
        raise NotANumber(text)
    return int(match[1] + digits)


read_int32 = _integer_reader(32)
read_int64 = _integer_reader(64)


def read_double(text: bytes) -> float:
    """Return a floating point number, with optional blanks, exponent and suffix. Raises NotANumber."""
    if _PLAIN_DOUBLE.fullmatch(text):
        return float(text)
    text = text.strip(_ALL_BLANKS)
    match = _DOUBLE.fullmatch(text)
    if match is not None:
        return float(text[: match.start("suffix")])
    match = _HEX_DOUBLE.fullmatch(text)
    if match is not None:
        return _from_hex(text[: match.start("suffix")].decode())
    named = _NAMED.get(text.decode("utf-8", "replace"))
    if named is None:
        raise NotANumber(text)
    return named


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return copysign(float("inf"), -1.0 if text.startswith("-") else 1.0)


def compare_doubles(left: float, right: float) -> int:
    """Compare two numbers: negative, 0 or positive. -0.0 is below 0.0, NaN above all (Double.compareTo)."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank = (left != left, copysign(1.0, left) if left == 0 else 0.0)
    right_rank = (right != right, copysign(1.0, right) if right == 0 else 0.0)
    return (left_rank > right_rank) - (left_rank < right_rank)
