"""The lists in the response to a pop from which clients build receipts (`rmq_remoting.pop_receipt`).

Source: Apache RocketMQ 5.3.3, ExtraInfoUtil.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmq_remoting.pop_receipt import kind_of


class AnswerInfos:
    """The lists in the response to a pop: one entry `kind queue value` per queue, joined by semicolons."""

    __slots__ = ("_message_offsets", "_order_counts", "_start_offsets")

    def __init__(self) -> None:
        self._start_offsets: list[str] = []
        self._message_offsets: list[str] = []
        self._order_counts: list[str] = []

    def add(self, topic: str, queue_id: int, start_offset: int, offsets: Iterable[int]) -> None:
        """Add the messages popped from a queue that was read from `start_offset` on."""
        kind = kind_of(topic)
        self._start_offsets.append(f"{kind} {queue_id} {start_offset}")
        self._message_offsets.append(f"{kind} {queue_id} {','.join(map(str, offsets))}")

    def add_counts(
        self, topic: str, queue_id: int, offsets: Sequence[int], counts: Mapping[int, int]
    ) -> None:
        """Add the delivery counts of an ordered pop. Old clients read the lowest count of the queue."""
        kind = kind_of(topic)
        self._order_counts += [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
        lowest = min(counts.values(), default=0) if len(counts) == len(offsets) else 0
        self._order_counts.append(f"{kind} {queue_id} {lowest}")

    @property
    def start_offset_info(self) -> str:
        """The start offset of each queue."""
        return ";".join(self._start_offsets)

    @property
    def msg_offset_info(self) -> str:
        """The offsets of each queue's messages."""
        return ";".join(self._message_offsets)

    @property
    def order_count_info(self) -> str:
        """The earlier deliveries of the messages."""
        return ";".join(self._order_counts)
