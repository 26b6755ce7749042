"""Settings as text for people: the output of `--print-config` and the tables of docs/configuration.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from itertools import groupby

from .properties import render
from .settings import SettingInfo, SettingRow
from .unsupported_settings import UnsupportedSetting


def sample_file(rows: Iterable[SettingRow], unused: Mapping[str, str]) -> str:
    """Return all settings as a commented properties file; settings that were not given are commented out."""
    sections = [
        f"#### {title}\n\n" + "\n".join(map(_sample_entry, group))
        for title, group in groupby(rows, key=lambda row: row.info.group)
    ]
    if unused:
        sections.append("#### Given, but without effect here\n\n" + render(unused))
    return "\n".join(sections)


def markdown_tables(infos: Iterable[SettingInfo]) -> str:
    """Return all settings as Markdown, one table per group."""
    head = "| key | default | unit | meaning |\n|---|---|---|---|\n"
    return "\n".join(
        f"## {title}\n\n{head}" + "".join(map(_markdown_row, group))
        for title, group in groupby(infos, key=lambda info: info.group)
    )


def unsupported_table(rules: Iterable[UnsupportedSetting]) -> str:
    """Return the values that a daemon refuses as a Markdown table, with the missing feature and a remedy."""
    head = "| key | refused values | not supported | what to do |\n|---|---|---|---|\n"
    rows = ((f"`{rule.key}`", rule.values.text, rule.missing, rule.instead) for rule in rules)
    return head + "".join("| " + " | ".join(cells) + " |\n" for cells in rows)


def _sample_entry(row: SettingRow) -> str:
    info = row.info
    comment = textwrap.fill(
        f"{info.meaning} {_traits(info)}", 108, initial_indent="# ", subsequent_indent="# "
    )
    line = render({info.key: row.current})
    # The mask of a secret is not its value: the output can be loaded as it is.
    return f"{comment}\n{line}" if row.given and not info.secret else f"{comment}\n# {line}"


def _traits(info: SettingInfo) -> str:
    """Return unit, allowed values, default and further traits of a setting, in brackets."""
    traits = [
        info.unit,
        info.choices,
        f"default {info.default or 'empty'}",
        "changeable while running" if info.changeable else "",
        "not a key of Apache's" if info.ours else "",
    ]
    return "[" + "; ".join(trait for trait in traits if trait) + "]"


def _markdown_row(info: SettingInfo) -> str:
    marks = (" Changeable while running." if info.changeable else "") + (
        " Not a key of Apache's." if info.ours else ""
    )
    cells = (f"`{info.key}`", f"`{info.default}`" if info.default else "", info.unit, info.meaning + marks)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
