"""Dead letters: rejected rows are kept instead of failing the task.

`deadLetterTopic` takes the rows that fit into a message, with body, tags, keys and properties unchanged, the
reason and the original topic. `deadLetterPath` takes all others (the body is too large or missing, properties
cannot be encoded, the dead-letter topic rejects them, too) as whole rows with `rowId` and `reason`. Each task
writes one Parquet file, named by the ids of query, batch and partition, so that a repeated task replaces its
file. Without a matching option the task fails.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from rmq_client.producer.encoding import Outgoing
from rmq_remoting.message import Message
from rmq_remoting.message_errors import MessageEncodeError
from rmq_remoting.message_properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    check_property,
    encode_properties,
)

from ..errors import OptionError, RowRefused, shortened
from . import schema
from .encoding import MAX_BODY_BYTES, EncodedRows
from .producer_pool import BlockingSender
from .properties import reserved_names
from .row_ids import ROW_ID_PROPERTY, TaskId, UniqueKeys
from .send_requests import SendRequest
from .settings import SinkSettings

REASON_PROPERTY: Final = "SPARK_REFUSED_BECAUSE"
REASON_COLUMN: Final = "reason"


@dataclass(slots=True)
class _RejectedRow:
    """A rejected row: its index in the slice, and the reason."""

    index: int
    reason: str


class DeadLetters:
    """Keeps the rejected rows of one task."""

    def __init__(
        self, settings: SinkSettings, task: TaskId, sender: BlockingSender, unique_keys: UniqueKeys
    ) -> None:
        self._topic = settings.dead_letter_topic
        self._file = (
            None if settings.dead_letter_path is None else DeadLetterFile(settings.dead_letter_path, task)
        )
        self._sender = sender
        self._unique_keys = unique_keys
        self.count = 0

    def keep(self, batch: Any, encoded: EncodedRows, reasons: dict[int, str]) -> None:
        """Keep rows of a slice; `encoded` was made of `batch`. Raises RowRefused, SourceUnavailable.

        `reasons`: by the index of the row.
        """
        rows = [_RejectedRow(index, reason) for index, reason in sorted(reasons.items())]
        if self._topic is not None:
            rows = self._send(self._topic, encoded, rows)
        if rows and self._file is None:
            raise RowRefused(self._error_text(encoded, rows))
        if rows and self._file is not None:
            indexes = pa.array([row.index for row in rows], pa.int64())
            self._file.add(batch.take(indexes), encoded.ids.take(indexes), [row.reason for row in rows])
        self.count += len(reasons)

    def close(self) -> None:
        """Move the file, if there is one, to its final name."""
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Delete the file: the task failed, and its next attempt will keep the rows again."""
        if self._file is not None:
            self._file.discard()

    def _send(self, topic: str, encoded: EncodedRows, rows: list[_RejectedRow]) -> list[_RejectedRow]:
        """Send the rows that a message can hold; return the others, with their additional reasons."""
        requests: list[SendRequest] = []
        rest: list[_RejectedRow] = []
        for index, row in enumerate(rows):
            try:
                outgoing = self._message(encoded, row)
            except MessageEncodeError as error:
                rest.append(_RejectedRow(row.index, f"{row.reason} (no dead letter: {error})"))
                continue
            number = np.array([index], np.int64)
            requests.append(SendRequest(topic, None, outgoing, number, np.zeros(0, np.int64)))
        rejected = self._sender.send_all(requests).result()
        for index, reason in rejected.items():
            row = rows[index]
            rest.append(_RejectedRow(row.index, f"{row.reason} (rejected as a dead letter, too: {reason})"))
        return sorted(rest, key=lambda row: row.index)

    def _message(self, encoded: EncodedRows, row: _RejectedRow) -> Outgoing:
        """Build the dead letter of a row. Raises MessageEncodeError if no message can hold it."""
        index, columns = row.index, encoded.columns

        def value(column: str) -> Any:
            return columns[column][index].as_py() if column in columns else None

        body: bytes = encoded.bodies[index].as_py()
        if not 0 < len(body) <= MAX_BODY_BYTES:
            raise MessageEncodeError(f"a body of {len(body)} bytes cannot be sent")
        message = Message("", body, tags=value(schema.TAGS), keys=value(schema.KEYS) or ())
        message.sharding_key = value(schema.SHARDING_KEY)
        properties = message.properties
        left_out = reserved_names(columns)
        for name, text in value(schema.PROPERTIES) or ():
            if text is not None and name not in left_out:
                check_property(name, text)
                properties[name] = text
        properties[ROW_ID_PROPERTY] = encoded.ids[index].as_py().decode()
        properties[REASON_PROPERTY] = shortened(row.reason).replace("\x02", " ")
        code = int(encoded.topic_codes[index])
        if code >= 0 and (topic := encoded.topics[code].replace("\x02", " ")):
            properties[PROPERTY_DLQ_ORIGIN_TOPIC] = topic
        properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._unique_keys.take(1)[0].as_py().decode()
        return Outgoing(body, encode_properties(properties))

    @staticmethod
    def _error_text(encoded: EncodedRows, rows: list[_RejectedRow]) -> str:
        first = rows[0]
        code = int(encoded.topic_codes[first.index])
        topic = shortened(repr(encoded.topics[code])) if code >= 0 else "null"
        others = f" (and {len(rows) - 1} other rows near it)" if len(rows) > 1 else ""
        return (
            f"a row was rejected: topic {topic}, row {encoded.ids[first.index].as_py().decode()}, because "
            f"{first.reason}{others}. Correct the rows, or keep rejected rows with the options "
            "deadLetterTopic (rows that fit into a message) and deadLetterPath (all rows)"
        )


