"""The programs of tests/data/mypyc_bugs fail without the corrections of mypyc's bugs, and pass with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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
