"""Places of mutations: the change of each kind, and code without places."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from tests.mutations.places import places, replaced


def _mutated(source: str) -> list[tuple[str, str]]:
    """Return the kind and the new line of each mutation of a module."""
    lines = source.split("\n")
    return [(place.kind, replaced(lines, place).strip()) for place in places(source)]


def _in_function(body: str, head: str = "def function(a: int, b: int, c: str) -> bool:") -> str:
    return f"{head}\n{indent(dedent(body), '    ')}\n"


@pytest.mark.parametrize(
    ("statement", "mutations"),
    [
        ("x = a < b", [("compare", "x = a <= b")]),
        ("x = a is not b", [("compare", "x = a is b")]),
        ("x = a in b", [("compare", "x = a not in b")]),
        ("x = (a) == (b)", [("compare", "x = (a) != (b)")]),
        ("x = a <= b < c", [("compare", "x = a < b < c"), ("compare", "x = a <= b <= c")]),
        ("x = 'é' != a", [("compare", "x = 'é' == a")]),
        ("x = a and b or c", [("and-or", "x = a or b or c"), ("and-or", "x = a and b and c")]),
        ("x = a + b", [("arithmetic", "x = a - b")]),
        ("x = a + 'text'", []),
        ("a += b", [("arithmetic", "a -= b")]),
        ("x = 0", [("integer+1", "x = 1")]),
        ("x = 0x10", [("integer+1", "x = 17"), ("integer-1", "x = 15")]),
        ("x = True", []),
        ("if a: pass", [("negate", "if not a: pass")]),
        ("if not (a): pass", [("negate", "if (a): pass")]),
        ("while await c: pass", [("negate", "while not (await c): pass")]),
        ("if a < b: pass", [("compare", "if a <= b: pass")]),
        ("x = a if b else c", [("negate", "x = a if not b else c")]),
        ("c.close()", [("drop-call", "False and c.close()")]),
        ("await c.close()", [("drop-call", "False and await c.close()")]),
        ("return True", [("return", "return False")]),
        ("return c.is_open", [("return", "return not c.is_open")]),
        ("for x in c: break", [("loop", "for x in c: continue")]),
        ("x = c.put(a, b, c)", [("swap-arguments", "x = c.put(b, a, c)")]),
        ("x = max(a, b)", []),
    ],
)
def test_each_kind_changes_one_line(statement: str, mutations: list[tuple[str, str]]) -> None:
    assert (
        _mutated(_in_function(statement, "async def function(a: int, b: int, c: str) -> bool:")) == mutations
    )


@pytest.mark.parametrize(
    "source",
    [
        "LIMIT = 1 + 2\nif LIMIT < 3:\n    print(LIMIT)",
        "def function(a: Literal[1] = 2) -> Literal[3]:\n    pass",
        "@cache(1)\ndef function() -> None:\n    pass",
        _in_function('"""Return 1 < 2."""'),
        _in_function("log.warning('bad', a + b, 1)"),
        _in_function("raise Refused(1, a + b)"),
        _in_function("assert a < b"),
        _in_function("x = f'{a + 1}'"),
        _in_function("x: Literal[1] = c"),
        _in_function("match a:\n    case 1:\n        pass"),
        _in_function("os.kill(a, 0 + 1)").replace("os.kill", "x = os.kill"),
        _in_function("x = isinstance(a, int | str)"),
        _in_function("return 1 + 2", "def __repr__(self):"),
    ],
)
def test_these_parts_have_no_places(source: str) -> None:
    assert _mutated(source) == []


def test_an_operator_is_found_in_an_expression_of_many_lines() -> None:
    source = _in_function("x = (\n    a  # and so on\n    and not b\n)")
    (place,) = places(source)
    assert (place.line, place.column, place.kind) == (4, 8, "and-or")
    assert replaced(source.split("\n"), place) == "        or not b"


def test_a_call_of_many_lines_is_dropped_in_its_first_line() -> None:
    assert ("drop-call", "False and a.put(") in _mutated(_in_function("a.put(\n    b,\n)"))


def test_a_place_has_the_name_of_its_function() -> None:
    source = "class Outer:\n  class Inner:\n    def method(self):\n      def nested():\n        a.b()"
    assert [place.function for place in places(source)] == ["Outer.Inner.method.nested"]
