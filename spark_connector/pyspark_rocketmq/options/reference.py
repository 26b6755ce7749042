"""The options as Markdown for the docs: `python -m pyspark_rocketmq.options.reference`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from .parsing import Elsewhere, OptionInfo, described
from .read_options import ReadOptions
from .write_options import WriteOptions

_TABLE_HEAD = "| option | default | allowed | meaning |\n|---|---|---|---|\n"


def markdown() -> str:
    """All options of reading and of writing, one table per group."""
    reading, writing = tables(described(ReadOptions)), tables(described(WriteOptions))
    return f"## Reading\n\n{reading}\n## Writing\n\n{writing}"


def tables(infos: Iterable[OptionInfo]) -> str:
    """Options as tables, one per group."""
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
    elsewhere = "without effect" if info.elsewhere is Elsewhere.IGNORED else "refused"
    return f" For {info.only.value} only; {elsewhere} elsewhere."


def _escaped(cell: str) -> str:
    # GitHub cuts a table's cells at bars even inside code.
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown())
