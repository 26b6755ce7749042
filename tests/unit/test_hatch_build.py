"""Corrections of mypyc's C code (hatch_build.py)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).parents[2]
_HATCHLING = "hatchling.builders.hooks.plugin.interface"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The names of hatch_build.py, which only runs inside of hatchling."""
    names = _HATCHLING.split(".")
    for depth in range(1, len(names) + 1):
        monkeypatch.setitem(sys.modules, ".".join(names[:depth]), ModuleType(names[depth - 1]))
    monkeypatch.setattr(sys.modules[_HATCHLING], "BuildHookInterface", object, raising=False)
    path = _ROOT / "hatch_build.py"
    found: dict[str, object] = {"__name__": "hatch_build"}
    exec(compile(path.read_text(), str(path), "exec"), found)
    return found


def _lines(code: str) -> list[str]:
    return [line.strip() for line in code.splitlines() if line.strip()]


def test_an_attribute_has_its_new_value_before_the_old_one_is_released(hook: dict[str, object]) -> None:
    store = hook["_store_before_release"]
    assert callable(store)
    code = """
    CPy_DECREF(((LogObject *)cpy_r_self)->_files);
    ((LogObject *)cpy_r_self)->_files = cpy_r_r1;
    """
    assert _lines(store(code)) == [
        "{ __typeof__(((LogObject *)cpy_r_self)->_files) old_value = ((LogObject *)cpy_r_self)->_files;",
        "((LogObject *)cpy_r_self)->_files = cpy_r_r1;",
        "CPy_DECREF(old_value);",
        "}",
    ]


def test_values_that_may_be_unset_are_released_afterwards_too(hook: dict[str, object]) -> None:
    store = hook["_store_before_release"]
    assert callable(store)
    code = """
    if (self->_pair.f0 != NULL) {
        CPy_DECREF(self->_pair.f0);
        CPyTagged_DECREF(self->_pair.f1);
    }
    self->_pair = tmp;
    """
    assert _lines(store(code)) == [
        "{ __typeof__(self->_pair) old_value = self->_pair;",
        "self->_pair = tmp;",
        "if (old_value.f0 != NULL) {",
        "CPy_DECREF(old_value.f0);",
        "CPyTagged_DECREF(old_value.f1);",
        "}",
        "}",
    ]


def test_a_release_in_an_unknown_form_fails_the_build(hook: dict[str, object]) -> None:
    store = hook["_store_before_release"]
    assert callable(store)
    with pytest.raises(ValueError, match=r"cannot correct this line of mypyc's: CPy_DECREF\(self->_a\);"):
        store("CPy_DECREF(self->_a);\nother();\nself->_a = tmp;\n")


def test_a_freed_closure_is_cleared_before_it_is_used_again(hook: dict[str, object]) -> None:
    clear = hook["_clear_before_reuse"]
    assert callable(clear)
    code = """
    if (call_free_instance == NULL) {
        call_free_instance = self;
        Py_CLEAR(self->_held);
        return;
    }
    CPy_TRASHCAN_BEGIN(self, call_dealloc)
    """
    assert _lines(clear(code)) == [
        "if (call_free_instance == NULL) {",
        "Py_CLEAR(self->_held);",
        "if (call_free_instance == NULL) {",
        "call_free_instance = self;",
        "return;",
        "}",
        "}",
        "CPy_TRASHCAN_BEGIN(self, call_dealloc)",
    ]


def test_a_freed_closure_that_is_kept_in_an_unknown_form_fails_the_build(hook: dict[str, object]) -> None:
    clear = hook["_clear_before_reuse"]
    assert callable(clear)
    with pytest.raises(ValueError, match="cannot correct this line of mypyc's: call_free_instance = self;"):
        clear("call_free_instance = self;\nPy_CLEAR(self->_held);\nreturn;\n")
