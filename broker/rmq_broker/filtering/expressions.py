"""Compiled filter expressions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..clients.subscription import ExpressionError
from .needles import needles_of
from .property_bytes import property_finder
from .sql_compiler import EVALUATION_ERRORS, Compiler, Test
from .sql_parser import parse

if TYPE_CHECKING:
    from ..settings.filters import FilterSettings

SQL92: Final = "SQL92"
# Subscriptions keep their own expressions; this cache is for pulls that carry an expression.
_REMEMBERED_CHARACTERS: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Expression:
    """An SQL92 expression as a function of a message's raw property bytes; safe in any thread.

    `tests` is the approximate number of comparisons, `names` are the properties that it reads. If there are
    `needles`, the properties of each match contain one of them.
    """

    text: str
    matches: Callable[[bytes], bool]
    tests: int
    names: frozenset[str]
    needles: tuple[bytes, ...]


class Expressions:
    """Compiles expressions, and caches recent ones."""

    def __init__(self, settings: FilterSettings) -> None:
        self._settings = settings
        self._remembered: OrderedDict[tuple[str, bool], Expression] = OrderedDict()
        self._characters = 0

    def compile(self, expression_type: str, text: str) -> Expression:
        """Return the compiled expression. Raises ExpressionError with the position of the mistake."""
        if expression_type != SQL92:
            raise ExpressionError(
                f"expressions of type {expression_type} are not known here: there are TAG and {SQL92}"
            )
        key = (text, self._settings.filter_lenient)
        known = self._remembered.get(key)
        if known is not None:
            self._remembered.move_to_end(key)
            return known
        expression = _compiled(*key)
        self._remembered[key] = expression
        self._characters += len(text)
        while self._characters > _REMEMBERED_CHARACTERS:
            (forgotten, _), _ = self._remembered.popitem(last=False)
            self._characters -= len(forgotten)
        return expression


def _compiled(text: str, lenient: bool) -> Expression:
    condition = parse(text, lenient=lenient)
    compiler = Compiler(property_finder)
    evaluate = compiler.compile(condition)
    names = frozenset(compiler.names)
    return Expression(text, _matcher(evaluate), compiler.tests, names, needles_of(condition))


def _matcher(evaluate: Test[bytes]) -> Callable[[bytes], bool]:
    """Match only if the condition is true: neither if it is unknown, nor if it cannot be evaluated."""

    def matches(properties: bytes) -> bool:
        try:
            return evaluate(properties) is True
        except EVALUATION_ERRORS:
            return False

    return matches
