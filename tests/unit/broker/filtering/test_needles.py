"""Bytes that the properties of a match contain."""

from __future__ import annotations

from rmq_broker.filtering.needles import needles_of
from rmq_broker.filtering.property_bytes import property_finder
from rmq_broker.filtering.sql_compiler import EVALUATION_ERRORS, Compiler
from rmq_broker.filtering.sql_parser import parse
from tests.support.rows import each_row
from tests.unit.broker.filtering.test_sql_compiler import RANDOM, VECTORS, raw_properties


@each_row(
    ("expression", "needles"),
    [
        ("a = 'x'", [b"a\x01x"]),
        ("'é' = a", ["a\x01é".encode()]),
        ("a IN ('x', 'y', 'x')", [b"a\x01x", b"a\x01y"]),
        ("a STARTSWITH 'x'", [b"a\x01x"]),
        ("a > 5 AND b = 'x'", [b"b\x01x"]),
        ("a IN ('x', 'y') AND b = 'z'", [b"b\x01z"]),
        ("a = 'x' OR b = 'y'", [b"a\x01x", b"b\x01y"]),
        ("a = 'x' OR b = 'y' AND c > 5", [b"a\x01x", b"b\x01y"]),
        ("a = 'x' OR b > 5", []),
        ("a = 7", []),  # the text 07 is equal, too
        ("a = b", []),
        ("a <> 'x'", []),
        ("a NOT IN ('x')", []),
        ("NOT (a = 'x')", []),
        ("a NOT STARTSWITH 'x'", []),
        ("a CONTAINS 'x'", []),
        ("a IS NULL", []),
        ("TRUE", []),
        ("a IN ('1', '2', '3', '4', '5', '6', '7', '8')", [b"a\x01%d" % number for number in range(1, 9)]),
        ("a IN ('1', '2', '3', '4', '5', '6', '7', '8', '9')", []),
    ],
)
def test_what_a_match_contains(expression: str, needles: list[bytes]) -> None:
    assert list(needles_of(parse(expression, lenient=True))) == needles


def test_every_match_contains_a_needle() -> None:
    raws = [raw_properties(context) for context in (*VECTORS["contexts"], *RANDOM["contexts"])]
    texts = [case["expression"] for case in VECTORS["cases"] if case["compiles"]]
    texts += [expression for expression, expected in RANDOM["cases"] if expected is not None]
    matches = 0
    for text in texts:
        condition = parse(text, lenient=True)
        needles, test = needles_of(condition), Compiler(property_finder).compile(condition)
        for raw in raws:
            try:
                is_match = test(raw) is True
            except EVALUATION_ERRORS:
                is_match = False
            if needles and is_match:
                matches += 1
                assert any(needle in raw for needle in needles), (text, raw)
    assert matches > 50
