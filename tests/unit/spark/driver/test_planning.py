"""Tasks read exactly the planned ranges, split and packed as configured."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.driver.planning import plan, ranges_between, split_evenly
from pyspark_rocketmq.errors import BadOffsets, OptionError
from pyspark_rocketmq.offsets import QueueOffsets
from pyspark_rocketmq.options.limits import MAX_TASKS, PlanLimits
from pyspark_rocketmq.tasks.ranges import QueueRange, ReadTask
from tests.support.rows import each_row

from ..samples import near_keys, offsets, offsets_of, queue

sizes = st.integers(0, 30) | st.integers(0, 30_000)
some_ranges = st.dictionaries(near_keys, st.tuples(st.integers(0, 10**12), sizes), max_size=20).map(
    lambda parts: [QueueRange(key, begin, begin + size) for key, (begin, size) in parts.items()]
)
some_limits = st.builds(
    PlanLimits,
    min_partitions=st.none() | st.integers(1, 60),
    max_records_per_partition=st.none() | st.integers(500, 20_000),
    pack_below_records=st.sampled_from([0, 1, 20, 10_000]),
    cores=st.integers(1, 30),
)


def _range(number: int, size: int, begin: int = 0) -> QueueRange:
    return QueueRange(queue(number), begin, begin + size)


def _sizes(tasks: list[ReadTask]) -> list[list[int]]:
    return [[part.size for part in task.ranges] for task in tasks]


@given(some_ranges, some_limits)
def test_tasks_read_each_planned_offset_once(ranges: list[QueueRange], limits: PlanLimits) -> None:
    planned: dict[object, list[QueueRange]] = {}
    for task in plan(ranges, limits):
        assert task.ranges
        for part in task.ranges:
            assert part.size > 0
            planned.setdefault(part.key, []).append(part)
    for wanted in ranges:
        position = wanted.begin
        for part in sorted(planned.pop(wanted.key, [])):
            assert part.begin == position
            position = part.end
        assert position == wanted.end
    assert not planned


@given(some_ranges, some_limits)
def test_packing_leaves_a_task_for_each_core(ranges: list[QueueRange], limits: PlanLimits) -> None:
    filled = sum(part.size > 0 for part in ranges)
    assert len(plan(ranges, limits)) >= min(limits.cores, filled)


def test_packed_queues_are_spread_evenly() -> None:
    ranges = [_range(number, 100) for number in range(8)]
    assert _sizes(plan(ranges, PlanLimits())) == [[100] * 8]
    assert _sizes(plan(ranges, PlanLimits(cores=2))) == [[100] * 4] * 2
    assert _sizes(plan(ranges, PlanLimits(cores=3))) == [[100] * 2] * 2 + [[100] * 4]
    assert _sizes(plan(ranges, PlanLimits(cores=64))) == [[100]] * 8
    assert _sizes(plan([_range(0, 20_000), *ranges[1:3]], PlanLimits(cores=3))) == [[20_000], [100], [100]]


@given(some_ranges, some_limits)
def test_task_limits_are_respected(ranges: list[QueueRange], limits: PlanLimits) -> None:
    tasks = plan(ranges, limits)
    total = sum(part.size for part in ranges)
    assert len(tasks) >= min(limits.min_partitions or 0, total)
    if limits.max_records_per_partition is not None:
        assert all(task.size <= limits.max_records_per_partition for task in tasks)
    for task in tasks:
        if len(task.ranges) > 1:
            assert task.size <= limits.pack_below_records


@given(some_ranges, some_limits, st.randoms())
def test_plan_depends_on_the_ranges_only(
    ranges: list[QueueRange], limits: PlanLimits, random: Random
) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)
    assert plan(shuffled, limits) == plan(ranges, limits)


@given(st.integers(1, 10**6), st.integers(1, 50), st.integers(0, 2**62))
def test_range_is_split_evenly(size: int, parts: int, begin: int) -> None:
    pieces = split_evenly(_range(0, size, begin), min(parts, size))
    assert max(p.size for p in pieces) - min(p.size for p in pieces) <= 1
    assert (pieces[0].begin, pieces[-1].end) == (begin, begin + size)
    assert len(pieces) == min(parts, size)


@each_row(
    ("counts", "limits", "tasks"),
    [
        # Empty ranges make no task.
        ([], PlanLimits(min_partitions=4), []),
        ([0, 5], PlanLimits(), [[5]]),
        # A micro-batch of 800 rows in 8 queues is one task, not eight.
        ([100] * 8, PlanLimits(), [[100] * 8]),
        ([100] * 3, PlanLimits(pack_below_records=0), [[100], [100], [100]]),
        # Large queues have their own tasks; small ones share one up to the bound.
        ([4000, 50_000, 4000, 4000], PlanLimits(), [[4000, 4000], [50_000], [4000]]),
        ([10_000, 1], PlanLimits(), [[10_000], [1]]),
        ([6000, 4000, 6000, 4001], PlanLimits(), [[6000, 4000], [6000], [4001]]),
        # As in Spark's Kafka source: split by size …
        ([25_000], PlanLimits(max_records_per_partition=10_000), [[8333], [8333], [8334]]),
        # … or by number, the largest first.
        ([60_000, 20_000], PlanLimits(min_partitions=4), [[20_000], [20_000], [20_000], [20_000]]),
        ([100, 100], PlanLimits(min_partitions=3), [[50], [50], [100]]),
        ([1, 1], PlanLimits(min_partitions=9), [[1], [1]]),
        # A minimum that is already reached changes nothing.
        ([20_000, 20_000], PlanLimits(min_partitions=1), [[20_000], [20_000]]),
    ],
)
def test_example_plans(counts: list[int], limits: PlanLimits, tasks: list[list[int]]) -> None:
    assert _sizes(plan([_range(number, count) for number, count in enumerate(counts)], limits)) == tasks


def test_too_many_tasks_are_rejected_with_a_suggestion() -> None:
    ranges = [_range(0, 10**9)]
    with pytest.raises(
        OptionError, match=r"maxRecordsPerPartition is '9': .* about 10000 or more"
    ) as refusal:
        plan(ranges, PlanLimits(max_records_per_partition=9))
    assert refusal.value.option == "maxRecordsPerPartition"
    assert len(plan(ranges, PlanLimits(max_records_per_partition=10_000))) == MAX_TASKS


def test_tasks_are_small_when_pickled() -> None:
    task = ReadTask(tuple(_range(number, 10**6, 10**9) for number in range(256)))
    data = pickle.dumps(task)
    assert pickle.loads(data) == task
    assert len(data) < 256 * 30


@given(offsets_of(near_keys, 1000), offsets_of(near_keys, 1000))
def test_ranges_between_cover_queues_of_both(start: QueueOffsets, end: QueueOffsets) -> None:
    if start.ahead_of(end):
        with pytest.raises(BadOffsets, match="a batch cannot end before it starts"):
            ranges_between(start, end)
        return
    assert ranges_between(start, end) == [
        QueueRange(key, start[key], end[key]) for key in sorted(start) if start[key] < end.get(key, 0)
    ]


def test_new_queue_enters_with_its_first_offset() -> None:
    entering = offsets(5).merged({queue(1): 7})
    assert ranges_between(offsets(5), entering) == []
    assert [str(part) for part in ranges_between(entering, offsets(5, 9))] == ["orders/broker-a/1[7,9)"]


def test_end_before_start_names_the_queues() -> None:
    with pytest.raises(BadOffsets, match="orders/broker-a/1 from 6 to 4"):
        ranges_between(offsets(5, 6), offsets(5, 4))
