"""Corrections of two bugs of mypyc 2.4.1, which let an object be used after it was freed.

docs/mypyc_bugs.md has a program for each:

- A store to an attribute first releases the old value and then stores the new one. Releasing can run other
  code: `__del__`, the callback of a weak reference, or another thread while a memory map is closed. That code
  reads the attribute, finds the freed object, and the process crashes. Here each store takes the old value
  out, and releases it once the new one is in its place.
- A freed closure is offered to the next call before it is cleared. Here this reuse is turned off.

`correct_modules` changes mypyc's intermediate representation. Setters for interpreted code exist as text
alone: `correct_setters` knows how many there are, and fails if it does not find each one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mypyc.ir.module_ir import ModuleIRs
from mypyc.ir.ops import BasicBlock, DecRef, GetAttr, Op, SetAttr

# The end of a setter.
_SETTER: Final = re.compile(
    r"(?P<release> {4}if \((?P<attribute>self->\w+)[^\n]*\) \{\n"
    r"(?: {8}CPy\w*DECREF\w*\((?P=attribute)(?:\.f\d+)*\);\n)+ {4}\}\n)"
    r" {4}(?P=attribute) = tmp;\n {4}return 0;\n"
)


def correct_modules(modules: ModuleIRs) -> None:
    """Correct the code of all modules, in place."""
    for module in modules.values():
        for defined in module.classes:
            defined.reuse_freed_instance = False
        for function in module.functions:
            for block in function.blocks:
                _correct_block(block)


def correct_setters(modules: ModuleIRs, texts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the C files, as names and texts, with corrected setters. Raises ValueError if one is missing."""
    expected = sum(
        kind.is_refcounted and name not in defined.final_attributes
        for module in modules.values()
        for defined in module.classes
        if defined.is_ext_class and not defined.is_trait and defined.needs_getseters_table
        for name, kind in defined.attributes.items()
    )
    found = 0
    corrected = []
    for name, text in texts:
        changed, count = _SETTER.subn(_stored_first, text)
        found += count
        corrected.append((name, changed))
    if found != expected:
        raise ValueError(
            f"mypyc wrote {found} of {expected} setters as expected; correct its code in {__file__}"
        )
    return corrected


def _stored_first(match: re.Match[str]) -> str:
    attribute = match["attribute"]
    release = match["release"].replace(attribute, "old_value")
    store = f"    __typeof__({attribute}) old_value = {attribute};\n    {attribute} = tmp;\n"
    return f"{store}{release}    return 0;\n"


def _correct_block(block: BasicBlock) -> None:
    corrected: list[Op] = []
    for op in block.ops:
        if isinstance(op, SetAttr) and _releases(op):
            old = GetAttr(op.obj, op.attr, op.line, borrow=True, allow_error_value=True)
            # The store of an initializer releases nothing.
            op.is_init = True
            is_defined = op.class_type.class_ir.is_always_defined(op.attr)
            corrected += [old, op, DecRef(old, is_xdec=not is_defined, line=op.line)]
        else:
            corrected.append(op)
    block.ops = corrected


def _releases(op: SetAttr) -> bool:
    return not op.is_init and not op.is_propset and op.class_type.attr_type(op.attr).is_refcounted
