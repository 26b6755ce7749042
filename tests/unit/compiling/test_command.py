"""`python -m compiling`: which form an environment gets, and what a missing tool means."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiling import __main__ as command
from compiling.c_compiler import find_c_compiler
from compiling.c_files import CompilationFailed
from compiling.form import NoCompiler, Tools, compiled_form
from compiling.sources import sources
from tests.unit.compiling.small_project import SmallProject, c_compiler


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the command does to the environment, in order; nothing is compiled."""
    done: list[str] = []
    monkeypatch.delenv("RMQ_COMPILE", raising=False)
    monkeypatch.setattr(command, "unlink", lambda: done.append("unlink"))
    monkeypatch.setattr(command, "link", lambda *_: done.append("link"))
    monkeypatch.setattr(command, "is_linked", lambda *_: False)
    monkeypatch.setattr(command, "compiled_form", lambda *_: Path("made"))
    return done


def test_it_compiles_and_links(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main() == 0
    assert calls == ["link"]
    monkeypatch.setattr(command, "is_linked", lambda *_: True)
    assert command.main() == 0
    assert calls == ["link"]


def test_the_interpreted_form_is_had_on_request(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_COMPILE", "0")
    assert command.main() == 0
    assert calls == ["unlink"]


@pytest.mark.parametrize("failure", [NoCompiler("there is no C compiler"), CompilationFailed("gcc failed")])
@pytest.mark.parametrize(("wanted", "code"), [("", 0), ("1", 1)])
def test_without_a_compiler_it_fails_only_on_request(
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: Exception,
    wanted: str,
    code: int,
) -> None:
    def fail(*_: object) -> Path:
        raise failure

    monkeypatch.setenv("RMQ_COMPILE", wanted)
    monkeypatch.setattr(command, "compiled_form", fail)
    assert command.main() == code
    assert calls == ["unlink"]
    assert str(failure) in capsys.readouterr().err


def test_another_value_is_refused(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RMQ_COMPILE", "yes")
    assert command.main() == 2
    assert calls == []
    assert "RMQ_COMPILE=yes is invalid" in capsys.readouterr().err


def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert find_c_compiler() == "there is no C compiler no-such-compiler (Debian: apt install gcc)"


def test_another_version_of_mypy_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("compiling.form.version", lambda _: "99.1")
    with pytest.raises(NoCompiler, match=r"mypy 99\.1 is installed"):
        Tools.find(tmp_path)


def test_a_source_edited_while_it_is_compiled_leaves_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = SmallProject(tmp_path / "project", {"compiled": "ANSWER = 42\n"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def edit(*_: object) -> None:
        (project.package / "compiled.py").write_text("ANSWER = 43\n")

    monkeypatch.setattr("compiling.form._build", edit)
    with pytest.raises(CompilationFailed, match="a source changed meanwhile"):
        compiled_form(project.root, Tools(c_compiler(), "tools"), sources(project.root))
    assert list((tmp_path / "cache" / "rmq" / "compiled").iterdir()) == []
