"""Options that all daemons have."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import pytest

from rmq_remoting.build_form import BUILD_FORM
from rmq_remoting.daemon.command_line import command_parser, load_from, print_config

from .sample_settings import HouseSettings, known_keys


def test_shorthands_override_set_which_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "house.conf"
    path.write_text("door=1\nlayers=3\nsteps=9\n")
    options = command_parser("small", "").parse_args(["-c", str(path), "--set", "door=2", "--set", "steps=4"])
    settings = load_from(
        options, HouseSettings, known_keys, {"--door": ("door", 5), "--name": ("houseName", None)}
    ).settings
    assert (settings.door, settings.layers, settings.steps, settings.name) == (5, 3, 4, "here")


def test_a_value_may_contain_an_equals_sign() -> None:
    options = command_parser("small", "").parse_args(["--set", "houseName = a=b"])
    assert load_from(options, HouseSettings, known_keys).settings.name == "a=b"


def test_the_printed_configuration_can_be_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = command_parser("small", "")
    first = load_from(parser.parse_args(["--set", "door=2", "-p"]), HouseSettings, known_keys)
    print_config(first)
    path = tmp_path / "printed.conf"
    path.write_text(capsys.readouterr().out)
    again = load_from(parser.parse_args(["-c", str(path)]), HouseSettings, known_keys)
    assert again.settings == first.settings


def test_the_version_and_the_form_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_parser("small", "").parse_args(["--version"])
    assert ended.value.code == 0
    python = f"{platform.python_implementation()} {platform.python_version()}"
    assert capsys.readouterr().out == f"small {version('rmq')} ({BUILD_FORM}, {python})\n"
