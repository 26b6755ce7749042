"""Output as a table for people, as JSON, and as CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wide enough for any row: where the output is no terminal, nothing is cut or wrapped.
_UNLIMITED_COLUMNS: Final = 10_000

Row = Mapping[str, object]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 message`, `2 messages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Format(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Output:
    """Writes results to standard output, and all else to standard error."""

    def __init__(self, form: Format) -> None:
        self.form = form
        is_terminal = sys.stdout.isatty()
        self.console = Console(
            file=sys.stdout,
            width=None if is_terminal else _UNLIMITED_COLUMNS,
            highlight=False,
            markup=False,
            soft_wrap=not is_terminal,
        )
        self.errors = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)

    def rows(self, rows: Iterable[Row], columns: Sequence[str], *, with_names: bool = True) -> None:
        """Write rows. `columns` are the keys; a table's headings are the same in words.

        Without `with_names`, CSV has no line of names: the rows continue earlier ones.
        """
        if self.form is Format.JSON:
            self.json([{key: row.get(key) for key in columns} for row in rows])
        elif self.form is Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            if with_names:
                writer.writerow(columns)
            writer.writerows([cell_of(row.get(key)) for key in columns] for row in rows)
        else:
            self.console.print(table_of(rows, columns))

    def record(self, record: Row) -> None:
        """Write one object: a line for each member."""
        if self.form is Format.JSON:
            self.json(record)
        else:
            self.rows([{"name": key, "value": value} for key, value in record.items()], ("name", "value"))

    def note(self, text: str) -> None:
        """Tell something that is no result, on standard error."""
        self.errors.print(text)

    def line(self, text: str) -> None:
        """Write a line of text as it is."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def json(self, value: object) -> None:
        """Write one JSON document: indented on a terminal, in one line elsewhere."""
        indent = 2 if sys.stdout.isatty() else None
        self.line(json.dumps(plain_value(value), ensure_ascii=False, indent=indent))


def table_of(rows: Iterable[Row], columns: Sequence[str]) -> Table:
    """Return a table without lines. Numbers are on the right."""
    rows = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in columns:
        values = [row.get(key) for row in rows]
        is_number = any(map(_is_number, values))
        table.add_column(key.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown_value(row.get(key))) for key in columns))
    return table


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def plain_value(value: object) -> object:
    """Return a value of JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(each) for each in value]
    if isinstance(value, float):
        return round(value, 3)
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def cell_of(value: object) -> str:
    """Return a cell of CSV."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    return _text(value)


def shown_value(value: object) -> str:
    """Return a cell of a table."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return " ".join(map(str, value))
    return str(value)
