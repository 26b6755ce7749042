"""Declaration and description of settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from rmq_remoting.daemon.settings import describe_settings, fields_by_key, to_text
from tests.support.rows import each_row

from .sample_settings import Colour, HouseSettings, PaintSettings


def test_a_model_is_an_instance_of_its_groups() -> None:
    house = HouseSettings(colour=Colour.GREEN)
    assert isinstance(house, PaintSettings)
    assert house.layers == 2
    assert PaintSettings().layers == 1


@each_row(
    ("key", "text", "value"),
    [
        ("door", " 8080 ", 8080),
        ("door", "+7", 7),
        ("steps", "-9223372036854775808", -(2**63)),
        ("lit", "FALSE", False),
        ("lit", "true ", True),
        ("colour", "GREEN", Colour.GREEN),
        ("houseName", " a b ", "a b"),
        ("cellarPath", "${user.home}/x", Path.home() / "x"),
        ("cellarPath", "~/x", Path.home() / "x"),
        ("atticPath", "", None),
        ("atticPath", "/a", Path("/a")),
    ],
)
def test_text_is_converted(key: str, text: str, value: object) -> None:
    house = HouseSettings.model_validate({key: text})
    assert getattr(house, fields_by_key(HouseSettings)[key]) == value


@each_row(
    ("key", "text"),
    [
        ("door", "-1"),
        ("door", "65536"),
        ("door", "1.0"),
        ("door", "1_000"),
        ("door", ""),
        ("steps", "9223372036854775808"),
        ("layers", "0"),
        ("layers", "10"),
        ("dryingTime", "0"),
        ("lit", "yes"),
        ("lit", "1"),
        ("colour", "blue"),
        ("cellarPath", ""),
    ],
)
def test_bad_text_is_refused(key: str, text: str) -> None:
    with pytest.raises(ValidationError):
        HouseSettings.model_validate({key: text})


def test_values_become_text() -> None:
    values = [True, False, 3, Colour.RED, Path("/a"), "x", None]
    assert [to_text(value) for value in values] == ["true", "false", "3", "RED", "/a", "x", None]


def test_own_settings_are_described_first_then_each_group() -> None:
    described = list(describe_settings(HouseSettings))
    groups = [(info.group, info.key) for info in described]
    assert groups[0] == ("House", "door")
    assert groups[-3:] == [("Paint", "colour"), ("Paint", "dryingTime"), ("Paint", "layers")]
    assert len(described) == len(HouseSettings.model_fields)


def test_a_description_is_complete() -> None:
    by_key = {info.key: info for info in describe_settings(HouseSettings)}
    drying = by_key["dryingTime"]
    assert (drying.name, drying.default, drying.unit) == ("drying_time_ms", "500", "ms")
    assert drying.changeable
    assert not drying.ours
    assert by_key["owners"].ours
    assert by_key["layers"].default == "2"
    assert by_key["layers"].choices == "from 1 to 9"
    assert by_key["colour"].choices == "RED | GREEN | BLACK"
    assert by_key["steps"].choices == ""
    assert by_key["houseName"].default == "here"
