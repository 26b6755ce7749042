"""The programs of tests/data/mypyc_bugs fail without the corrections of mypyc's bugs, and pass with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from compiling.corrections import correct_setters
from tests.unit.compiling.small_project import SmallProject

_BUGS = Path(__file__).parents[2] / "data" / "mypyc_bugs"
_PROGRAMS = ("store", "setter", "closure")


@pytest.fixture(scope="module", params=[True, False], ids=["corrected", "as-mypyc-writes-it"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    project = SmallProject(tmp_path_factory.mktemp("bugs"), {"compiled": (_BUGS / "compiled.py").read_text()})
    made = project.compile("made", corrected=request.param)
    shutil.copytree(project.package, made / "rmq_broker", dirs_exist_ok=True)
    (made / "rmq_broker" / "compiled.py").unlink()
    project.is_corrected = request.param
    return project


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_fails_only_without_the_correction(compiled: SmallProject, program: str) -> None:
    done = compiled.run((_BUGS / f"{program}.py").read_text(), compiled.root / "made")
    # A signal ends a process that uses a freed object, if the object does not look valid by chance.
    assert (done.returncode == 0) == compiled.is_corrected, done.stderr


# Since Python 3.12 some objects are immortal. mypyc releases the others by a macro of its own.
@pytest.mark.parametrize("macro", ["CPy_DECREF", "CPy_DECREF_NO_IMM"])
def test_a_setter_stores_before_it_releases(macro: str) -> None:
    setter = f"""\
    if (self->_a != NULL) {{
        {macro}(self->_a);
    }}
    self->_a = tmp;
    return 0;
"""
    defined = SimpleNamespace(
        is_ext_class=True,
        is_trait=False,
        needs_getseters_table=True,
        attributes={"a": SimpleNamespace(is_refcounted=True)},
        final_attributes=set(),
    )
    modules = cast(Any, {"m": SimpleNamespace(classes=[defined])})
    ((_, corrected),) = correct_setters(modules, [("m.c", setter)])
    assert corrected.index("self->_a = tmp") < corrected.index(f"{macro}(old_value)")
    with pytest.raises(ValueError, match="mypyc wrote 0 of 1 setters as expected"):
        correct_setters(modules, [("m.c", corrected)])
