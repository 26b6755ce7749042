"""Parser of SQL92 filter expressions (Apache RocketMQ 5.3.3, SelectorParser and ComparisonExpression)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .sql_tokens import Kind, SqlError, Token, Tokens
from .sql_tree import (
    NUMBERS,
    Cast,
    Comparison,
    Condition,
    Constant,
    Logic,
    Membership,
    Negative,
    Node,
    Not,
    Property,
    TextTest,
    Type,
)

# Bounds that Apache's broker lacks: the event loop evaluates an expression for each message.
MAX_CHARACTERS: Final = 16 * 1024
MAX_VALUES: Final = 1000
# Nesting of parentheses, signs and comparisons.
MAX_DEPTH: Final = 64

_TEXT_TESTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_ORDERS: Final = (">", ">=", "<", "<=")
_LARGEST_INTEGER: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
_NULL: Final = Constant(Type.NULL, None)
_CONSTANTS: Final = {
    "TRUE": Constant(Type.BOOLEAN, True),
    "FALSE": Constant(Type.BOOLEAN, False),
    "NULL": _NULL,
}


def parse(text: str, *, lenient: bool = False) -> Condition:
    """Parse an expression into a condition. Raises SqlError.

    Apache's parser ignores everything behind the part that it understands: it takes `a > 5)` for `a > 5` and
    `a LIKE 'x'` for `a`. `lenient` does the same; otherwise the rest is an error.
    """
    if len(text) > MAX_CHARACTERS:
        raise SqlError(MAX_CHARACTERS + 1, f"an expression has {MAX_CHARACTERS} characters at most")
    tokens = Tokens(text)
    condition = _Parser(tokens).whole()
    if not lenient and not tokens.only_comment_left():
        raise _trailing(tokens)
    return condition


class _Parser:
    """One method for each level of precedence, from OR down to a single value."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._values = 0
        self._depth = 0  # nesting of the part that is being parsed
        self._height = 0  # of the last parsed part: comparisons may follow one another without parentheses

    def whole(self) -> Condition:
        position = self._tokens.peek().position
        return _as_condition(self._or(), position)

    def _or(self) -> Node:
        return self._logic("OR", self._and)

    def _and(self) -> Node:
        return self._logic("AND", self._equality)

    def _logic(self, word: str, operand: Callable[[], Node]) -> Node:
        position = self._tokens.peek().position
        left = operand()
        if not self._tokens.peek().is_word(word):
            return left
        conditions = [_as_condition(left, position)]
        height = self._height
        while self._tokens.peek().is_word(word):
            self._tokens.take()
            position = self._tokens.peek().position
            conditions.append(_as_condition(operand(), position))
            height = max(height, self._height)
        self._grow(self._tokens.peek(), height)
        return Logic(word, tuple(conditions))

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            token, height = self._tokens.peek(), self._height
            if token.is_sign("=", "<>"):
                self._tokens.take()
                right = self._comparison()
                _check_equality(token, left, right)
                left = Comparison("=", left, right)
                if token.text == "<>":
                    left = Not(left)
            elif token.is_word("IS"):
                self._tokens.take()
                negated = self._skip_word("NOT")
                self._expect_word("NULL", "after IS comes NULL or NOT NULL")
                left = Comparison("=", left, _NULL)
                if negated:
                    left = Not(left)
            else:
                return left
            self._grow(token, height)

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token, height = self._tokens.peek(), self._height
            if token.is_sign(*_ORDERS):
                self._tokens.take()
                _check_order(token, left)
                position = self._tokens.peek().position
                right = self._unary()
                _check_order(token, right, position)
                left = Comparison(token.text, left, right)
            elif token.is_word("NOT", "BETWEEN", "IN", *_TEXT_TESTS):
                negated = self._skip_word("NOT")
                left = self._test(left, negated)
            else:
                return left
            self._grow(token, height)

    def _test(self, left: Node, negated: bool) -> Condition:
        """BETWEEN, IN and the tests of texts, behind their left operand."""
        token = self._tokens.take()
        if token.is_word("BETWEEN"):
            return self._between(token, left, negated)
        if token.is_word("IN"):
            return self._membership(token, left, negated)
        if token.is_word(*_TEXT_TESTS):
            return TextTest(token.text, negated, left, self._string(f"after {token.text}"))
        raise SqlError(
            token.position,
            "after a value, NOT is followed by BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH, "
            f"not by {token}",
        )

    def _between(self, token: Token, value: Node, negated: bool) -> Condition:
        position = self._tokens.peek().position
        low = self._unary()
        self._expect_word("AND", "BETWEEN has two limits, with AND in between")
        high_position = self._tokens.peek().position
        high = self._unary()
        _check_order(token, value)
        _check_order(token, low, position)
        _check_order(token, high, high_position)
        if negated:
            return Logic("OR", (Comparison("<", value, low), Comparison(">", value, high)))
        if isinstance(low, Constant) and isinstance(high, Constant) and _number(high) < _number(low):
            raise SqlError(
                position, f"BETWEEN goes from the lower limit to the higher, not {low.value} to {high.value}"
            )
        return Logic("AND", (Comparison(">=", value, low), Comparison("<=", value, high)))

    def _membership(self, token: Token, left: Node, negated: bool) -> Condition:
        if not isinstance(left, Property):
            raise SqlError(
                token.position,
                "the name of a property stands before IN; of a whole IN the contrary is name NOT IN (...)",
            )
        self._expect_sign("(", "after IN comes a list in parentheses")
        texts = [self._string("in the list of IN")]
        while self._tokens.peek().is_sign(","):
            self._tokens.take()
            texts.append(self._string("in the list of IN"))
        self._expect_sign(")", "a list goes on with , or ends with )")
        return Membership(negated, left, tuple(texts))

    def _unary(self) -> Node:
        token = self._tokens.peek()
        if not (token.is_sign("+", "-") or token.is_word("NOT")):
            return self._primary()
        self._tokens.take()
        depth = self._depth
        self._deeper(token)
        position = self._tokens.peek().position
        operand = self._unary()
        self._depth = depth
        self._grow(token, 0)
        if token.text == "+":
            return operand
        return Negative(operand) if token.text == "-" else Not(_as_condition(operand, position))

    def _primary(self) -> Node:
        token = self._tokens.take()
        self._height = 0
        self._values += 1
        if self._values > MAX_VALUES:
            raise SqlError(token.position, f"more than {MAX_VALUES} names and values (lists of IN apart)")
        if token.kind is Kind.NAME:
            return Property(token.text)
        if token.kind is Kind.STRING:
            return Constant(Type.STRING, _unquoted(token))
        if token.kind is Kind.INTEGER:
            return _integer(token)
        if token.kind is Kind.FLOAT:
            return _double(token)
        if token.is_word("TRUE", "FALSE", "NULL"):
            return _CONSTANTS[token.text]
        if token.is_sign("("):
            depth = self._depth
            self._deeper(token)
            inside = self._or()
            self._depth = depth
            self._expect_sign(")", f"the parenthesis of character {token.position} is not closed")
            return inside
        raise _no_value(token)

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SqlError(token.position, f"more than {MAX_DEPTH} levels within each other")

    def _grow(self, token: Token, other: int) -> None:
        """Update the height after joining the last part with another of that height."""
        self._height = max(self._height, other) + 1
        if self._height > MAX_DEPTH:
            raise SqlError(token.position, f"more than {MAX_DEPTH} comparisons of comparisons")

    def _skip_word(self, word: str) -> bool:
        """Consume a keyword if it is next; whether it was."""
        found = self._tokens.peek().is_word(word)
        if found:
            self._tokens.take()
        return found

    def _expect_word(self, word: str, rule: str) -> None:
        token = self._tokens.take()
        if not token.is_word(word):
            raise SqlError(token.position, f"expected {word}, found {token}: {rule}")

    def _expect_sign(self, sign: str, rule: str) -> None:
        token = self._tokens.take()
        if not token.is_sign(sign):
            raise SqlError(token.position, f"expected {sign}, found {token}: {rule}")

    def _string(self, where: str) -> str:
        token = self._tokens.take()
        if token.kind is not Kind.STRING:
            raise SqlError(token.position, f"expected a string in single quotes {where}, found {token}")
        return _unquoted(token)


