"""Messages as rows, as JSON and as text."""

from __future__ import annotations

import base64
from typing import Final

from rmq_client import MessageExt

from .output import Row
from .times import time_of

COLUMNS: Final = ("stored", "broker", "queue", "offset", "id", "tags", "keys", "body")
_SHOWN_CHARACTERS: Final = 80


def body_text(message: MessageExt) -> str | None:
    """Return the body as text; None if it is not UTF-8."""
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return None


def message_row(message: MessageExt, *, whole: bool) -> Row:
    """Return a message as a row of COLUMNS; unless `whole`, with the beginning of its body."""
    text = body_text(message)
    shown = text if text is not None else f"<{len(message.body)} bytes>"
    if not whole:
        shown = " ".join(shown.split())
        if len(shown) > _SHOWN_CHARACTERS:
            shown = f"{shown[:_SHOWN_CHARACTERS]}…"
    return {
        "stored": time_of(message.store_timestamp),
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "body": shown,
    }


def message_record(message: MessageExt) -> dict[str, object]:
    """Return all of a message. A body that is not UTF-8 is `body_base64`."""
    text = body_text(message)
    record: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.msg_id,
        "offset_id": message.offset_msg_id,
        "stored": time_of(message.store_timestamp),
        "born": time_of(message.born_timestamp),
        "born_host": "{}:{}".format(*message.born_host),
        "tags": message.tags,
        "keys": message.keys,
        "retries": message.reconsume_times,
        "properties": message.user_properties,
        "bytes": len(message.body),
    }
    if text is None:
        record["body_base64"] = base64.b64encode(message.body).decode()
    else:
        record["body"] = text
    return record
