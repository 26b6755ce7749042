"""Message queries: codes 12 and 33 (Apache RocketMQ 5.3.3, QueryMessageProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.access.broker_requests import READ
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import MAX_FRAME_BYTES
from rmq_remoting.headers.query import (
    UNIQUE_KEY_QUERY,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

from ..delivery.inner_message import read_message

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..access.stored_topics import StoredTopics
    from ..store.api import QuerySettings
    from .store_view import MessageLookup

# Limit of a response body; the rest of the frame is for the header.
MAX_ANSWER_BYTES: Final = MAX_FRAME_BYTES - 64 * 1024


class QueryProcessor:
    """Finds messages; the response body is their concatenated records, as stored. Runs in a pool."""

    def __init__(self, store: MessageLookup, settings: QuerySettings, stored_topics: StoredTopics) -> None:
        self._store = store
        self._settings = settings
        self._stored_topics = stored_topics

    def by_key(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """12: the newest messages with a key or unique key, oldest first.

        As with Apache, the response may contain messages with merely the same hash: clients compare the keys.
        With access control these are left out, because they may be of any topic.
        """
        header = QueryMessageRequestHeader.decode(request.ext_fields)
        settings = self._settings
        wanted = header.max_num
        if request.ext_fields.get(UNIQUE_KEY_QUERY) == "true":
            wanted = settings.default_query_max_num
        count = max(0, min(wanted, settings.max_msgs_num_batch))
        answer = self._store.query_by_key(
            header.topic, header.key, count, header.begin_timestamp, header.end_timestamp
        )
        topic = header.topic if self._stored_topics.are_checked else None
        records, left_out = self._records(answer.offsets, topic)
        if not records:
            remark = _nothing_found(header, count, answer.last_timestamp_ms)
            raise CommandError(ResponseCode.QUERY_NOT_FOUND, remark)
        response_header = QueryMessageResponseHeader(
            index_last_update_physical_offset=answer.last_offset,
            index_last_update_timestamp=answer.last_timestamp_ms,
        )
        note = f"the {left_out} oldest do not fit: ask for times before the first one" if left_out else None
        return request.response(ResponseCode.SUCCESS, note, response_header.encode(), b"".join(records))

    def by_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """33: the message at a physical offset. Apache returns any bytes found there."""
        offset = ViewMessageRequestHeader.decode(request.ext_fields).offset
        record = self._store.record_at(offset) if offset >= 0 else None
        if record is None:
            remark = (
                f"no message begins at offset {offset} of this broker's commit log: it has been removed, or "
                "the message id is of another broker"
            )
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        if self._stored_topics.are_checked:
            self._stored_topics.check(connection, request, READ, read_message(record).message.topic)
        return request.response(ResponseCode.SUCCESS, body=record)

    def _records(self, offsets: list[int], topic: str | None) -> tuple[list[bytes], int]:
        """Return the records, oldest first, and the number of older ones that do not fit a response.

        Only those of `topic`, unless it is None.
        """
        newest_first = sorted(set(offsets), reverse=True)
        records: list[bytes] = []
        total = 0
        for position, offset in enumerate(newest_first):
            record = self._store.record_at(offset)
            if record is None:  # the index is cleaned after the log, and keeps entries of a truncated log
                continue
            if topic is not None and read_message(record).message.topic != topic:
                continue
            total += len(record)
            if records and total > MAX_ANSWER_BYTES:
                records.reverse()
                return records, len(newest_first) - position
            records.append(record)
        records.reverse()
        return records, 0


def _nothing_found(header: QueryMessageRequestHeader, count: int, index_time_ms: int) -> str:
    if count == 0:
        return f"maxNum must be at least 1, not {header.max_num}"
    return (
        f"no message of topic {header.topic} with key {header.key} was stored between "
        f"{header.begin_timestamp} and {header.end_timestamp} (ms since 1970); the index ends with "
        f"{index_time_ms}"
    )
