"""Rules of compiled modules (docs/compiling.md), which mypyc itself does not check."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiling.form import MYPY_VERSION
from tests.support.rows import each_row

_ROOT = Path(__file__).parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())
_HOOK = _PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
_MODULES: list[str] = _HOOK["modules"]
# What may be called with a generator expression, which becomes a list.
_USES_AT_ONCE = {
    "accumulate",
    "all",
    "any",
    "bytes",
    "deque",
    "dict",
    "frozenset",
    "join",
    "list",
    "max",
    "min",
}
_USES_AT_ONCE |= {"next", "set", "sorted", "sum", "tuple", "update"}
each_module = each_row("path", _MODULES)

Trees = dict[str, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """All compiled modules by path, parsed once and dropped after the tests of this file."""
    return {path: ast.parse((_ROOT / path).read_text()) for path in _MODULES}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without those of the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from _inside(node)


def _dataclasses(tree: ast.Module) -> Iterator[ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            yield node


def test_modules_are_listed_once_and_in_order() -> None:
    names = [name.split("/", 1)[1] for name in _MODULES]
    assert len(set(names)) == len(names)
    for package in {name.split("/")[0] for name in names}:
        own = [name for name in names if name.startswith(f"{package}/")]
        assert own == sorted(own)


def test_the_compiler_is_the_type_checker_of_this_project() -> None:
    constraints = (_ROOT / "constraints.txt").read_text().splitlines()
    compilers = _PROJECT["project"]["optional-dependencies"]["compile"]
    assert f"mypy[mypyc]=={MYPY_VERSION}" in compilers
    assert f"mypy=={MYPY_VERSION}" in constraints


@each_module
def test_the_name_of_an_exception_has_one_type_in_a_function(trees: Trees, path: str) -> None:
    """A second `except` whose error has another type would raise TypeError."""
    for function in _functions(trees[path]):
        types: dict[str, str] = {}
        for node in _inside(function):
            if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
                caught = ast.unparse(node.type)
                assert types.setdefault(node.name, caught) == caught, f"{function.name}: {node.name}"


@each_module
def test_there_are_no_coroutines(trees: Trees, path: str) -> None:
    """One that is cancelled from outside may crash the process (https://github.com/python/mypy/issues/12867)."""
    assert not any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(trees[path]))


@each_module
def test_there_are_no_generators(trees: Trees, path: str) -> None:
    """Closing one leaves its `finally` out."""
    for function in _functions(trees[path]):
        yields = [node for node in _inside(function) if isinstance(node, (ast.Yield, ast.YieldFrom))]
        assert not yields, function.name


@each_module
def test_generator_expressions_are_used_at_once(trees: Trees, path: str) -> None:
    """They become lists, unless they are the argument of `any`, `all` or `next`."""
    at_once = [
        argument.value if isinstance(argument, ast.Starred) else argument
        for node in ast.walk(trees[path])
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
        for argument in node.args
        if isinstance(argument, ast.Starred) or ast.unparse(node.func).rpartition(".")[2] in _USES_AT_ONCE
    ]
    for node in ast.walk(trees[path]):
        if isinstance(node, ast.GeneratorExp):
            assert node in at_once, f"line {node.lineno}: {ast.unparse(node)}"


@each_module
def test_annotations_of_dataclasses_are_there_at_run_time(trees: Trees, path: str) -> None:
    """A class whose module is imported for the type checker alone would raise KeyError at import."""
    unknown = {
        alias.asname or alias.name
        for node in trees[path].body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    for defined in _dataclasses(trees[path]):
        for node in defined.body:
            if isinstance(node, ast.AnnAssign):
                names = {name.id for name in ast.walk(node.annotation) if isinstance(name, ast.Name)}
                assert not names & unknown, f"{defined.name}: {names & unknown}"


@each_module
def test_no_class_with_a_base_class_can_be_called(trees: Trees, path: str) -> None:
    """A call of its instance would crash the process, unless the base class has `__call__`, too."""
    for defined in trees[path].body:
        if isinstance(defined, ast.ClassDef) and {ast.unparse(base) for base in defined.bases} - {"Protocol"}:
            assert "__call__" not in {each.name for each in _functions(defined)}, defined.name


@each_module
def test_no_dataclass_has_a_class_variable(trees: Trees, path: str) -> None:
    """It would become a field."""
    for defined in _dataclasses(trees[path]):
        for node in defined.body:
            if isinstance(node, ast.AnnAssign):
                assert "ClassVar" not in ast.unparse(node.annotation), defined.name


@each_module
def test_a_file_keeps_the_number_of_its_descriptor_to_itself(trees: Trees, path: str) -> None:
    """A local variable is dropped with its last use: its file would be closed before a call on the number."""
    for function in _functions(trees[path]):
        for node in _inside(function):
            if isinstance(node, ast.Attribute) and node.attr.strip("_") in ("descriptor", "number"):
                assert ast.unparse(node.value) == "self", f"{function.name}: {ast.unparse(node)}"
