"""The reference page lists every option with its default, mode and meaning."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pyspark_rocketmq.options import Mode, ReadOptions, WriteOptions
from pyspark_rocketmq.options.parsing import OptionGroup, OptionInfo, option_infos
from pyspark_rocketmq.options.reference import markdown
from tests.support.rows import each_row

from .samples import NAME_SERVERS, READING, batch, mode_of, stream

_READING, _WRITING = markdown().split("## Writing")


@each_row(
    ("page", "info"),
    [
        (page, info)
        for page, model in ((_READING, ReadOptions), (_WRITING, WriteOptions))
        for info in option_infos(model)
    ],
)
def test_every_option_has_a_row(page: str, info: OptionInfo) -> None:
    rows = [line for line in page.splitlines() if line.startswith(f"| `{info.name}` |")]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].replace("\\|", "¦").strip("| ").split(" | ")]
    assert len(cells) == 4
    assert all(cells[2:])
    assert cells[3].startswith(info.meaning.replace("|", "¦"))
    assert cells[1] == ("required" if info.required else f"`{info.default}`" if info.default else "")


@pytest.mark.parametrize("model", [ReadOptions, WriteOptions])
def test_every_field_is_a_declared_option(model: type[OptionGroup]) -> None:
    infos = list(option_infos(model))
    assert sorted(info.field_name for info in infos) == sorted(field.name for field in fields(model))
    assert len({info.name.lower() for info in infos}) == len(infos)


def test_rows_name_the_mode_of_their_option() -> None:
    assert "For streams only; ignored otherwise. |" in _READING
    assert "For batches only; rejected otherwise. |" in _READING


@each_row(
    ("model", "base", "info"),
    [
        (model, base, info)
        for model, base in ((ReadOptions, READING), (WriteOptions, NAME_SERVERS))
        for info in option_infos(model)
        if info.default and info.name != "startingOffsets"
    ],
)
def test_documented_defaults_are_the_effective_ones(
    model: type[OptionGroup], base: dict[str, str], info: OptionInfo
) -> None:
    mode = mode_of(info.only)
    without, given = model.read(base, mode), model.read({**base, info.name: info.default}, mode)
    if isinstance(without, ReadOptions) and isinstance(given, ReadOptions):
        for derived in ("expression", "ending", "group"):
            assert getattr(without, derived) == getattr(given, derived)
    if info.name not in ("subExpression", "endingOffsets", "groupIdPrefix"):
        assert without == given


def test_default_start_depends_on_the_mode() -> None:
    text = next(info.default for info in option_infos(ReadOptions) if info.name == "startingOffsets")
    assert text == f"batch: {batch().starting(Mode.BATCH)}, stream: {stream().starting(Mode.STREAM)}"
