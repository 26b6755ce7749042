"""Prints the options as Markdown for the docs: `python -m pyspark_rocketmq.options.reference`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from .parsing import Mode, OptionInfo, OtherMode, option_infos
from .read_options import ReadOptions
from .write_options import WriteOptions

_READS_OR_WRITES = {Mode.BATCH: "batches", Mode.STREAM: "streams"}
_TABLE_HEAD = "| option | default | allowed | meaning |\n|---|---|---|---|\n"


def markdown() -> str:
    """Return all options of reading and of writing, one table per group."""
    reading, writing = tables(option_infos(ReadOptions)), tables(option_infos(WriteOptions))
    return f"## Reading\n\n{reading}\n## Writing\n\n{writing}"


def tables(infos: Iterable[OptionInfo]) -> str:
    """Return options as tables, one per group."""
    return "\n".join(
        f"### {title}\n\n{_TABLE_HEAD}" + "".join(map(_row, group))
        for title, group in groupby(infos, key=lambda info: info.group)
    )


def _row(info: OptionInfo) -> str:
    default = "required" if info.required else f"`{info.default}`" if info.default else ""
    unit = f" ({info.unit})" if info.unit else ""
    cells = (f"`{info.name}`", default, info.allowed + unit, info.meaning + _mode_note(info))
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |\n"


def _mode_note(info: OptionInfo) -> str:
    if info.only is None:
        return ""
    in_other_mode = "ignored" if info.in_other_mode is OtherMode.IGNORED else "rejected"
    return f" For {_READS_OR_WRITES[info.only]} only; {in_other_mode} otherwise."


def _escaped(cell: str) -> str:
    # GitHub splits table cells at bars even inside code.
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown())
