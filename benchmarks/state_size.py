"""Memory and start-up time for the topics, groups and offsets of a large cluster's clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.comparison import Figure, Side, repeat
from benchmarks.filling import topic_name, write_topics
from benchmarks.store_bench import StoreBench, own_broker, start_seconds
from rmq_remoting.bodies.group import SubscriptionGroupConfig

_TOPICS = 100_000
_QUEUES = 8
_GROUPS = 100_000
# A million queues with an offset: topics of eight queues, each read by one group.
_OFFSETS = 1_000_000
_IDLE_SECONDS = 3
_VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}


async def state_size(bench: StoreBench) -> Sequence[Figure]:
    """Memory per topic, group and offset, and the start with all of them."""
    topics, groups, offsets = (bench.scaled(each) for each in (_TOPICS, _GROUPS, _OFFSETS))
    cases = {
        "topic": (topics, topics, 0, 0),
        "group": (groups, 0, groups, 0),
        "offset of a queue": (offsets, 0, 0, offsets),
    }
    empty = await _anonymous_bytes(bench.folder("empty"))
    figures = []
    for name, (count, *amounts) in cases.items():
        folder = bench.folder(name)
        _write_state(folder / "store" / "config", *amounts)
        figure = Figure(f"memory per {name}, with {count:,} of them", "bytes")
        await repeat([figure], _bytes_each(folder, count, empty), bench.rounds)
        figures.append(figure)
    folder = bench.folder("all")
    _write_state(folder / "store" / "config", topics, groups, offsets)
    start = Figure(f"from exec to ready, {topics:,} topics, {groups:,} groups and {offsets:,} offsets", "s")
    await repeat([start], _start(folder), bench.rounds)
    return [*figures, start]


def _write_state(config: Path, topics: int, groups: int, offsets: int) -> None:
    write_topics(config, topics, _QUEUES)
    table = {name: _group(name) for name in map(_group_name, range(groups))}
    (config / "subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": _VERSION, "forbiddenTable": {}, "subscriptionGroupTable": table})
    )
    positions = {str(queue_id): 1_000_000 + queue_id for queue_id in range(_QUEUES)}
    places = {f"{topic_name(each)}@{_group_name(each)}": positions for each in range(offsets // _QUEUES)}
    (config / "consumerOffset.json").write_text(json.dumps({"dataVersion": _VERSION, "offsetTable": places}))


def _group_name(number: int) -> str:
    return f"Group-{number}"


def _group(name: str) -> object:
    return json.loads(SubscriptionGroupConfig(group_name=name).encode())


async def _anonymous_bytes(folder: Path) -> int:
    """Start a broker, and return its memory without mapped files once it is idle."""
    broker = own_broker("", folder)
    try:
        await start_seconds(broker)
        await asyncio.sleep(_IDLE_SECONDS)
        used = broker.usage().anonymous_bytes
        await broker.stop(timeout_s=60)
    finally:
        broker.close()
    return used


def _bytes_each(folder: Path, count: int, empty: int) -> Side:
    async def side() -> Sequence[float]:
        return ((await _anonymous_bytes(folder) - empty) / count,)

    return side


def _start(folder: Path) -> Side:
    async def side() -> Sequence[float]:
        broker = own_broker("", folder)
        try:
            seconds = await start_seconds(broker)
            await broker.stop(timeout_s=60)
        finally:
            broker.close()
        return (seconds,)

    return side
