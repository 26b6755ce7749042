"""Messages printed one by one, as they come."""

from __future__ import annotations

import csv
import io
import json
import string

from rmq_client import MessageExt

from .exits import CommandFailed, Exit
from .messages import COLUMNS, message_record, message_row
from .output import Format, Output, cell_of, plain_value, shown_value


class MessagePrinter:
    """Prints messages as text, JSON lines, CSV, or by a template."""

    def __init__(self, out: Output, template: str | None = None) -> None:
        """`template` has the names of `message_record` in braces. Raises CommandFailed for others."""
        self._out = out
        self._template = "{body}" if template == "body" else template
        if self._template is not None:
            _check(self._template)
        elif out.form is Format.CSV:
            out.line(",".join(COLUMNS))

    def print(self, message: MessageExt) -> None:
        """Print one message."""
        self._out.line(self._text(message))

    def _text(self, message: MessageExt) -> str:
        if self._template is not None:
            record = message_record(message)
            record.setdefault("body", message.body.hex())
            return self._template.format_map(
                {key: shown_value(value) if key != "body" else value for key, value in record.items()}
            )
        if self._out.form is Format.JSON:
            return json.dumps(plain_value(message_record(message)), ensure_ascii=False)
        if self._out.form is Format.CSV:
            row, line = message_row(message, whole=True), io.StringIO()
            csv.writer(line, lineterminator="").writerow(cell_of(row[key]) for key in COLUMNS)
            return line.getvalue()
        row = message_row(message, whole=False)
        marks = [f"tags={row['tags']}"] if row["tags"] else []
        marks += [f"keys={','.join(message.keys)}"] if message.keys else []
        place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
        return " ".join((shown_value(row["stored"]), place, *marks, str(row["body"])))


def _check(template: str) -> None:
    known = {*message_record(MessageExt("topic")), "body"}
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise CommandFailed(f"template {template!r}: {error}", Exit.USAGE) from error
    unknown = names - known
    if unknown or not names:
        raise CommandFailed(
            f"template {template!r}: write names in braces; there are {', '.join(sorted(known))}", Exit.USAGE
        )
