"""SQL92 conditions as functions of a message (Apache RocketMQ 5.3.3, org.apache.rocketmq.filter.expression).

A condition is true, false or, if a property is missing, unknown (None). It cannot be evaluated if a text is
compared with a number and is not one; Apache's broker does not deliver such a message either.

Property values are texts, here as UTF-8. All other types are known from the expression. Therefore each
comparison is chosen once, at compile time; evaluating a message only finds texts and parses numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .java_numbers import NotANumber, compare_doubles, read_double, read_int32, read_int64
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

Message = TypeVar("Message")
Test = Callable[[Message], bool | None]
Find = Callable[[Message], bytes | None]


class NotComparable(ValueError):
    """A condition that has no result for a message."""


# Errors of an evaluation: the message is not delivered.
EVALUATION_ERRORS: Final = (NotANumber, NotComparable)

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
_READERS: Final[dict[Type, Callable[[bytes], int | float]]] = {
    Type.INTEGER: read_int32,
    Type.LONG: read_int64,
    Type.DOUBLE: read_double,
}
_TEXT_TESTS: Final[dict[str, Callable[[bytes, bytes], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": bytes.startswith,
    "ENDSWITH": bytes.endswith,
}


class _Operand(NamedTuple, Generic[Message]):
    """One side of a comparison: `get` returns a value of the type, or None."""

    type: Type
    get: Callable[[Message], object]
    constant: int | float | str | bool | None = None


class Compiler(Generic[Message]):
    """Compiles conditions into functions. `property_finder` makes the functions that find properties."""

    def __init__(self, property_finder: Callable[[str], Find[Message]]) -> None:
        self.names: set[str] = set()
        self.tests = 0  # number of comparisons, a measure of the cost of an evaluation
        self._property_finder = property_finder

    def compile(self, condition: Condition) -> Test[Message]:
        """Return the function that evaluates a condition; it raises EVALUATION_ERRORS."""
        match condition:
            case Logic("AND", operands):
                return _all_of([self.compile(operand) for operand in operands])
            case Logic(_, operands):
                return _any_of([self.compile(operand) for operand in operands])
            case Not(operand):
                return _contrary(self.compile(operand))
            case Constant(_, value):
                return lambda message: None if value is None else bool(value)
        self.tests += 1
        match condition:
            case Comparison("=", left, right):
                return self._equality(left, right)
            case Comparison(order, left, right):
                return self._order(order, self._operand(left), self._operand(right))
            case TextTest():
                return self._text_test(condition)
            case Membership():
                return self._membership(condition)
            case Cast(name):
                find = self._find(name)
                return lambda message: None if find(message) is None else False
        raise AssertionError(condition)

    def _find(self, node: Property) -> Find[Message]:
        self.names.add(node.name)
        return self._property_finder(node.name)

    def _operand(self, node: Node) -> _Operand[Message]:
        if isinstance(node, Property):
            return _Operand(Type.STRING, self._find(node))
        if isinstance(node, Negative):
            return self._negative(node)
        if isinstance(node, Constant):
            value = node.value
            stored = _utf8(value) if isinstance(value, str) else value
            return _Operand(node.type, lambda message: stored, value)
        return _Operand(Type.BOOLEAN, self.compile(node))

    def _negative(self, node: Negative) -> _Operand[Message]:
        """Compile a minus sign: the negative of anything but a number is NULL."""
        operand = self._operand(node.operand)
        if operand.type in NUMBERS:
            assert isinstance(operand.constant, int | float)
            value = -operand.constant
            return _Operand(operand.type, lambda message: value, value)
        get = operand.get

        def nothing(message: Message) -> None:
            get(message)  # it may fail, and then the message does not match

        return _Operand(Type.NULL, nothing)

    # --- texts ---

    def _text_test(self, node: TextTest) -> Test[Message]:
        operand = self._operand(node.operand)
        wanted, test, expected = _utf8(node.text), _TEXT_TESTS[node.operator], not node.negated
        get = operand.get
        if not wanted or operand.type is not Type.STRING:
            # Such a test is false, with NOT as well.
            def false(message: Message) -> bool:
                if wanted:
                    get(message)
                return False

            return false

        def evaluate(message: Message) -> bool:
            text = get(message)
            return isinstance(text, bytes) and test(text, wanted) is expected

        return evaluate

    def _membership(self, node: Membership) -> Test[Message]:
        find = self._find(node.operand)
        texts, expected = frozenset(map(_utf8, node.texts)), not node.negated

        def evaluate(message: Message) -> bool | None:
            text = find(message)
            return None if text is None else (text in texts) is expected

        return evaluate

    # --- comparisons ---

    def _order(self, order: str, left: _Operand[Message], right: _Operand[Message]) -> Test[Message]:
        if right.constant is not None and left.type is Type.STRING:
            return _number_test(order, left.get, right)
        if left.constant is not None and right.type is Type.STRING:
            return _number_test(_MIRRORED[order], right.get, left)
        get_left, get_right, compare = left.get, right.get, _ORDERS[order]
        number_of = _READERS.get(right.type, _READERS.get(left.type, read_double))

        def evaluate(message: Message) -> bool | None:
            one = get_left(message)
            if one is None:
                return None
            other = get_right(message)
            if other is None:
                return None
            if isinstance(one, bytes):
                one = number_of(one)
            if isinstance(other, bytes):
                other = number_of(other)
            return compare(_compare_numbers(one, other), 0)

        return evaluate

    def _equality(self, left_node: Node, right_node: Node) -> Test[Message]:
        """Compile `=`: two missing values are equal; one missing left is unknown, one missing right false."""
        left, right = self._operand(left_node), self._operand(right_node)
        get_left, get_right = left.get, right.get
        if left.type is Type.STRING and right.constant is not None:
            if right.type is Type.STRING:
                return _text_equality(get_left, right)
            if right.type in NUMBERS:
                return _number_test("=", get_left, right)
        equal = _equal_values(left.type, right.type)

        def evaluate(message: Message) -> bool | None:
            one, other = get_left(message), get_right(message)
            if one is None:
                return True if other is None else None
            return False if other is None else equal(one, other)

        return evaluate


# --- conditions of conditions ---


def _all_of(tests: list[Test[Message]]) -> Test[Message]:
    if len(tests) == 2:
        return _both(*tests)

    def evaluate(message: Message) -> bool | None:
        result: bool | None = True
        for test in tests:
            one = test(message)
            if one is False:
                return False
            if one is None:
                result = None
        return result

    return evaluate


def _both(left: Test[Message], right: Test[Message]) -> Test[Message]:
    """AND of two conditions, the most frequent case, without a loop."""

    def evaluate(message: Message) -> bool | None:
        one = left(message)
        if one is False:
            return False
        other = right(message)
        return other if one or other is False else None

    return evaluate


def _any_of(tests: list[Test[Message]]) -> Test[Message]:
    def evaluate(message: Message) -> bool | None:
        result: bool | None = False
        for test in tests:
            one = test(message)
            if one:
                return True
            if one is None:
                result = None
        return result

    return evaluate


def _contrary(test: Test[Message]) -> Test[Message]:
    def evaluate(message: Message) -> bool | None:
        result = test(message)
        return None if result is None else not result

    return evaluate


# --- comparisons with a constant ---


def _number_test(order: str, find: Callable[[Message], Any], constant: _Operand[Message]) -> Test[Message]:
    """Compare a text with a number: the text must be a number of that type."""
    number, compare, read = constant.constant, _ORDERS[order], _READERS[constant.type]
    assert isinstance(number, int | float)
    if constant.type is Type.DOUBLE:
        limit = float(number)

        def evaluate_double(message: Message) -> bool | None:
            text = find(message)
            return None if text is None else compare(compare_doubles(read(text), limit), 0)

        return evaluate_double

    def evaluate(message: Message) -> bool | None:
        text = find(message)
        return None if text is None else compare(read(text), number)

    return evaluate


def _text_equality(find: Callable[[Message], object], constant: _Operand[Message]) -> Test[Message]:
    assert isinstance(constant.constant, str)
    wanted = _utf8(constant.constant)

    def evaluate(message: Message) -> bool | None:
        text = find(message)
        return None if text is None else text == wanted

    return evaluate


# --- values ---


def _equal_values(left: Type, right: Type) -> Callable[[object, object], bool]:
    """Return the function that compares two present values by `=`."""
    if left is right and left not in NUMBERS:
        return operator.eq
    if left in NUMBERS and right in NUMBERS:
        return lambda one, other: _compare_numbers(one, other) == 0
    if left in NUMBERS and right is Type.STRING:
        return lambda one, other: _compare_numbers(one, _READERS[left](_text(other))) == 0
    if left is Type.STRING and right in NUMBERS:
        return lambda one, other: _compare_numbers(_READERS[right](_text(one)), other) == 0
    if left is Type.STRING and right is Type.BOOLEAN:
        return lambda one, other: (_text(one).lower() == b"true") is other
    if left is Type.BOOLEAN and right is Type.STRING:
        return _refuse
    return lambda one, other: False


def _refuse(one: object, other: object) -> bool:
    # Apache's broker fails with a ClassCastException.
    raise NotComparable("a condition cannot be compared with a text on its right")


def _compare_numbers(left: object, right: object) -> int:
    assert isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _text(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