class DeadLetterFile:
    """One Parquet file in a folder of any file system that Arrow knows, created with the first row."""

    def __init__(self, folder: str, task: TaskId) -> None:
        self._folder = folder
        self._name = f"{_as_file_name(task.query_id)}-{task.batch_id}-{task.partition}.parquet"
        self._writer: Any = None
        self._system: Any = None
        self._unfinished = ""
        self._finished = ""

    def add(self, rows: Any, ids: Any, reasons: list[str]) -> None:
        """Write rows as a row group. Raises OSError."""
        kept = [name for name in rows.schema.names if name.lower() != schema.ROW_ID.lower()]
        columns = [ids.cast(pa.string()), pa.array(reasons, pa.string()), *map(rows.column, kept)]
        names = [schema.ROW_ID, REASON_COLUMN, *kept]
        table = pa.Table.from_arrays(columns, names=names)
        if self._writer is None:
            self._open(table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Finish the file and move it to its final name. Raises OSError."""
        if self._writer is not None:
            self._writer.close()
            self._system.move(self._unfinished, self._finished)

    def discard(self) -> None:
        """Delete the unfinished file."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
                self._system.delete_file(self._unfinished)

    def _open(self, file_schema: Any) -> None:
        self._system, folder = _file_system(self._folder)
        self._system.create_dir(folder, recursive=True)
        self._finished = f"{folder}/{self._name}"
        # Readers of the folder skip names that begin with an underscore.
        self._unfinished = f"{folder}/_{self._name}.{secrets.token_hex(4)}.unfinished"
        self._writer = pyarrow.parquet.ParquetWriter(self._unfinished, file_schema, filesystem=self._system)


def check_folder(folder: str) -> None:
    """Raise OptionError for a path that cannot be a folder; the folder itself need not exist."""
    try:
        _file_system(folder)
    except (ValueError, OSError) as error:
        raise OptionError(
            "deadLetterPath", folder, "an absolute path or a URI (file, hdfs, s3, gs …)", str(error)
        ) from error


def _as_file_name(text: str) -> str:
    """Quote a text so that it neither leaves the folder nor starts with _ or ., which readers skip."""
    quoted = quote(text, safe="")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in ("_", ".") else quoted


def _file_system(folder: str) -> tuple[Any, str]:
    """Return the file system and the path in it. Raises ValueError (ArrowInvalid), OSError."""
    system, path = pyarrow.fs.FileSystem.from_uri(folder)
    return system, path.rstrip("/")
