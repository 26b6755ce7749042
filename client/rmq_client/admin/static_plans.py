"""Plans of changes of static topics: which broker gets which logical queues. Pure: nothing is asked or sent.

Source: Apache RocketMQ 5.3.3, TopicQueueMappingUtils. Brokers of equal load are taken by name, where Apache's
tool takes them at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)

from ..errors import ClientError, UsageError
from .static_results import LogicalQueue, QueueMove, QueuePart, StaticTopic

Configs = dict[str, TopicConfigAndQueueMapping]
"""The configuration of a static topic with its mapping, by broker name."""

_EPOCH_STEP: Final = 1000


@dataclass(slots=True)
class MovePlan:
    """Moves, and the configurations that they lead to. The new leaders' offsets are not known yet."""

    moves: list[QueueMove]
    configs: Configs

    @property
    def sources(self) -> list[str]:
        """Brokers that lose queues."""
        return sorted({move.source for move in self.moves})

    @property
    def targets(self) -> list[str]:
        """Brokers that get queues."""
        return sorted({move.target for move in self.moves})


def describe(topic: str, configs: Configs) -> StaticTopic:
    """Return a static topic for users. Raises UsageError, ClientError."""
    chains = chains_of(topic, configs)
    return StaticTopic(
        topic=topic,
        epoch=max(detail_of(topic, config).epoch for config in configs.values()),
        queues=tuple(
            LogicalQueue(
                queue_id,
                tuple(
                    QueuePart(
                        item.broker_name or "",
                        item.queue_id,
                        None if item.logic_offset < 0 else item.logic_offset,
                        item.start_offset,
                    )
                    for item in items
                ),
            )
            for queue_id, items in chains.items()
        ),
    )


def plan_queues(
    topic: str, queues: int, brokers: Collection[str], known: Configs, now_ms: int
) -> tuple[Configs, Counter[str]]:
    """Plan a new static topic, or more queues of one; return the configurations and the new queues by broker.

    `known` are the topic's current configurations. Raises UsageError, ClientError.
    """
    configs = {broker: config.model_copy(deep=True) for broker, config in known.items()}
    chains = chains_of(topic, configs) if configs else {}
    if queues <= len(chains):
        raise UsageError(
            f"queues={queues}: static topic {topic} has {len(chains)} queues already, and their number "
            "cannot be lowered; give a higher number"
        )
    leaders = Counter(items[-1].broker_name or "" for items in chains.values())
    left_out = sorted(set(leaders) - set(brokers))
    if left_out:
        raise UsageError(
            f"broker_names has no {', '.join(left_out)}, which lead queues of {topic} now: name these, too, "
            "or move their queues first (move_static_topic)"
        )
    load = Counter({broker: leaders[broker] for broker in brokers})
    added: Counter[str] = Counter()
    for queue_id in range(len(chains), queues):
        broker = min(load, key=lambda name: (load[name], name))
        load[broker] += 1
        added[broker] += 1
        physical_id = _grow(topic, broker, configs)
        mapping_of(configs[broker]).hosted_queues[queue_id] = [
            LogicQueueMappingItem(broker_name=broker, queue_id=physical_id, logic_offset=0)
        ]
    _set_version(configs, queues, now_ms)
    return configs, added


def plan_moves(topic: str, brokers: Collection[str], known: Configs, now_ms: int) -> MovePlan:
    """Plan moves after which these brokers lead all queues, as evenly as possible, with few moves.

    A broker either gets queues or loses some. Raises UsageError, ClientError.
    """
    configs = {broker: config.model_copy(deep=True) for broker, config in known.items()}
    chains = chains_of(topic, configs)
    leaders = Counter(items[-1].broker_name or "" for items in chains.values())
    share, more = divmod(len(chains), len(brokers))
    # Brokers that lead the most queues now keep the larger shares.
    ordered = sorted(brokers, key=lambda name: (-leaders[name], name))
    room = {broker: share + (1 if number < more else 0) for number, broker in enumerate(ordered)}
    waiting: list[int] = []
    for queue_id, items in chains.items():
        leader = items[-1].broker_name or ""
        if room.get(leader, 0) > 0:
            room[leader] -= 1
        else:
            waiting.append(queue_id)
    moves: list[QueueMove] = []
    for broker in ordered:
        for _ in range(room[broker]):
            queue_id = waiting.pop(0)
            items = chains[queue_id]
            source = items[-1].broker_name or ""
            physical_id = _grow(topic, broker, configs)
            chain = [
                *items,
                LogicQueueMappingItem(
                    broker_name=broker,
                    queue_id=physical_id,
                    generation=items[-1].generation + 1,
                    logic_offset=-1,
                ),
            ]
            for name in (source, broker):
                mapping_of(configs[name]).hosted_queues[queue_id] = chain
            moves.append(QueueMove(queue_id, source, broker))
    _set_version(configs, len(chains), now_ms)
    return MovePlan(sorted(moves, key=lambda move: move.queue_id), configs)


