"""Plans of changes of static topics, without brokers."""

from __future__ import annotations

import pytest

from rmq_client.admin.static_plans import (
    Configs,
    add_other_brokers,
    begin_after,
    describe,
    mapping_of,
    needs_repair,
    plan_moves,
    plan_queues,
    plan_repair,
)
from rmq_client.errors import ClientError, UsageError
from rmq_remoting.bodies.static_topic import TopicConfigAndQueueMapping

_NOW_MS = 1_700_000_000_000


def _made(queues: int, *brokers: str) -> Configs:
    return plan_queues("S", queues, brokers, {}, _NOW_MS)[0]


def _leaders(configs: Configs) -> list[str]:
    return [queue.leader for queue in describe("S", configs).queues]


def test_new_queues_are_divided_evenly() -> None:
    configs, added = plan_queues("S", 5, ["b", "a"], {}, _NOW_MS)
    assert added == {"a": 3, "b": 2}
    assert _leaders(configs) == ["a", "b", "a", "b", "a"]
    assert (configs["a"].read_queue_nums, configs["a"].write_queue_nums) == (3, 3)
    topic = describe("S", configs)
    assert topic.epoch >= _NOW_MS
    assert [part.queue_id for queue in topic.queues for part in queue.parts] == [0, 0, 1, 1, 2]
    assert all(queue.parts[0].begin == 0 for queue in topic.queues)


def test_more_queues_go_to_the_brokers_with_the_fewest() -> None:
    before = _made(2, "a")
    configs, added = plan_queues("S", 5, ["a", "b"], before, _NOW_MS)
    assert added == {"b": 3 - 1, "a": 1}
    assert mapping_of(configs["a"]).epoch > mapping_of(before["a"]).epoch
    assert mapping_of(configs["a"]).total_queues == mapping_of(configs["b"]).total_queues == 5
    assert mapping_of(before["a"]).total_queues == 2, "the plan changes a copy"


@pytest.mark.parametrize(
    ("queues", "brokers", "told"),
    [(2, ["a"], "has 2 queues already"), (1, ["a"], "cannot be lowered"), (3, ["b"], "has no a, which lead")],
)
def test_impossible_numbers_are_refused(queues: int, brokers: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        plan_queues("S", queues, brokers, _made(2, "a"), _NOW_MS)


def test_a_move_takes_as_few_queues_as_possible() -> None:
    plan = plan_moves("S", ["a", "b"], _made(4, "a"), _NOW_MS)
    assert [(move.source, move.target) for move in plan.moves] == [("a", "b"), ("a", "b")]
    assert (plan.sources, plan.targets) == (["a"], ["b"])
    moved = plan.moves[0].queue_id
    for broker in ("a", "b"):
        chain = mapping_of(plan.configs[broker]).hosted_queues[moved]
        assert [item.broker_name for item in chain] == ["a", "b"]
        assert (chain[-1].generation, chain[-1].logic_offset) == (1, -1)
    assert describe("S", plan.configs).queues[moved].parts[-1].begin is None


def test_a_broker_either_gets_queues_or_loses_some() -> None:
    plan = plan_moves("S", ["b", "c"], _made(6, "a", "b"), _NOW_MS)
    assert {move.source for move in plan.moves} == {"a"}
    assert {move.target for move in plan.moves} == {"c"}
    assert sorted(_leaders(plan.configs)) == ["b", "b", "b", "c", "c", "c"]
    assert plan_moves("S", ["b", "c"], plan.configs, _NOW_MS).moves == []


def test_brokers_without_a_queue_get_the_version() -> None:
    configs = _made(1, "a")
    add_other_brokers("S", configs, ["a", "z"])
    assert mapping_of(configs["z"]).epoch == mapping_of(configs["a"]).epoch
    assert (configs["z"].read_queue_nums, mapping_of(configs["z"]).total_queues) == (0, 1)


@pytest.mark.parametrize(
    ("end", "begin"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (10_000, 20_000), (19_999, 30_000)]
)
def test_a_moved_queue_begins_at_a_block(end: int, begin: int) -> None:
    assert begin_after(end, 10_000) == begin


def _only(configs: Configs, *brokers: str) -> Configs:
    return {broker: configs[broker] for broker in brokers}


def test_an_interrupted_move_is_finished() -> None:
    before = _made(2, "a")
    moved = plan_moves("S", ["b"], before, _NOW_MS).configs
    half_done = {**_only(before, "a"), **_only(moved, "b")}  # the new leader knows, the old one does not
    assert needs_repair("S", half_done)
    plan = plan_repair("S", half_done, _NOW_MS)
    assert [(move.queue_id, move.source, move.target) for move in plan.moves] == [
        (0, "a", "b"),
        (1, "a", "b"),
    ]
    assert _leaders(plan.configs) == ["b", "b"]
    epochs = {mapping_of(config).epoch for config in plan.configs.values()}
    assert len(epochs) == 1 and epochs.pop() > mapping_of(moved["b"]).epoch


def test_an_interrupted_creation_is_finished() -> None:
    half_done = _only(_made(4, "a", "b"), "a")
    assert needs_repair("S", half_done)
    plan = plan_repair("S", half_done, _NOW_MS)
    assert plan.moves == []
    assert _leaders(plan.configs) == ["a"] * 4
    queue_ids = [queue.parts[0].queue_id for queue in describe("S", plan.configs).queues]
    assert sorted(queue_ids) == [0, 1, 2, 3]


def test_a_move_without_its_offsets_needs_repair() -> None:
    moved = plan_moves("S", ["b"], _made(1, "a"), _NOW_MS).configs
    assert needs_repair("S", moved)
    assert not needs_repair("S", _made(1, "a"))


def test_different_versions_are_refused() -> None:
    configs = _made(2, "a", "b")
    mapping_of(configs["a"]).epoch += 1
    with pytest.raises(ClientError, match="different versions of the mapping"):
        plan_moves("S", ["a"], configs, _NOW_MS)


def test_a_queue_that_nobody_leads_is_refused() -> None:
    configs = _made(2, "a", "b")
    del configs["b"]
    with pytest.raises(ClientError, match=r"no broker leads the logical queues \[1\]"):
        describe("S", configs)


def test_an_ordinary_topic_is_refused() -> None:
    with pytest.raises(UsageError, match="not static"):
        describe("S", {"a": TopicConfigAndQueueMapping(topic_name="S")})