def _as_condition(node: Node, position: int) -> Condition:
    if isinstance(node, Property):
        return Cast(node)
    if isinstance(node, Negative) or (isinstance(node, Constant) and not node.is_boolean):
        what = "number with a sign" if isinstance(node, Negative) else node.type.value
        raise SqlError(position, f"expected a condition, such as a > 5, found no more than a value ({what})")
    return node


def _check_order(token: Token, node: Node, position: int = 0) -> None:
    """Raise SqlError for an operand that <, <=, >, >= and BETWEEN do not allow."""
    if isinstance(node, Constant):
        if node.type in NUMBERS:
            return
        what = f"a {node.type.value}" if node.value is not None else "NULL"
        rule = f"{token.text} compares numbers, not {what}"
        if node.type is Type.STRING:
            rule += "; strings can be compared by = and <>"
        raise SqlError(position or token.position, rule)
    if not isinstance(node, Property | Negative):
        rule = f"{token.text} compares numbers, not conditions"
        if isinstance(node, Not) and isinstance(node.operand, Cast):
            rule += f"; NOT applies to the operand right behind it: write NOT (... {token.text} ...)"
        raise SqlError(position or token.position, rule)


def _check_equality(token: Token, left: Node, right: Node) -> None:
    if _NULL in (left, right):
        rule = f"nothing is {token.text} NULL: write IS NULL or IS NOT NULL"
        raise SqlError(token.position, rule)
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and left.is_boolean
        and not right.is_boolean
    ):
        raise SqlError(
            token.position,
            "TRUE and FALSE are compared with booleans, not with a value of another type "
            f"({right.type.value})",
        )