def plan_repair(topic: str, known: Configs, now_ms: int) -> MovePlan:
    """Plan the end of changes that were interrupted, so that all brokers have the same mapping again.

    Its moves are those whose logical offsets are not known yet. Queues that no broker leads, as after an
    interrupted creation, are given to brokers of the topic. Raises UsageError.
    """
    configs = {broker: config.model_copy(deep=True) for broker, config in known.items()}
    details = [detail_of(topic, config) for config in configs.values()]
    newest: dict[int, tuple[tuple[int, int, bool], list[LogicQueueMappingItem]]] = {}
    for detail in details:
        for queue_id, items in detail.hosted_queues.items():
            age = (detail.epoch, len(items), bool(items) and items[-1].logic_offset >= 0)
            if items and (queue_id not in newest or age > newest[queue_id][0]):
                newest[queue_id] = (age, items)
    total = max([detail.total_queues for detail in details] + [queue_id + 1 for queue_id in newest])
    load = Counter(items[-1].broker_name or "" for _, items in newest.values())
    moves: list[QueueMove] = []
    for queue_id in range(total):
        if queue_id not in newest:
            broker = min(configs, key=lambda name: (load[name], name))
            load[broker] += 1
            item = LogicQueueMappingItem(
                broker_name=broker, queue_id=_grow(topic, broker, configs), logic_offset=0
            )
            mapping_of(configs[broker]).hosted_queues[queue_id] = [item]
            continue
        _, items = newest[queue_id]
        hosts = {broker for broker, config in configs.items() if queue_id in mapping_of(config).hosted_queues}
        for broker in hosts | {items[-1].broker_name or ""}:
            mapping_of(configs.setdefault(broker, _empty(topic, broker))).hosted_queues[queue_id] = items
        if items[-1].logic_offset < 0:
            moves.append(QueueMove(queue_id, items[-2].broker_name or "", items[-1].broker_name or ""))
    _set_version(configs, total, now_ms)
    return MovePlan(moves, configs)


def needs_repair(topic: str, configs: Configs) -> bool:
    """Whether a change of a static topic was interrupted. Raises UsageError."""
    try:
        chains = chains_of(topic, configs)
    except UsageError:
        raise
    except ClientError:
        return True
    return any(items[-1].logic_offset < 0 for items in chains.values())


def add_other_brokers(topic: str, configs: Configs, brokers: Collection[str]) -> None:
    """Give brokers of the cluster that have no queue an empty mapping, so that all have its version."""
    first = mapping_of(next(iter(configs.values())))
    for broker in brokers:
        if broker not in configs:
            configs[broker] = _empty(topic, broker)
            mapping = mapping_of(configs[broker])
            mapping.epoch, mapping.total_queues = first.epoch, first.total_queues


def begin_after(end: int, block: int) -> int:
    """Return the logical offset at which a moved queue goes on: rounded up, with room for late messages."""
    blocks, rest = divmod(end, block)
    return (blocks + (1 if rest < block // 2 else 2)) * block


def chains_of(topic: str, configs: Configs) -> dict[int, list[LogicQueueMappingItem]]:
    """Return the items of all logical queues, as their leaders know them.

    Raises UsageError for a topic that is not static, and ClientError where brokers disagree.
    """
    details = {broker: detail_of(topic, config) for broker, config in configs.items()}
    versions = {(detail.epoch, detail.total_queues) for detail in details.values()}
    if len(versions) > 1:
        text = ", ".join(f"{broker}: {detail.epoch}" for broker, detail in sorted(details.items()))
        raise ClientError(
            f"the brokers have different versions of the mapping of {topic} (epochs: {text}): an earlier "
            "change was interrupted. Call repair_static_topic (rmq static-topic repair) when all brokers run"
        )
    chains: dict[int, list[LogicQueueMappingItem]] = {}
    for broker, detail in details.items():
        for queue_id, items in detail.hosted_queues.items():
            if items and items[-1].broker_name == broker:
                chains[queue_id] = items
    ((_, total),) = versions
    missing = [queue_id for queue_id in range(total) if queue_id not in chains]
    if missing:
        raise ClientError(
            f"no broker leads the logical queues {missing} of {topic}. Are all brokers of the topic "
            "registered with the name servers? After an interrupted change call repair_static_topic"
        )
    return dict(sorted(chains.items()))


def detail_of(topic: str, config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    """Return the mapping of a configuration. Raises UsageError for a topic that is not static."""
    if config.mapping_detail is None:
        raise UsageError(f"topic {topic} is not static: give another name, or delete the topic first")
    return config.mapping_detail


def mapping_of(config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    """Return the mapping of a configuration that has one."""
    assert config.mapping_detail is not None
    return config.mapping_detail


def _empty(topic: str, broker: str) -> TopicConfigAndQueueMapping:
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(broker_name=broker, topic=topic),
    )


def _grow(topic: str, broker: str, configs: Configs) -> int:
    """Add a physical queue on a broker; return its id."""
    config = configs.setdefault(broker, _empty(topic, broker))
    config.write_queue_nums += 1
    config.read_queue_nums = max(config.read_queue_nums + 1, config.write_queue_nums)
    return config.write_queue_nums - 1


def _set_version(configs: Mapping[str, TopicConfigAndQueueMapping], queues: int, now_ms: int) -> None:
    newest = max(mapping_of(config).epoch for config in configs.values())
    for config in configs.values():
        mapping = mapping_of(config)
        mapping.epoch, mapping.total_queues = max(newest + _EPOCH_STEP, now_ms), queues
