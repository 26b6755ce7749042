"""Groups encoded rows into send requests, each for one topic, and one queue if the rows select it.

Rows that select no queue go to any queue of their topic, in batches as large as allowed. Rows that select a
queue (by number or sharding key) keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmq_client.producer.encoding import Outgoing
from rmq_client.producer.selection import by_key_hash
from rmq_remoting.compression import compress
from rmq_remoting.message import Message
from rmq_remoting.message_queue import MessageQueue

from . import schema
from .encoding import EncodedRows, dictionary_codes
from .settings import SinkSettings

Rows = npt.NDArray[np.int64]
QueuesOf = Callable[[str], Sequence[MessageQueue]]
"""Returns the writable queues of a topic."""

_ANY: Final = -1
_NO_MESSAGE: Final = Message("none", b"")


@dataclass(slots=True)
class SendRequest:
    """One request. `rows`: indexes in the slice. `ends`: end of each batch item in the body."""

    topic: str
    queue: MessageQueue | None
    outgoing: Outgoing
    rows: Rows
    ends: npt.NDArray[np.int64]

    def halves(self) -> tuple[SendRequest, SendRequest]:
        """Split a batch of at least two rows into two batches."""
        middle = len(self.rows) // 2
        cut = int(self.ends[middle - 1])
        body = self.outgoing.body
        return (
            self._part(body[:cut], self.rows[:middle], self.ends[:middle]),
            self._part(body[cut:], self.rows[middle:], self.ends[middle:] - cut),
        )

    def _part(self, body: bytes, rows: Rows, ends: npt.NDArray[np.int64]) -> SendRequest:
        return SendRequest(self.topic, self.queue, Outgoing(body, b"", batch=True), rows, ends)


def send_requests(
    encoded: EncodedRows, queues: Mapping[str, Sequence[MessageQueue]], settings: SinkSettings
) -> list[SendRequest]:
    """Return the requests of a slice.

    `queues`: the queues of each topic, if rows select queues. Rows of other topics are rejected.
    """
    targets, target_codes = _targets(encoded, queues)
    rows = np.flatnonzero(encoded.rejected.accepted(len(encoded)))
    if not len(rows):
        return []
    # An unbatched row without a queue must not split the batches of other rows.
    aside = encoded.unbatched & (target_codes == _ANY)
    kinds = (encoded.topic_codes * (len(targets) + 1) + target_codes + 1) * 2 + aside
    rows = rows[np.argsort(kinds[rows], kind="stable")]
    items = encoded.items
    if len(rows) < len(items) or (np.diff(rows) != 1).any():
        items = items.take(pa.array(rows))
    builder = _RequestBuilder(encoded, items, rows, settings)
    cuts = np.flatnonzero(np.diff(kinds[rows])) + 1
    made: list[SendRequest] = []
    for begin, end in _pairs(0, cuts, len(rows)):
        topic = encoded.topics[encoded.topic_codes[rows[begin]]]
        code = int(target_codes[rows[begin]])
        made += builder.build(topic, None if code == _ANY else targets[code], begin, end)
    return made


class _RequestBuilder:
    """Builds the requests for runs of rows with the same target."""

    def __init__(self, encoded: EncodedRows, items: Any, rows: Rows, settings: SinkSettings) -> None:
        self._encoded = encoded
        self._rows = rows
        self._settings = settings
        _, offsets, data = items.buffers()
        self._offsets = np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1].astype(
            np.int64
        )
        self._data = memoryview(data)
        self._unbatched = encoded.unbatched[rows]

    def build(self, topic: str, queue: MessageQueue | None, begin: int, end: int) -> Iterator[SendRequest]:
        """Yield the requests of rows `begin` to `end`, in order."""
        at = begin
        for unbatched in [*np.flatnonzero(self._unbatched[begin:end]) + begin, end]:
            while at < unbatched:
                stop = self._end_of_batch(at, int(unbatched))
                yield self._batch(topic, queue, at, stop)
                at = stop
            if unbatched < end:
                yield self._single(topic, queue, int(unbatched))
                at = int(unbatched) + 1

    def _end_of_batch(self, begin: int, end: int) -> int:
        most = int(self._offsets[begin]) + self._settings.batch_bytes
        fitting = int(np.searchsorted(self._offsets[begin + 1 : end + 1], most, side="right"))
        return begin + max(1, min(fitting, self._settings.batch_rows))

    def _batch(self, topic: str, queue: MessageQueue | None, begin: int, end: int) -> SendRequest:
        start = int(self._offsets[begin])
        body = self._data[start : int(self._offsets[end])].tobytes()
        ends = self._offsets[begin + 1 : end + 1] - start
        return SendRequest(topic, queue, Outgoing(body, b"", batch=True), self._rows[begin:end], ends)

    def _single(self, topic: str, queue: MessageQueue | None, index: int) -> SendRequest:
        row = int(self._rows[index])
        body: bytes = self._encoded.bodies[row].as_py()
        properties: bytes = self._encoded.properties[row].as_py()
        compression, sys_flag = self._settings.compression, 0
        if compression is not None and len(body) >= self._settings.compress_from_bytes:
            packed = compress(body, compression)
            if len(packed) < len(body):
                body, sys_flag = packed, compression.sys_flag
        outgoing = Outgoing(body, properties, sys_flag)
        return SendRequest(topic, queue, outgoing, self._rows[index : index + 1], np.zeros(0, np.int64))


def _targets(
    encoded: EncodedRows, queues: Mapping[str, Sequence[MessageQueue]]
) -> tuple[list[MessageQueue], Rows]:
    """Return the queues that rows select, and for each row an index into them; -1 for any queue."""
    if schema.QUEUE_ID in encoded.columns:
        return _by_queue_id(encoded, queues)
    if schema.SHARDING_KEY in encoded.columns:
        return _by_sharding_key(encoded, queues)
    return [], np.full(len(encoded), _ANY, np.int64)


def _by_sharding_key(
    encoded: EncodedRows, queues: Mapping[str, Sequence[MessageQueue]]
) -> tuple[list[MessageQueue], Rows]:
    keys, key_codes = dictionary_codes(encoded.columns[schema.SHARDING_KEY])
    indexes: dict[MessageQueue, int] = {}

    def target_of(topic_code: int, key_code: int) -> int:
        key = keys[key_code] if key_code >= 0 else ""
        of_topic = queues.get(encoded.topics[topic_code])
        if not key or of_topic is None:
            return _ANY
        return indexes.setdefault(by_key_hash(of_topic, _NO_MESSAGE, key), len(indexes))

    codes = _for_each_pair(encoded.topic_codes, key_codes, target_of)
    return list(indexes), codes


def _by_queue_id(
    encoded: EncodedRows, queues: Mapping[str, Sequence[MessageQueue]]
) -> tuple[list[MessageQueue], Rows]:
    id_column = encoded.columns[schema.QUEUE_ID]
    queue_ids = id_column.fill_null(_ANY).to_numpy(zero_copy_only=False).astype(np.int64)
    wanted = id_column.is_valid().to_numpy(zero_copy_only=False)
    encoded.rejected.add_where(wanted & (queue_ids < 0), "its queueId is below 0")
    names: list[str] = []
    name_codes = np.full(len(encoded), -1, np.int64)
    if schema.BROKER_NAME in encoded.columns:
        names, name_codes = dictionary_codes(encoded.columns[schema.BROKER_NAME])
    pairs = encoded.topic_codes * (len(names) + 1) + name_codes + 1
    indexes: dict[MessageQueue, int] = {}
    problems: dict[tuple[int, int], str] = {}

    def target_of(pair: int, queue_id: int) -> int:
        topic_code, name_code = divmod(pair, len(names) + 1)
        of_topic = queues.get(encoded.topics[topic_code]) if topic_code >= 0 else None
        if queue_id < 0 or of_topic is None:
            return _ANY
        name = names[name_code - 1] if name_code else None
        found = _named_queue(encoded.topics[topic_code], of_topic, name, queue_id)
        if isinstance(found, str):
            problems[pair, queue_id] = found
            return _ANY
        return indexes.setdefault(found, len(indexes))

    codes = _for_each_pair(pairs, queue_ids, target_of)
    for (pair, queue_id), reason in problems.items():
        encoded.rejected.add_where((pairs == pair) & (queue_ids == queue_id), reason)
    return list(indexes), codes


def _named_queue(
    topic: str, queues: Sequence[MessageQueue], broker_name: str | None, queue_id: int
) -> MessageQueue | str:
    """Return the selected queue, or the reason why there is none.

    A broker missing in the topic's route may be down. Whether it has the queue shows when it is back.
    """
    having = [
        queue
        for queue in queues
        if queue.queue_id == queue_id and (broker_name is None or queue.broker_name == broker_name)
    ]
    if len(having) == 1:
        return having[0]
    if broker_name and all(queue.broker_name != broker_name for queue in queues):
        return MessageQueue(topic, broker_name, queue_id)
    if having:
        brokers = ", ".join(sorted(queue.broker_name for queue in having))
        return (
            f"its queueId {queue_id} of topic {topic} is on the brokers {brokers}: give the column brokerName"
        )
    where = "" if broker_name is None else f" on broker {broker_name!r}"
    return f"its queueId {queue_id} is not a writable queue of topic {topic}{where}"


def _for_each_pair(firsts: Rows, seconds: Rows, target_of: Callable[[int, int], int]) -> Rows:
    """Call `target_of` once per distinct pair; return its results by row, -1 for a negative first."""
    low = int(seconds.min(initial=0))
    width = int(seconds.max(initial=0)) - low + 1
    different, inverse = np.unique(firsts * width + (seconds - low), return_inverse=True)
    found = []
    for one in different.tolist():
        first, second = divmod(one, width)
        found.append(target_of(first, second + low) if first >= 0 else _ANY)
    return np.array(found, np.int64)[inverse] if found else np.full(0, _ANY, np.int64)


def _pairs(first: int, cuts: npt.NDArray[Any], last: int) -> Iterator[tuple[int, int]]:
    edges = [first, *cuts.tolist(), last]
    return pairwise(edges)
