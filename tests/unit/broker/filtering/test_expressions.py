"""Compiled expressions and their cache."""

from __future__ import annotations

import pytest

from rmq_broker.clients.subscription import ExpressionError
from rmq_broker.filtering.expressions import Expressions
from tests.support.broker_settings import broker_settings


def test_only_true_conditions_match() -> None:
    expression = Expressions(broker_settings()).compile("SQL92", "a > 5 AND b = 'x'")
    assert expression.names == {"a", "b"} and expression.tests == 2
    assert expression.matches(b"a\x017\x02b\x01x\x02")
    for raw in (b"", b"a\x017\x02", b"a\x015\x02b\x01x\x02", b"a\x01seven\x02b\x01x\x02", b"\x01\x02\xff"):
        assert not expression.matches(raw)
    # A condition that cannot be evaluated does not match, whatever the other operand is.
    either = Expressions(broker_settings()).compile("SQL92", "a > 5 OR b = 'x'")
    assert either.matches(b"b\x01x\x02")
    assert not either.matches(b"a\x01seven\x02b\x01x\x02")


def test_filter_lenient_applies_at_once() -> None:
    settings = broker_settings()
    expressions = Expressions(settings)
    with pytest.raises(ExpressionError, match="character 6"):
        expressions.compile("SQL92", "a > 5)")
    settings.filter_lenient = True
    assert expressions.compile("SQL92", "a > 5)").matches(b"a\x017\x02")
    settings.filter_lenient = False
    with pytest.raises(ExpressionError):
        expressions.compile("SQL92", "a > 5)")


def test_compiled_expressions_are_cached_and_evicted() -> None:
    expressions = Expressions(broker_settings())
    first = expressions.compile("SQL92", "a > 5")
    assert expressions.compile("SQL92", "a > 5") is first
    for number in range(40):
        expressions.compile("SQL92", f"a = '{number:10000}'")
        if number < 30:
            assert expressions.compile("SQL92", "a > 5") is first
    for number in range(40):
        expressions.compile("SQL92", f"a = '{number:10000}'")
    assert expressions.compile("SQL92", "a > 5") is not first


def test_unknown_expression_types_are_refused() -> None:
    with pytest.raises(ExpressionError, match="type sql92 are not known here: there are TAG and SQL92"):
        Expressions(broker_settings()).compile("sql92", "a > 5")
