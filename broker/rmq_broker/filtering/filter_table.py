"""The table of the groups' filter expressions, with its persistent form.

Source of the rules: Apache RocketMQ 5.3.3, ConsumerFilterManager and ConsumerFilterData.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION

from ..clients.subscription import ExpressionError, Subscription
from .bloom import BloomFilter, BloomPositions
from .filter_file import BloomFilterData, ConsumerFilterData, ConsumerFilterWrapper, FilterDataMapByTopic

if TYPE_CHECKING:
    from ..clients.consumers import ConsumerGroup
    from ..clock import ClockMs
    from ..settings.filters import FilterSettings
    from .expressions import Expression, Expressions

log = logging.getLogger("rmq.broker.filtering")

# Interval of `forget_dead`.
SWEEP_FILTERS_SECONDS: Final = 10.0
# At a start, earlier subscribers count as gone since this long before.
_GONE_BEFORE_LOAD_MS: Final = 30_000
# Bound on the filters of groups without subscribers.
_MOST_FILTERS: Final = 10_000


@dataclass(slots=True)
class ConsumerFilter:
    """A group's expression for a topic. `version` is the client's: the time of the subscription, in ms.

    If bit maps are enabled, messages stored after `judged_after_ms` have been evaluated by the expression.
    That is the time of its registration, or of the broker's start after a crash. `born_ms` is never earlier
    than the newest message stored before the registration, even after the clock was set back. If `dead_ms`
    is not 0, the expression has had no subscriber since then.
    """

    group: str
    topic: str
    expression: Expression
    expression_type: str
    version: int
    born_ms: int
    bloom: BloomPositions
    dead_ms: int = 0
    judged_after_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.judged_after_ms = self.born_ms

    @property
    def is_dead(self) -> bool:
        """Whether it has no subscriber."""
        return self.dead_ms >= self.born_ms


class ConsumerFilterTable:
    """Filters by topic and group, kept for a while after their last subscriber has gone."""

    def __init__(
        self,
        settings: FilterSettings,
        expressions: Expressions,
        now_ms: ClockMs,
        *,
        most_filters: int = _MOST_FILTERS,
    ) -> None:
        """`most_filters`: the number of filters above which those without subscribers are dropped."""
        self.bloom = BloomFilter(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num)
        self._settings = settings
        self._expressions = expressions
        self._now_ms = now_ms
        self._newest_ms = 0  # the newest store time of an evaluated message
        self._table: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}  # by group: a heartbeat costs only its own topics
        self._count = 0
        self._most_filters = self._search_above = most_filters
        self._listeners: list[Callable[[], None]] = []

    # --- looking up ---

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's filter for a topic; None if there is none or its expression is invalid."""
        return self._table.get(topic, {}).get(group)

    def __len__(self) -> int:
        return self._count

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register `listener`, called after each change that must be persisted."""
        self._listeners.append(listener)

    # --- stored messages ---

    def judges(self, topic: str) -> list[ConsumerFilter]:
        """Return the filters that evaluate a new message, including those without subscribers."""
        self.stored_until(self._now_ms())
        return list(self._table.get(topic, {}).values())

    def stored_until(self, timestamp_ms: int) -> None:
        """Note the store time of existing messages; the clock may have been set back since."""
        self._newest_ms = max(self._newest_ms, timestamp_ms)

    # --- heartbeats ---

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Register all subscriptions of a group, as sent by one of its members."""
        wanted = list(subscriptions)
        changed = [self._register(group, subscription) for subscription in wanted]
        topics = {subscription.topic for subscription in wanted}
        changed += [self._bury(known) for known in self._of_group(group) if known.topic not in topics]
        if any(changed):
            self._publish()

    def unregister(self, group: str) -> None:
        """Mark the filters of a group whose last member has gone."""
        if any([self._bury(known) for known in self._of_group(group)]):
            self._publish()

    def members_changed(self, group: ConsumerGroup) -> None:
        """Handle a change of a group's members; only the departure of the last one matters."""
        if not group.members:
            self.unregister(group.name)

    def forget_dead(self) -> None:
        """Remove filters that had no subscriber for `filterDataCleanTimeSpan`."""
        before_ms = self._now_ms() - self._settings.filter_data_clean_time_span_ms
        if any(
            [self._drop(known) for known in list(self._all()) if known.is_dead and known.dead_ms <= before_ms]
        ):
            self._publish()

    # --- persistence ---

    def encode(self) -> bytes:
        """Return the content of `consumerFilter.json`."""
        topics = {
            topic: FilterDataMapByTopic(
                topic=topic, group_filter_data={group: data_of(known) for group, known in groups.items()}
            )
            for topic, groups in self._table.items()
        }
        return ConsumerFilterWrapper(filter_data_by_topic=topics).encode_pretty()

    def decode(self, content: bytes) -> None:
        """Load the content of `consumerFilter.json`; raises BodyError.

        A file with bit maps of another size is ignored: heartbeats register all filters again.
        """
        wrapper = ConsumerFilterWrapper.decode(content)
        stored = [
            data
            for topic in wrapper.filter_data_by_topic.values()
            for data in topic.group_filter_data.values()
        ]
        if not all(self.bloom.fits(_bloom_of(data)) for data in stored):
            log.info(
                "consumer filters not loaded: the size of bit maps has changed with "
                "expectConsumerNumUseFilter or maxErrorRateOfBloomFilter; heartbeats register them again"
            )
            return
        for data in stored:
            known = self._loaded(data)
            if known is not None:
                self._put(known)

    def invalidate_bit_maps(self) -> None:
        """After a crash, ignore the bit maps of earlier messages: the file may lack changes of filters."""
        judged_after_ms = self._not_before()
        for known in self._all():
            known.judged_after_ms = max(known.born_ms, judged_after_ms)

    # --- internals ---

    def _register(self, group: str, wanted: Subscription) -> bool:
        """Register one subscription; whether the table has changed."""
        known = self.find(wanted.topic, group)
        if wanted.expression_type == TAG_EXPRESSION:
            return known is not None and wanted.sub_version > known.version and self._bury(known)
        if not wanted.sub_string:
            return False
        if known is None:
            return self._replace(group, wanted)
        same = (known.expression_type, known.expression.text) == (wanted.expression_type, wanted.sub_string)
        if wanted.sub_version <= known.version:
            if not same:
                log.info(
                    "outdated filter ignored group=%s topic=%s expression=%s",
                    group,
                    wanted.topic,
                    wanted.sub_string,
                )
            return wanted.sub_version == known.version and self._revive(known)
        if not same:
            self._drop(known)
            return self._replace(group, wanted) or True
        known.version = wanted.sub_version
        self._revive(known)
        return True

    def _replace(self, group: str, wanted: Subscription) -> bool:
        """Register a new expression; False if it is invalid. Pulls are answered with the reason."""
        try:
            expression = self._expressions.compile(wanted.expression_type, wanted.sub_string)
        except ExpressionError as error:
            log.warning("invalid filter group=%s topic=%s: %s", group, wanted.topic, error)
            return False
        log.info("filter registered group=%s topic=%s expression=%s", group, wanted.topic, wanted.sub_string)
        bloom = self.bloom.positions_of(f"{group}#{wanted.topic}")
        self._put(
            ConsumerFilter(
                group,
                wanted.topic,
                expression,
                wanted.expression_type,
                wanted.sub_version,
                self._not_before(),
                bloom,
            )
        )
        return True

    def _loaded(self, data: ConsumerFilterData) -> ConsumerFilter | None:
        bloom, kind, text = _bloom_of(data), data.expression_type or "", data.expression or ""
        assert bloom is not None
        try:
            expression = self._expressions.compile(kind, text)
        except ExpressionError as error:
            log.warning("invalid stored filter group=%s topic=%s: %s", data.consumer_group, data.topic, error)
            return None
        dead_ms = data.dead_time or max(data.born_time, self._now_ms() - _GONE_BEFORE_LOAD_MS)
        return ConsumerFilter(
            data.consumer_group,
            data.topic,
            expression,
            kind,
            data.client_version,
            data.born_time,
            bloom,
            dead_ms,
        )

    def _put(self, known: ConsumerFilter) -> None:
        groups = self._table.setdefault(known.topic, {})
        self._count += known.group not in groups
        groups[known.group] = known
        self._topics_of.setdefault(known.group, set()).add(known.topic)
        if self._count > self._search_above:
            for dead in [each for each in self._all() if each.is_dead]:
                self._drop(dead)
            # With many filters in use, a search for each new one would take the loop's time.
            self._search_above = max(self._most_filters, self._count + self._count // 4)

    def _drop(self, known: ConsumerFilter) -> bool:
        groups = self._table[known.topic]
        del groups[known.group]
        self._count -= 1
        if not groups:
            del self._table[known.topic]
        topics = self._topics_of[known.group]
        topics.discard(known.topic)
        if not topics:
            del self._topics_of[known.group]
        return True

    def _bury(self, known: ConsumerFilter) -> bool:
        if known.is_dead:
            return False
        known.dead_ms = max(known.born_ms, self._now_ms())
        return True

    def _revive(self, known: ConsumerFilter) -> bool:
        was_dead, known.dead_ms = known.is_dead, 0
        return was_dead

    def _not_before(self) -> int:
        """Return the current time in ms; after the clock was set back, that of the newest message."""
        return max(self._now_ms(), self._newest_ms)

    def _all(self) -> Iterator[ConsumerFilter]:
        return (known for groups in self._table.values() for known in groups.values())

    def _of_group(self, group: str) -> list[ConsumerFilter]:
        return [self._table[topic][group] for topic in self._topics_of.get(group, ())]

    def _publish(self) -> None:
        for listener in self._listeners:
            listener()


def data_of(known: ConsumerFilter) -> ConsumerFilterData:
    """Return a filter in the form of Apache's tools and files."""
    return ConsumerFilterData(
        bloom_filter_data=BloomFilterData(bit_num=known.bloom.bit_count, bit_pos=list(known.bloom.positions)),
        born_time=known.born_ms,
        client_version=known.version,
        consumer_group=known.group,
        dead=known.is_dead,
        dead_time=known.dead_ms,
        expression=known.expression.text,
        expression_type=known.expression_type,
        topic=known.topic,
    )


def _bloom_of(data: ConsumerFilterData) -> BloomPositions | None:
    bloom = data.bloom_filter_data
    return None if bloom is None else BloomPositions(bloom.bit_num, tuple(bloom.bit_pos))
