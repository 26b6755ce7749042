"""The parser of SQL92 expressions, and its error messages."""

from __future__ import annotations

import pytest

from rmq_broker.filtering.sql_parser import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES, parse
from rmq_broker.filtering.sql_tokens import SqlError
from rmq_broker.filtering.sql_tree import Cast, Comparison, Constant, Logic, Negative, Not, Property, Type
from tests.support.rows import each_row

_A, _B = Property("a"), Property("b")


def _int(value: int) -> Constant:
    return Constant(Type.INTEGER, value)


def test_precedence() -> None:
    one, two, three = (Comparison("=", _A, _int(number)) for number in (1, 2, 3))
    assert parse("a = 1 OR a = 2 AND a = 3") == Logic("OR", (one, Logic("AND", (two, three))))
    assert parse("(a = 1 or a = 2) and a = 3") == Logic("AND", (Logic("OR", (one, two)), three))
    assert parse("a = 1 AND a = 2 AND a = 3") == Logic("AND", (one, two, three))
    # NOT applies to the operand right behind it, as in Apache's grammar.
    assert parse("NOT a = TRUE") == Comparison("=", Not(Cast(_A)), Constant(Type.BOOLEAN, True))
    assert parse("a = b > 1") == Comparison("=", _A, Comparison(">", _B, _int(1)))
    assert parse("a > -1") == Comparison(">", _A, Negative(_int(1)))


def test_comments_and_blanks() -> None:
    wanted = parse("a > 5")
    for text in ("/* one */ a /**/ > -- two\n 5", "a>5", "a\t>\f5\r\n", "a > 5 -- to the end", "a > 5 --"):
        assert parse(text) == wanted, text
    for text in ("a > 5 /* never ends", "a > 5 -- x\n)", "a > 5\u00a0", "a /*/ > 5"):
        with pytest.raises(SqlError):
            parse(text)
    # Without an end of the line, two minus signs are two minus signs.
    assert parse("a > --5") == Comparison(">", _A, Negative(Negative(_int(5))))


def test_numbers() -> None:
    def constant(text: str) -> tuple[Type, object]:
        condition = parse(f"a = {text}")
        assert isinstance(condition, Comparison) and isinstance(condition.right, Constant)
        return condition.right.type, condition.right.value

    assert constant("2147483647") == (Type.INTEGER, 2147483647)
    assert constant("2147483648") == constant("2147483648L") == (Type.LONG, 2147483648)
    assert constant("7l") == (Type.INTEGER, 7)
    for text in ("5.0", "5.", "05.0", ".5e1", "50E-1"):
        assert constant(text) == (Type.DOUBLE, 5.0)
    for text in ("0.0", "1e-999", "1e999", "9223372036854775808"):
        with pytest.raises(SqlError, match="character 5"):
            constant(text)


@each_row(
    ("text", "position", "hint"),
    [
        ("a != 5", 3, "not equal is written <>"),
        ("a == 5", 4, "equality is written with one ="),
        ('b = "x"', 5, "single quotes"),
        ("b = 'x", 5, "a closing ' is missing"),
        ("b = 'it''s", 9, "a closing ' is missing"),
        ("a > 'x'", 5, "strings can be compared by = and <>"),
        ("a > b AND NOT a > 5", 17, "NOT applies to the operand right behind it"),
        ("a IN (1)", 7, "a string in single quotes"),
        ("NOT b IN ('x')", 7, "name NOT IN"),
        ("a = NULL", 3, "IS NULL"),
        ("a IS 5", 6, "after IS comes NULL or NOT NULL"),
        ("a BETWEEN 5 AND 1", 11, "from the lower limit"),
        ("a BETWEEN 5, 1", 12, "BETWEEN has two limits"),
        ("a b", 3, "an operator is missing"),
        ("a > 5 AND", 10, "found the end"),
        ("a AND ()", 8, "nothing between the parentheses"),
        ("(a > 5", 7, "parenthesis of character 1 is not closed"),
        ("a || b", 3, "'or' is written OR"),
        ("a && b", 3, "'and' is written AND"),
        ("a LIKE 'x%'", 3, "there is no LIKE"),
        ("UPPER(a) = 'X'", 6, "there are no functions"),
        ("a % 2 = 0", 3, "there is no arithmetic"),
        ("a.b = 1", 2, "names of properties"),
        ("größe > 1", 3, "names of properties"),
        ("a > 0x10", 6, "numbers are decimal"),
        ("'x'", 1, "expected a condition"),
        ("-a", 1, "expected a condition"),
        ("a NOT 5", 7, "NOT is followed by"),
        ("TRUE = 5", 6, "not with a value of another type (integer)"),
        ("", 1, "found the end"),
    ],
)
def test_errors_name_position_and_correction(text: str, position: int, hint: str) -> None:
    with pytest.raises(SqlError) as refusal:
        parse(text)
    assert refusal.value.position == position
    assert f"character {position}: " in str(refusal.value)
    assert hint in str(refusal.value)


def test_error_truncates_a_long_word() -> None:
    with pytest.raises(SqlError) as refusal:
        parse("a " + "x" * 10_000)
    assert len(str(refusal.value)) < 300


def test_lenient_parsing_stops_at_the_first_unknown_part() -> None:
    assert parse("a > 5) AND ;;;", lenient=True) == parse("a > 5")
    # The next part must at least be a valid token.
    with pytest.raises(SqlError):
        parse("a > 5 ; b", lenient=True)


@pytest.mark.parametrize(
    "text",
    [
        "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH,
        "NOT " * (MAX_DEPTH - 1) + "a",
        "a" + " = 1" * MAX_DEPTH,
        " AND ".join(["a = 1"] * (MAX_VALUES // 2)),
        "a IN (" + ", ".join(["'x'"] * 3000) + ")",
        "a = '" + "x" * (MAX_CHARACTERS - 6) + "'",
    ],
    ids=lambda text: text[:12],
)
def test_largest_accepted_expressions(text: str) -> None:
    parse(text)


@each_row(
    ("text", "problem"),
    [
        ("(" * 100_000, "characters at most"),
        ("(" * 2 * MAX_DEPTH, "levels within each other"),
        ("-" * 2 * MAX_DEPTH + "a > 5", "levels within each other"),
        ("NOT " * 2 * MAX_DEPTH + "a", "levels within each other"),
        ("a" + " = 1" * 2 * MAX_DEPTH, "comparisons of comparisons"),
        ("a" + " IS NULL" * 2 * MAX_DEPTH, "comparisons of comparisons"),
        ("(" * 60 + "a" + (" = 1" * 10 + ")") * 60, "comparisons of comparisons"),
        (" AND ".join(["a = 1"] * MAX_VALUES), "names and values"),
        ("a = '" + "x" * MAX_CHARACTERS + "'", "characters at most"),
    ],
    ids=lambda text: text[:12],
)
@each_row("lenient", [False, True])
def test_expressions_beyond_the_limits_are_refused(text: str, problem: str, lenient: bool) -> None:
    with pytest.raises(SqlError, match=problem):
        parse(text, lenient=lenient)
