"""An environment imports the compiled form exactly as long as the sources are those that were compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compiling.link import is_linked, link, states_of, unlink
from tests.unit.compiling.small_project import SmallProject

_SHOW = """\
import rmq_compiled_form
from rmq_broker import compiled
print(compiled.answer(), compiled.__file__.endswith(".so"), rmq_compiled_form.FINDER.reason, sep="|")
"""
_SOURCE = "from rmq_broker.constants import ANSWER\n\ndef answer() -> int:\n    return ANSWER\n"
_CONSTANTS = "from typing import Final\n\nANSWER: Final = {}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    modules = {"compiled": _SOURCE, "constants": _CONSTANTS.format(42), "unrelated": ""}
    small = SmallProject(tmp_path_factory.mktemp("linked"), modules)
    small.compile("made")
    return small


@pytest.fixture
def site(project: SmallProject, tmp_path: Path) -> Path:
    """An environment that is linked to the compiled form."""
    (project.package / "constants.py").write_text(_CONSTANTS.format(42))
    states = states_of(project.root, project.sources())
    link(project.root, project.root / "made", "tools", states, tmp_path)
    return tmp_path


def _shown(project: SmallProject, site: Path) -> list[str]:
    done = project.run(_SHOW, site)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("|")


def test_the_compiled_form_is_imported(project: SmallProject, site: Path) -> None:
    assert _shown(project, site) == ["42", "True", ""]
    assert is_linked(project.root, "tools", site)


def test_an_edit_of_equal_length_is_seen(project: SmallProject, site: Path) -> None:
    constants = project.package / "constants.py"
    constants.write_text(_CONSTANTS.format(43))
    assert _shown(project, site)[:2] == ["43", "False"]
    assert "constants.py has changed since it was compiled" in _shown(project, site)[2]
    assert not is_linked(project.root, "tools", site)


def test_a_source_that_was_only_touched_is_unchanged(project: SmallProject, site: Path) -> None:
    os.utime(project.package / "constants.py")
    assert _shown(project, site) == ["42", "True", ""]
    assert is_linked(project.root, "tools", site)


def test_modules_that_are_not_compiled_may_change(project: SmallProject, site: Path) -> None:
    (project.package / "unrelated.py").write_text("CHANGED = True\n")
    assert _shown(project, site) == ["42", "True", ""]
    assert Path("broker/rmq_broker/unrelated.py") not in project.sources()


def test_other_tools_make_another_form(project: SmallProject, site: Path) -> None:
    assert not is_linked(project.root, "other tools", site)


def test_a_lost_form_is_told(project: SmallProject, site: Path) -> None:
    (library,) = (project.root / "made").glob("rmq__mypyc*")
    library.rename(library.with_suffix(".away"))
    try:
        assert _shown(project, site)[1] == "False"
        assert "incomplete" in _shown(project, site)[2]
        assert not is_linked(project.root, "tools", site)
    finally:
        library.with_suffix(".away").rename(library)


def test_an_unlinked_environment_imports_sources(project: SmallProject, site: Path) -> None:
    unlink(site)
    assert list(site.iterdir()) == []
    assert not is_linked(project.root, "tools", site)
