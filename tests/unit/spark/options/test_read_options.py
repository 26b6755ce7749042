"""Options of reading: defaults, contradictions, and the values derived from them."""

from __future__ import annotations

import os
import pickle

import pytest

from pyspark_rocketmq.errors import OptionError, UnknownOption
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.options import Anchor, AtOffsets, AtTime, AtTimes, Mode, ReadOptions
from pyspark_rocketmq.options.limits import PlanLimits, TriggerLimits
from pyspark_rocketmq.options.read_options import DEFAULT_GROUP_PREFIX
from rmq_client.names import check_group
from tests.support.rows import each_row

from .samples import NAME_SERVERS, READING, batch, stream

_AT_5 = '{"orders":{"b":{"0":5}}}'
_AT_3 = '{"orders":{"b":{"0":3}}}'


def test_group_is_the_same_for_each_run_of_a_query() -> None:
    first, again = stream(subscribe="orders"), stream(subscribe="orders", maxOffsetsPerTrigger="5")
    assert first.group == again.group == batch(subscribe="orders").group
    others = [
        stream(subscribe="orders", subExpression="a"),
        stream(subscribe="payments"),
        stream(subscribe="orders", groupIdPrefix="team-a"),
        ReadOptions.for_stream({**NAME_SERVERS, "subscribePattern": "orders"}),
    ]
    assert len({first.group, *(other.group for other in others)}) == 5
    assert others[2].group.startswith("team-a-orders-")
    longest = stream(subscribe="t" * 127, groupIdPrefix="p" * 120).group
    check_group(f"{longest}-0b0d5a3c")  # with the beginning of a query's id
    check_group(ReadOptions.for_stream({**NAME_SERVERS, "subscribePattern": "a|.{3,}" * 60}).group)
    with pytest.raises(OptionError, match="groupIdPrefix"):
        stream(groupId="g", groupIdPrefix="p")


def test_defaults() -> None:
    options = stream()
    assert options.subscribe == ("orders",)
    assert options.starting(Mode.STREAM) is Anchor.LATEST
    assert options.starting(Mode.BATCH) is Anchor.EARLIEST
    assert options.ending is Anchor.LATEST
    assert options.trigger_limits == TriggerLimits()
    assert options.plan_limits == PlanLimits(cores=os.cpu_count() or 1)
    assert options.expression == "*"
    assert options.group.startswith(f"{DEFAULT_GROUP_PREFIX}-orders-")
    assert options.fail_on_data_loss
    assert not options.commit_offsets_to_group


def test_option_names_are_case_insensitive() -> None:
    given = {"ROCKETMQ.NAMESRV.ADDR": "a:1", "Subscribe": "orders", "maxoffsetspertrigger": "7"}
    assert ReadOptions.for_stream(given).trigger_limits.max_offsets == 7


def test_options_added_by_spark_are_ignored() -> None:
    of_spark = {"path": "p", "paths": '["p"]', "queryname": "q", "checkpointlocation": "/c"}
    assert ReadOptions.for_stream({**READING, **of_spark}) == stream()


def test_options_survive_pickling() -> None:
    options = batch(
        startingOffsets=_AT_3, endingOffsets=_AT_5, groupId="g", propertiesMode="none", minPartitions="4"
    )
    assert pickle.loads(pickle.dumps(options)) == options
    pattern = ReadOptions.for_stream({**NAME_SERVERS, "subscribePattern": "a.*"})
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))


def test_pattern_with_python_future_warning_is_accepted() -> None:
    options = ReadOptions.for_stream({**NAME_SERVERS, "subscribePattern": "[[a]"})
    assert options.subscribe_pattern is not None
    assert options.subscribe_pattern.pattern == "[[a]"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("subscibe", "did you mean subscribe"),
        ("startingOffset", "did you mean startingOffsets"),
        ("startingoffsetsbytimestmp", "did you mean startingOffsetsByTimestamp"),
        ("topic", "the name here is subscribe"),
        ("nameServer", "the name here is rocketmq.namesrv.addr"),
        ("kafka.bootstrap.servers", "the name here is rocketmq.namesrv.addr"),
        (
            "rocketmq.accessKeyId",
            "settings of the client are rocketmq.namesrv.addr, rocketmq.serialize.type, ",
        ),
        ("zzz", "options for reading are assign, batchBytes, "),
        ("z" * 100_000, "options for reading are assign, batchBytes, "),
    ],
)
def test_unknown_option_is_rejected_with_a_suggestion(name: str, advice: str) -> None:
    with pytest.raises(UnknownOption) as refusal:
        ReadOptions.for_batch({**READING, name: "sesame"})
    assert advice in str(refusal.value)
    assert "sesame" not in str(refusal.value)
    assert len(str(refusal.value)) < 1500


