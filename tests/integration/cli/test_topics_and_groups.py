"""`rmq topic` and `rmq group`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_cli.exits import Exit
from rmq_client import ConsumeResult, Message, MessageExt
from rmq_client.blocking import Producer, PushConsumer
from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.support.command_line import CommandLine
from tests.support.waiting import until_in_thread


def test_a_topic_is_created_shown_changed_and_deleted(rmq: CommandLine) -> None:
    assert "would create topic shown" in rmq.ok("topic create shown --queues 3 --dry-run").errors
    assert rmq.refused("topic show shown", Exit.NOT_FOUND)
    rmq.ok("topic create shown --queues 3 --attribute message.type=FIFO")
    assert "exists on broker-a" in rmq.refused("topic create shown", Exit.EXISTS)
    rmq.ok("topic create shown --if-missing")
    [row] = rmq.ok("topic show shown -o json").json
    assert (row["read_queues"], row["write_queues"], row["permission"]) == (3, 3, "rw")
    assert row["attributes"] == {"message.type": "FIFO"}
    rmq.ok("topic update shown --write-queues 5 --permission r")
    [row] = rmq.ok("topic show shown -o json").json
    assert (row["read_queues"], row["write_queues"], row["permission"]) == (3, 5, "r")
    assert rmq.ok("topic list 'show*' -o csv").text == "topic\nshown\n"
    assert len(rmq.ok("topic list -o json").json) < len(rmq.ok("topic list --all -o json").json)
    assert "pass --yes" in rmq.refused("topic delete shown", Exit.USAGE)
    assert "would delete topic shown with 0 messages" in rmq.ok("topic delete shown --dry-run").errors
    rmq.ok("topic delete shown --yes")
    told = rmq.refused("topic delete shown --yes", Exit.NOT_FOUND)
    assert "topic shown has no route" in told and "`topic list` has the names" in told


def test_a_topics_queues_route_and_groups(rmq: CommandLine) -> None:
    rmq.ok("produce T one two --queue broker-a:1")
    rows = {row["queue"]: row for row in rmq.ok("topic stats T -o json").json}
    assert rows[1]["messages"] == rows[1]["end_offset"] >= 2
    [row] = rmq.ok("topic route T -o json").json
    assert (row["broker"], row["read_queues"]) == ("broker-a", 2)
    rmq.ok("group create readers")
    rmq.ok("offset reset readers T --to earliest --yes")
    assert {"group": "readers"} in rmq.ok("topic groups T -o json").json


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("topic create wrong --permission x", "write rw, r or w"),
        ("topic create wrong --attribute x", "write KEY=VALUE"),
        ("topic create 'wrong name'", "only the characters"),
        ("topic create wrong --broker broker-z", "brokers known to the name servers: broker-a"),
        ("topic create wrong --queues 0", "--queues"),
    ],
)
def test_wrong_values_are_told_before_anything_happens(rmq: CommandLine, line: str, told: str) -> None:
    assert told in rmq.refused(line, Exit.USAGE)


def test_a_group_is_created_shown_changed_and_deleted(rmq: CommandLine) -> None:
    rmq.ok("group create till --max-retries 3 --ordered")
    assert rmq.refused("group create till", Exit.EXISTS)
    rmq.ok("group update till --no-consume")
    [row] = rmq.ok("group show till -o json").json
    assert (row["max_retries"], row["ordered"], row["consumes"]) == (3, True, False)
    assert {"group": "till"} in rmq.ok("group list -o json").json
    assert {"group": "TOOLS_CONSUMER"} in rmq.ok("group list --all -o json").json
    rmq.ok("group mode till T pop")
    rmq.ok("group mode till T pull")
    rmq.ok("group forbid till T")
    rmq.ok("group forbid till T --undo")
    assert rmq.ok("group topics till -o json").json == []
    assert "would delete group till from broker-a" in rmq.ok("group delete till --dry-run").errors
    rmq.ok("group delete till --yes")
    assert "group till is on none of broker-a" in rmq.refused("group show till", Exit.NOT_FOUND)


def test_running_clients_are_listed_and_asked(rmq: CommandLine, cluster: RunningCluster) -> None:
    got: list[MessageExt] = []

    def listen(messages: list[MessageExt]) -> ConsumeResult:
        got.extend(messages)
        return ConsumeResult.SUCCESS

    with PushConsumer(cluster.address, group="running", topics={"T": "x"}, listener=listen):
        sent = rmq.ok("produce T body --tag x -o json --group senders").json
        until_in_thread(lambda: len(got) == 1)
        [member] = rmq.ok("group members running -o json").json
        assert (member["language"], member["subscriptions"]["T"]) == ("PYTHON", "x")
        client = member["client"]
        state = rmq.ok(f"group state running {client} -o json").json
        assert state["subscription T"] == "x"
        outcome = rmq.ok(f"message deliver T {sent['id']} --group running --client {client} -o json").json
        assert outcome["result"] == "CR_SUCCESS" and len(got) == 2
        with Producer(cluster.address, group="senders") as producer:
            producer.send(Message("T", b"2"))
            [sender] = rmq.ok("group producers senders -o json").json
            assert (sender["group"], sender["language"]) == ("senders", "PYTHON")
    assert "connected are: none" in rmq.refused(f"group state running {client}", Exit.FAILED)


def test_a_static_topic_is_created_grown_and_shown(rmq: CommandLine) -> None:
    tried = rmq.ok("static-topic create S --queues 2 -b broker-a --dry-run")
    assert "would give static topic S" in tried.errors
    rmq.refused("static-topic show S", Exit.NOT_FOUND)
    rmq.ok("static-topic create S --queues 2 --broker broker-a")
    rmq.ok("static-topic create S --queues 3 --broker broker-a")
    rows = rmq.ok("static-topic show S -o json").json
    assert [(row["queue"], row["leader"], row["begin"]) for row in rows] == [
        (queue, "broker-a", 0) for queue in range(3)
    ]
    assert "no queue of S has to move" in rmq.ok("static-topic move S -b broker-a --dry-run").errors
    assert "would finish" in rmq.ok("static-topic repair S --dry-run").errors
    assert "S is whole" in rmq.ok("static-topic repair S").errors
    assert "cannot be lowered" in rmq.refused("static-topic create S --queues 1 -b broker-a", Exit.USAGE)
    assert "has no master" in rmq.refused("static-topic move S -b broker-z --yes", Exit.USAGE)


def test_a_static_topic_is_moved(tmp_path: Path) -> None:
    with cluster_in_a_thread(tmp_path, {"broker-a": {}, "broker-b": {}}) as cluster:
        rmq = CommandLine(cluster.address, tmp_path / "config.toml")
        rmq.ok("static-topic create S --queues 2 -b broker-a")
        [row] = rmq.ok("static-topic move S -b broker-a -b broker-b --dry-run -o json").json
        assert (row["from"], row["to"], row["begin"]) == ("broker-a", "broker-b", None)
        [row] = rmq.ok("static-topic move S -b broker-a -b broker-b --yes -o json").json
        assert row["begin"] == 10_000
        leaders = {each["queue"]: each["leader"] for each in rmq.ok("static-topic show S -o json").json}
        assert sorted(leaders.values()) == ["broker-a", "broker-b"]


def test_entries_of_a_queue(rmq: CommandLine) -> None:
    rmq.ok("topic create entries --queues 1")
    rmq.ok("produce entries one --tag a")
    rmq.ok("produce entries two")
    first, second = rmq.ok("topic entries entries broker-a:0 -o json").json
    assert (first["offset"], first["tags_code"], first["matches"]) == (0, 97, None)
    assert first["log_offset"] + first["bytes"] <= second["log_offset"]
    outcome = rmq.ok("topic entries entries broker-a:0 --from 1 --count 5 --group nobody -o json")
    assert [row["offset"] for row in outcome.json] == [1]
    assert "no consumer of group nobody" in outcome.errors
