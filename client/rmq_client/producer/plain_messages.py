"""Messages without properties and flag in automatic batches: encoded by columns when their batch is sent."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from rmq_remoting.message_ids import UniqueKeyGenerator

# Item size, 0, 0, flag, body length. An inlined form of rmq_remoting.message_batch.
ITEM: Final = Struct(">iiiii")
MIN_ITEM_BYTES: Final = ITEM.size + 2


class PlainEncoder:
    """Encodes messages whose only properties are an id and those of every message of the producer.

    `item_bytes` is the size of an item of a batch without the body. By columns a message takes a fifth of
    the time that it takes by itself.
    """

    __slots__ = ("_after", "_before", "_next_keys", "item_bytes")

    def __init__(self, unique_keys: UniqueKeyGenerator, before: bytes, after: bytes) -> None:
        """`before` and `after` surround the id in the encoded properties."""
        self._next_keys = unique_keys.next_keys
        properties_bytes = len(before) + unique_keys.key_length + len(after)
        self.item_bytes: Final = MIN_ITEM_BYTES + properties_bytes
        self._before = properties_bytes.to_bytes(2, "big") + before
        self._after = after

    def encode(self, bodies: Sequence[bytes]) -> tuple[bytes, list[str]]:
        """Return the items of a batch, joined, and the ids of its messages."""
        number = len(bodies)
        ids = self._next_keys(number)
        least = self.item_bytes
        heads = {size: ITEM.pack(least + size, 0, 0, 0, size) for size in set(map(len, bodies))}
        parts = [self._before] * (5 * number)
        parts[0::5] = [heads[len(body)] for body in bodies]
        parts[1::5] = bodies
        parts[3::5] = " ".join(ids).encode("ascii").split()
        parts[4::5] = [self._after] * number
        return b"".join(parts), ids
