"""Planning: splits the offsets of a batch into tasks. Large ranges are split, small queues share a task.

A task costs Spark tens of milliseconds, as much as reading thousands of messages. One task per queue, as in
Spark's Kafka source, would make a small micro-batch many times slower than necessary. Tasks are not packed
below the number of cores: the rest of the query may do more with a message than read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

from ..errors import BadOffsets, OptionError, listed
from ..offsets import QueueOffsets
from ..options.limits import MAX_TASKS, PlanLimits
from ..tasks.ranges import QueueRange, ReadTask


def ranges_between(start: QueueOffsets, end: QueueOffsets) -> list[QueueRange]:
    """Return the non-empty ranges between two offsets of a query, in the order of the queues.

    A queue that only `end` has is new: it enters the query with the offset where its reading begins, and
    later batches read it from there. The checkpoint alone thus says which messages were read. A queue that
    only `start` has is skipped. Raises BadOffsets for an end before its start.
    """
    backwards = start.ahead_of(end)
    if backwards:
        wrong = listed(f"{key} from {start[key]} to {end[key]}" for key in backwards)
        raise BadOffsets(f"a batch cannot end before it starts: {wrong}")
    return [QueueRange(key, start[key], start[key] + size) for key, size in start.backlog(end).items()]


def plan(ranges: Iterable[QueueRange], limits: PlanLimits) -> list[ReadTask]:
    """Return tasks that together read exactly these ranges. The same ranges give the same tasks.

    As Apache Spark's Kafka source (KafkaOffsetRangeCalculator), but `min_partitions` is reached exactly if
    splitting is needed to reach it. Raises OptionError for more than MAX_TASKS.
    """
    wanted = sorted(part for part in ranges if part.size > 0)
    total = sum(part.size for part in wanted)
    pieces = _cut_to_size(wanted, limits.max_records_per_partition)
    least_tasks = min(limits.min_partitions or 0, total)
    pack_records = min(limits.pack_below_records, limits.max_records_per_partition or total)
    if least_tasks:
        # Packed groups must stay below a fair share, or no range would be left to split.
        pack_records = min(pack_records, total // least_tasks)
    packed = _unpacked(_packed(pieces, pack_records), min(limits.cores, len(pieces)))
    return [ReadTask(group) for group in _split_to_count(packed, least_tasks)]


def split_evenly(part: QueueRange, parts: int) -> list[QueueRange]:
    """Split a range into `parts` (1 to its size) non-empty ranges whose sizes differ by at most one."""
    cuts = [part.begin + part.size * number // parts for number in range(parts + 1)]
    return [QueueRange(part.key, begin, end) for begin, end in pairwise(cuts)]


def _cut_to_size(ranges: Sequence[QueueRange], max_records: int | None) -> list[QueueRange]:
    if max_records is None:
        return list(ranges)
    if sum(-(-part.size // max_records) for part in ranges) > MAX_TASKS:
        least = -(-sum(part.size for part in ranges) // MAX_TASKS)
        raise OptionError(
            "maxRecordsPerPartition",
            max_records,
            f"larger for this read, about {least} or more",
            f"it would need more than {MAX_TASKS} tasks",
        )
    return [piece for part in ranges for piece in split_evenly(part, -(-part.size // max_records))]


def _packed(pieces: Iterable[QueueRange], pack_records: int) -> list[tuple[QueueRange, ...]]:
    """Group the pieces in order; small ones share a group of up to `pack_records` offsets.

    Neighbours are grouped instead of the best fit, so that a small queue stays with the same others over many
    batches.
    """
    groups: list[tuple[QueueRange, ...]] = []
    shared: list[QueueRange] = []
    room = pack_records
    for piece in pieces:
        if piece.size >= pack_records:
            groups.append((piece,))
            continue
        if piece.size > room:
            groups.append(tuple(shared))
            shared, room = [], pack_records
        shared.append(piece)
        room -= piece.size
    if shared:
        groups.append(tuple(shared))
    return sorted(groups)


def _unpacked(groups: list[tuple[QueueRange, ...]], least: int) -> list[tuple[QueueRange, ...]]:
    """Halve groups of several ranges until there are `least` groups, always the largest one.

    `least`: at most the number of ranges.
    """
    heap = [(-sum(part.size for part in group), group) for group in groups if len(group) > 1]
    heapify(heap)
    done: list[tuple[QueueRange, ...]] = [group for group in groups if len(group) == 1]
    while heap and len(heap) + len(done) < least:
        size, group = heappop(heap)
        for half in _halves(group, -size):
            if len(half) > 1:
                heappush(heap, (-sum(part.size for part in half), half))
            else:
                done.append(half)
    return sorted(done + [group for _, group in heap])


def _halves(group: tuple[QueueRange, ...], size: int) -> tuple[tuple[QueueRange, ...], ...]:
    """Split a group of several ranges in two, near the middle of its offsets."""
    before = cut = 0
    while cut == 0 or (cut < len(group) - 1 and 2 * before < size):
        before += group[cut].size
        cut += 1
    return group[:cut], group[cut:]


def _split_to_count(groups: list[tuple[QueueRange, ...]], least: int) -> list[tuple[QueueRange, ...]]:
    """Split single-range groups until there are `least`, always the one with the largest parts.

    While there are fewer, one part is larger than the fair share, so it is not a packed group (see `plan`).
    """
    missing = least - len(groups)
    if missing <= 0:
        return groups
    parts = [1] * len(groups)
    heap = [(-group[0].size, number) for number, group in enumerate(groups) if len(group) == 1]
    heapify(heap)
    for _ in range(missing):
        number = heap[0][1]
        parts[number] += 1
        heapreplace(heap, (-groups[number][0].size // parts[number], number))
    return [
        piece
        for group, count in zip(groups, parts, strict=True)
        for piece in (((part,) for part in split_evenly(group[0], count)) if count > 1 else (group,))
    ]