def _number(constant: Constant) -> int | float:
    assert isinstance(constant.value, int | float)
    return constant.value


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _integer(token: Token) -> Constant:
    digits = token.text.rstrip("lL")
    # Certainly too large, and slow to parse.
    value = int(digits) if len(digits) < 20 else _LARGEST_LONG + 1
    if value > _LARGEST_LONG:
        raise SqlError(token.position, f"{digits} is larger than {_LARGEST_LONG}, the largest integer")
    return Constant(Type.INTEGER if value <= _LARGEST_INTEGER else Type.LONG, value)


def _double(token: Token) -> Constant:
    value = float(token.text)
    if value == float("inf"):
        raise SqlError(token.position, f"{token.text} is larger than every floating point number")
    if value == 0.0:
        raise SqlError(
            token.position, f"{token.text} is too small for a floating point number; 0 is written 0"
        )
    return Constant(Type.DOUBLE, value)


def _no_value(token: Token) -> SqlError:
    problem = f"expected a value or the name of a property, found {token}"
    if token.kind is Kind.WORD:
        problem += f"; {token} is a key word"
    elif token.is_sign("="):
        problem += "; equality is written with one ="
    elif token.is_sign(")"):
        problem += "; is there nothing between the parentheses?"
    return SqlError(token.position, problem)


def _trailing(tokens: Tokens) -> SqlError:
    """Return the error for a part that Apache's parser would ignore."""
    token = tokens.peek()
    problem = f"{token} does not belong there; Apache's broker would ignore the expression from there on"
    if token.is_sign("+", "-"):
        problem += ": there is no arithmetic"
    elif token.is_sign(")"):
        problem += ": a parenthesis is closed that was not opened"
    elif token.kind is Kind.NAME and token.text.upper() == "LIKE":
        problem += ": there is no LIKE, but CONTAINS, STARTSWITH and ENDSWITH"
    elif token.is_sign("("):
        problem += ": there are no functions"
    elif tokens.follows_digit():
        problem += ": numbers are decimal, without leading zeros and letters (but for 5L and 1e5)"
    elif token.kind in (Kind.NAME, Kind.STRING, Kind.INTEGER, Kind.FLOAT):
        problem += ": an operator is missing before it"
    return SqlError(token.position, problem)
