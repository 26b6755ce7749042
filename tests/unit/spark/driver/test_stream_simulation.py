"""Offsets, rate limit and planning together, as a query uses them: nothing twice, nothing missed.

The simulation has queues that appear, grow and expire, brokers that fail and return, a driver that restarts
at any point with other limits, and Spark's rule for restarts: a batch whose end was logged but that is not
finished runs again with the same offsets, into a sink that keeps one result per batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from pyspark_rocketmq.driver.planning import plan, ranges_between
from pyspark_rocketmq.driver.rate_limit import RateLimiter
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.options.limits import PlanLimits, TriggerLimits
from pyspark_rocketmq.tasks.ranges import QueueRange
from tests.support.examples import examples
from tests.unit.spark.samples import near_keys

_BROKERS = ("x", "y")

trigger_limits = st.builds(
    TriggerLimits,
    max_offsets=st.none() | st.integers(1, 40),
    min_offsets=st.none() | st.integers(1, 30),
    max_delay_ms=st.integers(1, 5000),
)
plan_limits = st.builds(
    PlanLimits,
    min_partitions=st.none() | st.integers(1, 20),
    max_records_per_partition=st.none() | st.integers(1, 20),
    pack_below_records=st.integers(0, 30),
)


@dataclass
class _Cluster:
    """The messages of each queue: offsets from the oldest up to, but not including, the newest."""

    oldest: dict[QueueKey, int] = field(default_factory=dict)
    newest: dict[QueueKey, int] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)

    def seen(self, offsets: dict[QueueKey, int]) -> QueueOffsets:
        return QueueOffsets({key: at for key, at in offsets.items() if key.broker not in self.away})


class Stream(RuleBasedStateMachine):
    """One query from its start to a final drain."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = _Cluster()
        self.now = 0.0
        self.log: list[str] = []  # the offset log: the start, then the end of each batch, as texts
        self.finished = 0  # batches whose result is complete
        self.sink: dict[int, list[QueueRange]] = {}
        self.entered: dict[QueueKey, int] = {}

    @initialize(limits=trigger_limits, queues=st.dictionaries(near_keys, st.integers(0, 50), max_size=6))
    def begin(self, limits: TriggerLimits, queues: dict[QueueKey, int]) -> None:
        self.cluster.oldest = dict(queues)
        self.cluster.newest = dict(queues)
        self.log = [self.cluster.seen(self.cluster.oldest).to_json()]
        self.entered = dict(queues)
        self.rate_limiter = RateLimiter(limits, lambda: self.now)

    @rule(key=near_keys, oldest=st.integers(0, 50))
    def a_queue_appears(self, key: QueueKey, oldest: int) -> None:
        if key not in self.cluster.newest:
            self.cluster.oldest[key] = self.cluster.newest[key] = oldest

    @rule(data=st.data(), count=st.integers(1, 200))
    @precondition(lambda self: self.cluster.newest)
    def a_queue_grows(self, data: st.DataObject, count: int) -> None:
        self.cluster.newest[data.draw(st.sampled_from(sorted(self.cluster.newest)))] += count

    @rule(data=st.data())
    @precondition(lambda self: self.cluster.newest)
    def a_queue_ages_out(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.cluster.newest)))
        self.cluster.oldest[key] = data.draw(st.integers(self.cluster.oldest[key], self.cluster.newest[key]))

    @rule(broker=st.sampled_from(_BROKERS))
    def a_broker_goes_or_comes_back(self, broker: str) -> None:
        self.cluster.away ^= {broker}

    @rule(seconds=st.floats(0.001, 10))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(plan_by=plan_limits, is_killed=st.booleans())
    def a_trigger(self, plan_by: PlanLimits, is_killed: bool) -> None:
        self._finish_last(plan_by)
        self._start_batch(draining=False)
        if not is_killed:
            self._finish_last(plan_by)

    @rule(limits=trigger_limits)
    def a_restart(self, limits: TriggerLimits) -> None:
        self.rate_limiter = RateLimiter(limits, lambda: self.now)

    def teardown(self) -> None:
        """Drain, as availableNow does, and check the result."""
        if not self.log:
            return
        self.cluster.away.clear()
        self._finish_last(PlanLimits())
        for _ in range(10_000):
            if not self._start_batch(draining=True):
                break
            self._finish_last(PlanLimits())
        self._check()

    def _start_batch(self, *, draining: bool) -> bool:
        """Run a trigger as a stream reader does. Return whether there is a batch."""
        start = QueueOffsets.from_json(self.log[-1])
        latest = self.cluster.seen(self.cluster.newest)
        new = self.cluster.seen(self.cluster.oldest).only(lambda key: key not in start)
        end = self.rate_limiter.end_of_batch(start, latest, draining=draining).merged(new)
        if end == start:
            return False
        self.entered.update(new)
        self.log.append(end.to_json())
        return True

    def _finish_last(self, plan_by: PlanLimits) -> None:
        """Run the logged, unfinished batch. A killed batch has its result replaced, not duplicated."""
        if self.finished == len(self.log) - 1:
            return
        start, end = (QueueOffsets.from_json(text) for text in self.log[-2:])
        tasks = plan(ranges_between(start, end), plan_by)
        self.sink[self.finished] = [part for task in tasks for part in task.ranges]
        self.finished += 1

    def _check(self) -> None:
        read: dict[QueueKey, list[QueueRange]] = {key: [] for key in self.entered}
        for parts in self.sink.values():
            for part in parts:
                read[part.key].append(part)
        assert self.entered.keys() == self.cluster.newest.keys()
        for key, parts in read.items():
            position = self.entered[key]
            for part in sorted(parts):
                assert part.begin == position, f"{part}: read up to {position} before"
                position = part.end
            assert position == self.cluster.newest[key]


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=examples(60), stateful_step_count=40)
