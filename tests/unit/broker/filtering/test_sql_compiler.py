"""Expressions and their results, as produced by Apache's own classes."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_broker.filtering.property_bytes import property_finder
from rmq_broker.filtering.sql_compiler import EVALUATION_ERRORS, Compiler, Test
from rmq_broker.filtering.sql_parser import parse
from rmq_broker.filtering.sql_tokens import SqlError
from rmq_broker.filtering.sql_tree import Condition
from tests.support.golden import json_file
from tests.support.rows import each_row

Properties = dict[str, bytes]

VECTORS = json_file("hashes.json")["sql92"]
RANDOM = json_file("sql92.json")
_LETTERS = {True: "T", False: "F", None: "N"}


def _utf8(context: dict[str, str]) -> Properties:
    return {name: value.encode() for name, value in context.items()}


def _result(test: Test[Any], message: object) -> str:
    try:
        return _LETTERS[test(message)]
    except EVALUATION_ERRORS:
        return "E"


def _of_map(condition: Condition) -> Test[Properties]:
    compiler: Compiler[Properties] = Compiler(lambda name: lambda properties: properties.get(name))
    return compiler.compile(condition)


def raw_properties(context: dict[str, str]) -> bytes:
    return b"".join(name.encode() + b"\x01" + value.encode() + b"\x02" for name, value in context.items())


def test_there_are_206_vectors() -> None:
    assert len(VECTORS["cases"]) == 206


@each_row("case", VECTORS["cases"], ids=lambda case: repr(case["expression"]))
def test_every_vector(case: dict[str, Any]) -> None:
    if not case["compiles"]:
        for lenient in (True, False):
            with pytest.raises(SqlError):
                parse(case["expression"], lenient=lenient)
        return
    test = _of_map(parse(case["expression"], lenient=True))
    for row in case["results"]:
        expected = "E" if isinstance(row["result"], dict) else _LETTERS[row["result"]]
        context = VECTORS["contexts"][row["context"]]
        assert _result(test, _utf8(context)) == expected, context
        assert (expected == "T") is row["message_matches"]


def test_a_thousand_random_expressions() -> None:
    contexts = [_utf8(context) for context in RANDOM["contexts"]]
    refused = 0
    for expression, expected in RANDOM["cases"]:
        if expected is None:
            refused += 1
            with pytest.raises(SqlError):
                parse(expression, lenient=True)
        else:
            test = _of_map(parse(expression, lenient=True))
            assert "".join([_result(test, context) for context in contexts]) == expected, expression
    assert (refused, len(RANDOM["cases"])) == (300, 1000)


def test_raw_properties_give_the_same_results() -> None:
    """An empty value, which a stored message cannot have, counts as missing."""
    contexts = [*VECTORS["contexts"], *RANDOM["contexts"]]
    maps = [{name: value for name, value in _utf8(context).items() if value} for context in contexts]
    raws = [raw_properties(context) for context in contexts]
    for expression in [case["expression"] for case in VECTORS["cases"] if case["compiles"]]:
        condition = parse(expression, lenient=True)
        of_raw, of_map = Compiler(property_finder).compile(condition), _of_map(condition)
        for raw, properties in zip(raws, maps, strict=True):
            assert _result(of_raw, raw) == _result(of_map, properties), (expression, properties)


# Expressions that Apache's parser reads only in part, and the position where it stops.
_HALF_READ = {
    "a > 0x05": 6,
    "a > 010": 6,
    "b LIKE 'o%'": 3,
    "b LIKE '%'": 3,
    "NOW() > 0": 4,
    "a > 5)": 6,
    "a 5": 3,
    "a + 1 > 5": 3,
    "a - 1 = 4": 3,
}


@each_row("case", VECTORS["cases"], ids=lambda case: repr(case["expression"]))
def test_partly_parsed_expressions_are_refused(case: dict[str, Any]) -> None:
    expression = case["expression"]
    if expression in _HALF_READ:
        assert case["compiles"]
        with pytest.raises(SqlError, match="does not belong there") as refusal:
            parse(expression)
        assert refusal.value.position == _HALF_READ[expression]
    elif case["compiles"]:
        assert parse(expression) == parse(expression, lenient=True)
