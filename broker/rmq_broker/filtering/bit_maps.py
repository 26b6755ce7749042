"""Bit maps that record, for each stored message, which groups' filters match it.

Source: Apache RocketMQ 5.3.3, CommitLogDispatcherCalcBitMap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..topics.names import ALWAYS_SYSTEM_TOPICS, SYSTEM_TOPIC_PREFIX

if TYPE_CHECKING:
    from ..settings.filters import FilterSettings
    from .filter_table import ConsumerFilterTable


class BitMaps:
    """Computes the bit maps of messages. Filters without current subscribers are included."""

    def __init__(self, settings: FilterSettings, table: ConsumerFilterTable) -> None:
        self._settings = settings
        self._table = table

    def of(self, topic: str, properties: Callable[[], bytes]) -> bytes | None:
        """Return the bit map of a message; None for a topic without filters, and for system topics."""
        if not self._settings.enable_calc_filter_bit_map:
            return None
        filters = self._table.judges(topic)
        if not filters or topic in ALWAYS_SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
            return None
        raw = properties()
        return self._table.bloom.bit_map([each.bloom for each in filters if each.expression.matches(raw)])