@pytest.mark.parametrize("mode", list(Mode))
def test_name_servers_are_required(mode: Mode) -> None:
    with pytest.raises(
        OptionError, match=r"rocketmq\.namesrv\.addr is not given: it must be name server addresses"
    ):
        ReadOptions.read({"subscribe": "orders"}, mode)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "subscribe is not given: it must be given, or one of subscribePattern and assign"),
        (
            {"subscribe": "a", "subscribePattern": "b"},
            "subscribePattern is 'b': .* left out, because subscribe",
        ),
        (
            {"subscribePattern": "b", "assign": '{"a":{"b":[0]}}'},
            "assign is .* because subscribePattern is given",
        ),
    ],
)
def test_exactly_one_way_to_select_topics(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        ReadOptions.for_stream({**NAME_SERVERS, **given})


@pytest.mark.parametrize(
    ("given", "wanted", "unwanted"),
    [
        ({"subscribe": "orders,bills"}, QueueKey("bills", "b", 9), QueueKey("ordersx", "b", 0)),
        ({"subscribePattern": "orders|b.*"}, QueueKey("bills", "b", 9), QueueKey("ordersx", "b", 0)),
        ({"assign": '{"orders":{"b":[1,0]}}'}, QueueKey("orders", "b", 1), QueueKey("orders", "b", 2)),
    ],
)
def test_selected_queues(given: dict[str, str], wanted: QueueKey, unwanted: QueueKey) -> None:
    options = ReadOptions.for_stream({**NAME_SERVERS, **given})
    assert options.wants(wanted)
    assert not options.wants(unwanted)


def test_positions() -> None:
    at_5 = QueueOffsets({QueueKey("orders", "b", 0): 5})
    assert batch(startingOffsets=_AT_5).starting(Mode.BATCH) == AtOffsets(at_5)
    assert batch(startingTimestamp="0").starting(Mode.BATCH) == AtTime(0)
    strict = {"startingOffsetsByTimestampStrategy": "error"}
    assert batch(startingTimestamp="0", **strict).starting(Mode.BATCH) == AtTime(0, must_exist=True)
    by_queue = batch(startingOffsetsByTimestamp=_AT_5, **strict).starting(Mode.BATCH)
    assert by_queue == AtTimes(at_5, must_exist=True)
    assert batch(startingOffsetsByTimestamp=_AT_5).starting(Mode.BATCH) == AtTimes(at_5)
    assert batch(endingOffsets=_AT_5).ending == AtOffsets(at_5)
    assert batch(endingTimestamp="0").ending == AtTime(0)
    assert batch(endingOffsetsByTimestamp=_AT_5).ending == AtTimes(at_5)
    assert stream(startingOffsets="group", groupId="g").starting(Mode.STREAM) is Anchor.GROUP
    assert batch(endingOffsets="group", groupId="g").ending is Anchor.GROUP


@each_row(
    ("given", "complaint"),
    [
        (
            {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "startingTimestamp is '5': it must be left out, because startingOffsets is given",
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": _AT_5},
            "startingOffsetsByTimestamp is .* because startingTimestamp is given",
        ),
        ({"endingOffsets": "latest", "endingTimestamp": "5"}, "endingTimestamp is '5': .* left out"),
        (
            {"startingOffsets": "latest"},
            "startingOffsets is 'latest': .* a batch with latest there is empty",
        ),
        (
            {"startingOffsets": '{"orders":{"b":{"0":-1}}}'},
            r"startingOffsets is .* latest there is empty \(-1 for orders/b/0\)",
        ),
        (
            {"startingOffsets": _AT_5, "endingOffsets": _AT_3},
            r"endingOffsets is .* at or after the start of reading \(orders/b/0\)",
        ),
        (
            {"startingOffsetsByTimestamp": _AT_5, "endingOffsetsByTimestamp": _AT_3},
            "endingOffsetsByTimestamp is .* at or after the start of reading",
        ),
        (
            {"startingTimestamp": "5", "endingTimestamp": "4"},
            "endingTimestamp is '4': it must be at or after startingTimestamp",
        ),
        (
            {"startingOffsets": "group"},
            "groupId is not given: it must be given, because startingOffsets needs",
        ),
        ({"endingOffsets": "group"}, "groupId is not given: it must be given, because endingOffsets needs"),
        ({"subExpressionType": "SQL92"}, "subExpression is not given: .* because subExpressionType is SQL92"),
    ],
)
def test_contradicting_options_of_a_batch_are_rejected(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        batch(**given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            r"minOffsetsPerTrigger is '6': it must be at most maxOffsetsPerTrigger \(5\)",
        ),
        (
            {"commitOffsetsToGroup": "true"},
            "groupId is not given: .* because commitOffsetsToGroup needs a group",
        ),
    ],
)
def test_contradicting_options_of_a_stream_are_rejected(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        stream(**given)


def test_allowed_combinations() -> None:
    batch(startingOffsets='{"orders":{"b":{"0":-2}}}', endingOffsets='{"orders":{"b":{"0":-1}}}')
    batch(startingOffsets=_AT_5, endingOffsets=_AT_5)
    batch(startingOffsets=_AT_5, endingOffsets='{"orders":{"b":{"0":-1}}}')
    batch(startingTimestamp="5", endingTimestamp="5")
    stream(startingOffsets='{"orders":{"b":{"0":-1,"1":-2}}}')
    stream(startingOffsets="latest", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    assert batch(subExpressionType="SQL92", subExpression="a || b > 3").expression == "a || b > 3"


def test_value_that_is_not_a_text_is_rejected() -> None:
    with pytest.raises(OptionError, match=r"minPartitions is '4': .* \(the value must be a text, not int\)"):
        ReadOptions.for_batch({**READING, "minPartitions": 4})  # type: ignore[dict-item]
