"""Places in a module's source that a mutation can change, found in its syntax tree.

Only the bodies of functions have places. Code that runs at import, annotations, decorators and defaults of
parameters have none, and neither have logging calls, raised errors, assertions, f-strings and `__repr__`.
"""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

_COMPARISONS: Final = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
}
_ARITHMETIC: Final = {"+": "-", "-": "+", "*": "//", "//": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&"}
_ASSIGNMENTS: Final = {"+=": "-=", "-=": "+=", "&=": "|=", "|=": "&="}
_BOOLEAN: Final = {"and": "or", "or": "and"}
_DESCRIPTIONS: Final = {"__repr__", "__str__"}
_LOGGERS: Final = {"log", "_log"}
_LOG_METHODS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# A mutated argument of these could damage the machine: another process, another folder.
_DANGEROUS: Final = {"kill", "killpg", "rmtree"}
# The order of their arguments has no effect.
_COMMUTATIVE: Final = {"max", "min"}
_SEQUENCES: Final = (ast.JoinedStr, ast.List, ast.Tuple)


class Position(NamedTuple):
    """A position in a source text: the line from 1 on, and the column in characters from 0 on."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Place:
    """A place where `new` can replace `old`, within one line.

    `kind` names the mutation; a line, a column and a kind identify the place. `reached` spans the expression
    whose evaluation reaches the place, or begins the statement whose execution does and has no end.
    """

    line: int
    column: int
    kind: str
    old: str
    new: str
    function: str
    reached: tuple[Position, Position | None]


def places(source: str) -> list[Place]:
    """Return the places of a module, in the order of the text."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda place: (place.line, place.column, place.kind))


def _is_logging(call: ast.Call) -> bool:
    method = call.func
    return (
        isinstance(method, ast.Attribute)
        and method.attr in _LOG_METHODS
        and _last_name(method.value) in _LOGGERS
    )


def _last_name(node: ast.expr) -> str:
    """Return the name of a variable or of an attribute."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _call_of(statement: ast.Expr) -> ast.Call | None:
    value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    return value if isinstance(value, ast.Call) else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, _SEQUENCES) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


class _Tokens:
    """The operators, names and brackets of a source text, to find an operator between two operands."""

    def __init__(self, source: str) -> None:
        kinds = (tokenize.OP, tokenize.NAME)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        self._tokens = [token for token in tokens if token.type in kinds]
        self._starts = [Position(*token.start) for token in self._tokens]

    def between(self, start: Position, end: Position) -> Iterator[tokenize.TokenInfo]:
        """Yield the tokens that begin at or after `start` and before `end`, without parentheses."""
        for token in self._tokens[bisect_left(self._starts, start) : bisect_left(self._starts, end)]:
            if token.string not in {"(", ")"}:
                yield token


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.found: list[Place] = []
        self._lines = source.split("\n")
        self._tokens = _Tokens(source)
        self._names: list[str] = []
        # Of the function that is visited; None outside of functions.
        self._function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
        self._types: dict[str, str] = {}

    # Scopes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _DESCRIPTIONS:
            return
        outer = self._function, self._types
        self._function, self._types = node, dict(self._types)
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None:
                self._types[argument.arg] = ast.unparse(argument.annotation)
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()
        self._function, self._types = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    # Excluded parts

    def visit_Raise(self, node: ast.Raise) -> None:
        """Skip codes and texts of errors."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions, which are for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings, which Python 3.11 knows no positions in."""

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self.visit(node.guard)
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._types[node.target.id] = ast.unparse(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        call = _call_of(node)
        if call is not None and not _is_logging(call) and _last_name(call.func) != "__init__":
            start = self._start(node)
            self._add("drop-call", start, start, "False and ", node)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            self._replace("return", value, str(not value.value), node)
        elif (
            value is not None
            and not isinstance(value, ast.Constant | ast.Compare | ast.BoolOp)
            and self._function is not None
            and self._function.returns is not None
            and ast.unparse(self._function.returns) == "bool"
        ):
            self._negate("return", value)
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("loop", node, "continue", node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("loop", node, "break", node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.Constant):
            self._negate("negate", node.test)
        self.generic_visit(node)

    visit_While = visit_If
    visit_IfExp = visit_If

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not _is_text(node.value):
            self._operator("arithmetic", _ASSIGNMENTS, node.target, node.value, node)
        self.generic_visit(node)

    # Expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in pairwise((node.left, *node.comparators)):
            self._operator("compare", _COMPARISONS, left, right, node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self._operator("and-or", _BOOLEAN, left, right, node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not _is_text(node.left) and not _is_text(node.right):
            self._operator("arithmetic", _ARITHMETIC, node.left, node.right, node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            self._replace("integer+1", node, str(node.value + 1), node)
            if node.value > 0:
                self._replace("integer-1", node, str(node.value - 1), node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _last_name(node.func)
        if name in _DANGEROUS or _is_logging(node):
            return
        if name == "isinstance":
            self.visit(node.args[0])
            return
        if name not in _COMMUTATIVE:
            for left, right in pairwise(node.args):
                self._swap(left, right, node)
        self.generic_visit(node)

    # Additions

    def _negate(self, kind: str, node: ast.expr) -> None:
        text = self._text(self._start(node), self._end(node))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            negated = text.removeprefix("not").lstrip()
        elif isinstance(node, ast.Name | ast.Attribute | ast.Call):
            negated = f"not {text}"
        else:
            negated = f"not ({text})"
        self._replace(kind, node, negated, node)

    def _swap(self, left: ast.expr, right: ast.expr, call: ast.Call) -> None:
        """Add a swap of two variables of the same annotated type."""
        if (
            isinstance(left, ast.Name)
            and isinstance(right, ast.Name)
            and left.id != right.id
            and self._types.get(left.id) == self._types.get(right.id, "")
        ):
            self._add("swap-arguments", self._start(left), self._end(right), f"{right.id}, {left.id}", call)

    def _operator(
        self, kind: str, others: dict[str, str], left: ast.expr, right: ast.expr, reached: ast.AST
    ) -> None:
        """Add a replacement of the operator between two operands, if `others` has one for it."""
        tokens = list(self._tokens.between(self._end(left), self._start(right)))
        other = others.get(" ".join(token.string for token in tokens))
        if other is not None:
            self._add(kind, Position(*tokens[0].start), Position(*tokens[-1].end), other, reached)

    def _replace(self, kind: str, node: ast.expr | ast.stmt, new: str, reached: ast.AST) -> None:
        self._add(kind, self._start(node), self._end(node), new, reached)

    def _add(self, kind: str, start: Position, end: Position, new: str, reached: ast.AST) -> None:
        if self._function is None or start.line != end.line:
            return
        assert isinstance(reached, ast.expr | ast.stmt)
        span = (self._start(reached), self._end(reached) if isinstance(reached, ast.expr) else None)
        name = ".".join(self._names)
        self.found.append(Place(start.line, start.column, kind, self._text(start, end), new, name, span))

    # Positions

    def _text(self, start: Position, end: Position) -> str:
        """Return the text between two positions of one line; of more lines, no text."""
        return self._lines[start.line - 1][start.column : end.column] if start.line == end.line else ""

    def _start(self, node: ast.expr | ast.stmt) -> Position:
        return self._position(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> Position:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._position(node.end_lineno, node.end_col_offset)

    def _position(self, line: int, offset: int) -> Position:
        """Return the position of an offset in bytes, which a syntax tree has."""
        return Position(line, len(self._lines[line - 1].encode()[:offset].decode()))


def replaced(lines: Sequence[str], place: Place) -> str:
    """Return the line of a place after its mutation."""
    line = lines[place.line - 1]
    assert line.startswith(place.old, place.column), (line, place)
    return line[: place.column] + place.new + line[place.column + len(place.old) :]
