"""`rmq produce`, `consume`, `message`, `offset`, `dlq`, `transaction`, `trace`, `lag` and `bench`."""

from __future__ import annotations

import csv
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from rmq_cli.exits import Exit
from rmq_client import ConsumeResult, Message, MessageExt, Tracing
from rmq_client.blocking import Producer, PushConsumer
from tests.support.clusters import RunningCluster
from tests.support.command_line import CommandLine
from tests.support.waiting import until_in_thread


@pytest.fixture
def topic(rmq: CommandLine, request: pytest.FixtureRequest) -> str:
    """A topic of the test, with one queue."""
    name = request.node.name.removeprefix("test_")[:60]
    rmq.ok(f"topic create {name} --queues 1")
    return str(name)


def test_messages_are_sent_and_printed(rmq: CommandLine, topic: str, tmp_path: Path) -> None:
    [sent] = rmq.ok(f"produce {topic} 'order 1' --tag paid --key 4711 --property shop=7 -o json").json_lines
    assert (sent["broker"], sent["offset"]) == ("broker-a", 0)
    file = tmp_path / "orders.txt"
    file.write_text("order 2\n\norder 3\n")
    assert "sent 2 messages" in rmq.ok(f"produce {topic} --file {file} --quiet").errors
    lines = json.dumps({"body": {"n": 4}, "tags": "sent", "properties": {"shop": "8"}})
    rmq.ok(f"produce {topic} --json --sharding-key s", given=lines)
    printed = rmq.ok(f"consume {topic} -o json").json_lines
    bodies = [each["body"] for each in printed]
    assert (bodies[0], {*bodies[1:3]}, bodies[3]) == ("order 1", {"order 2", "order 3"}, '{"n": 4}')
    first = printed[0]
    assert (first["tags"], first["keys"], first["properties"]) == ("paid", ["4711"], {"shop": "7"})
    assert rmq.ok(f"consume {topic} --tag sent --format body").text == '{"n": 4}\n'
    assert rmq.ok(f"consume {topic} --count 2 --format '{{queue}}@{{offset}}'").text == "0@0\n0@1\n"
    assert rmq.ok(f"consume {topic} --from latest").text == ""
    assert len(rmq.ok(f"consume {topic} --from 1h --until now -o csv").text.splitlines()) == 5
    assert "order 1" in rmq.ok(f"consume {topic} --queue broker-a:0 --count 1").text
    assert "0 of 1 messages" in rmq.refused(f"consume {topic} -f --count 1 --idle 50ms", Exit.CONDITION)


def test_a_failed_send_tells_how_many_messages_are_stored(rmq: CommandLine, topic: str) -> None:
    told = rmq.refused(f"produce {topic} --file -", Exit.USAGE)
    assert "cannot be read" in told
    lines = "first\n" + "x" * (5 * 1024 * 1024) + "\nthird\n"
    told = rmq.refused(f"produce {topic} --sharding-key s", Exit.USAGE, given=lines)
    assert "1 send failed after 1 message" in told
    assert rmq.ok(f"consume {topic} --format body").text == "first\n"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b'{"body": "1"}\n{"body": "2"}\n{', "is no JSON: .*; 2 messages were sent before it"),
        (
            b'{"body": "1"}\n{"keys": ["k"]}',
            "'body' or 'body_base64' is needed; 1 message was sent before it",
        ),
        (b'{"body": "1", "properties": ["colour"]}', "'properties' must be an object of names and texts"),
        (b'{"body": "1", "properties": {"colour": 5}}', "colour"),
        (b'{"body": "1", "keys": 5}', "keys"),
        (b'{"body_base64": "no base64"}', "the body cannot be encoded"),
        (b'{"body": "1"}\n\xff', "the input is not UTF-8: .* at byte"),
    ],
)
def test_a_line_that_is_no_message_is_told(rmq: CommandLine, tmp_path: Path, lines: bytes, told: str) -> None:
    file = tmp_path / "lines"
    file.write_bytes(lines)
    errors = rmq.refused(f"produce T --json --quiet --file {file}", Exit.USAGE)
    assert re.search(told, errors) and "Traceback" not in errors


def test_an_export_can_be_sent(rmq: CommandLine, topic: str, cluster: RunningCluster, tmp_path: Path) -> None:
    with Producer(cluster.address, group="senders") as producer:
        producer.send(Message(topic, b"\xff\x00", tags="raw", keys=["k"], properties={"shop": "7"}))
        producer.send(Message(topic, b"text"))
    file = tmp_path / "messages.jsonl"
    rmq.ok(f"message export {topic} {file}")
    rmq.ok(f"produce {topic} --json --queue broker-a:0 --file {file}")
    before, copies = cluster.broker.messages(topic)[:2], cluster.broker.messages(topic)[2:]
    assert [(each.body, each.tags, each.keys, each.user_properties) for each in copies] == [
        (each.body, each.tags, each.keys, each.user_properties) for each in before
    ]


def test_new_messages_are_followed(rmq: CommandLine, topic: str, cluster: RunningCluster) -> None:
    rmq.ok(f"produce {topic} old")
    with (
        ThreadPoolExecutor(1) as threads,
        Producer(cluster.address, group="senders") as producer,
    ):
        printing = threads.submit(rmq.ok, f"consume {topic} --follow --count 2 --format body")

        def is_printed() -> bool:
            producer.send(Message(topic, b"new"))
            return printing.done()

        until_in_thread(is_printed)
        assert printing.result().text == "new\nnew\n"


def test_a_group_consumes_and_commits(rmq: CommandLine, topic: str) -> None:
    rmq.ok(f"produce {topic} 1 2 3 --queue broker-a:0")
    consume = f"consume {topic} --group printing --from earliest --format body"
    assert rmq.ok(f"{consume} --count 2").text == "1\n2\n"
    assert rmq.ok(f"{consume} --count 1 --idle 5s").text == "3\n"
    assert rmq.ok("lag printing -o json").json[0]["lag"] == 0


def test_a_group_consumes_every_queue_until_a_time(rmq: CommandLine) -> None:
    rmq.ok("topic create until-a-time --queues 2")
    rmq.ok("produce until-a-time 1 2 3 4 5 --queue broker-a:1")
    stored = [each["stored"] for each in rmq.ok("message list until-a-time -o json").json]
    end_ms = int(max(map(datetime.fromisoformat, stored)).timestamp() * 1000) + 1
    until_in_thread(lambda: time.time() * 1000 > end_ms)
    rmq.ok("produce until-a-time late --queue broker-a:0")
    rmq.ok("produce until-a-time late --queue broker-a:1")
    line = f"consume until-a-time --group until --from earliest --until {end_ms} --idle 2s --format body"
    assert rmq.ok(line).text.split() == ["1", "2", "3", "4", "5"]
    rows = {row["queue"]: row for row in rmq.ok("offset show until --topic until-a-time -o json").json}
    assert rows[1]["committed"] == 5 and rows[1]["lag"] == 1, "all before the time, and nothing after it"
    assert rmq.ok("consume until-a-time --group until --idle 2s --format body").text.split() == ["late"] * 2


def test_a_group_consumes_by_properties(rmq: CommandLine, topic: str) -> None:
    rmq.ok("broker set broker-a enablePropertyFilter=true")
    bodies = [{"body": "eu", "properties": {"region": "eu"}}, {"body": "us"}]
    rmq.ok(f"produce {topic} --json", given="\n".join(map(json.dumps, bodies)))
    line = f"consume {topic} --group sql-{topic} --sql \"region = 'eu'\" --from earliest --format body"
    assert rmq.ok(f"{line} --count 1").text.split() == ["eu"]
    assert "does not go with --queue" in rmq.refused(f"{line} --queue broker-a:0", Exit.USAGE)


def test_messages_are_exported(rmq: CommandLine, topic: str, tmp_path: Path) -> None:
    rmq.ok(f"produce {topic}", given="one\ntwo\nthree\n")
    rmq.ok(f"produce {topic} paid --tag paid")
    file = tmp_path / "messages.jsonl"
    assert "4 messages" in rmq.ok(f"message export {topic} {file}").errors
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(record["body"] for record in records) == ["one", "paid", "three", "two"]
    assert "--force to replace it" in rmq.refused(f"message export {topic} {file}", Exit.USAGE)
    rmq.ok(f"message export {topic} {file} --tag paid --since 1h --force")
    assert [json.loads(line)["body"] for line in file.read_text().splitlines()] == ["paid"]
    rmq.refused(f"message export {topic} {tmp_path}/none/file", Exit.FAILED)


def test_messages_are_found_by_id_key_and_time(rmq: CommandLine, topic: str) -> None:
    [sent] = rmq.ok(f"produce {topic} found --key k1 -o json").json_lines
    assert rmq.ok(f"message get {topic} {sent['id']} -o json").json["body"] == "found"
    assert [each["id"] for each in rmq.ok(f"message query {topic} k1 -o json").json] == [sent["id"]]
    [row] = csv.DictReader(rmq.ok(f"message list {topic} --since 1h -o csv").text.splitlines())
    assert (row["id"], row["body"]) == (sent["id"], "found")
    assert "found" in rmq.ok(f"message list {topic} --limit 1").text
    assert rmq.ok(f"message list {topic} --since 2h --until 1h -o json").json == []
    assert rmq.ok(f"message track {topic} {sent['id']} -o json").json == []
    assert "no message with the id" in rmq.refused(f"message get {topic} {'0' * 32}", Exit.NOT_FOUND)


def test_offsets_are_shown_reset_skipped_and_copied(rmq: CommandLine, topic: str) -> None:
    rmq.ok(f"produce {topic} 1 2 3 --queue broker-a:0")
    for group in ("first", "second"):
        rmq.ok(f"group create {group}")
    preview = rmq.ok(f"offset reset first {topic} --to latest --dry-run -o json")
    assert (preview.json[0]["before"], preview.json[0]["after"]) == (None, 3)
    assert "would reset group first in 1 of 1 queues" in preview.errors
    assert rmq.refused(f"offset reset first {topic} --to latest", Exit.USAGE)
    rmq.ok(f"offset reset first {topic} --to-offset 1 --queue broker-a:0 --yes")
    [row] = rmq.ok(f"offset show first --topic {topic} -o json").json
    assert (row["committed"], row["end"], row["lag"]) == (1, 3, 2)
    [change] = rmq.ok(f"offset clone first second {topic} --yes -o json").json
    assert (change["before"], change["after"]) == (None, 1)
    assert "skip 2 messages" in rmq.ok(f"offset skip first {topic} --dry-run").errors
    rmq.ok(f"offset skip first {topic} --yes")
    assert rmq.ok(f"offset show first --topic {topic} -o json").json[0]["lag"] == 0
    [row] = rmq.ok(f"offset reset first {topic} --to 1h --yes -o json").json
    assert (row["after"], row["moved"]) == (0, -3)
    assert rmq.ok(f"offset search {topic} 1h -o json").json[0]["offset"] == 0
    for wrong in ("", "--to latest --to-offset 1", "--to-offset 1", "--to-offset 9 --queue broker-a:0"):
        rmq.refused(f"offset reset first {topic} {wrong} --yes", Exit.USAGE)


def test_lag_is_shown_watched_and_judged(rmq: CommandLine, topic: str) -> None:
    rmq.ok(f"produce {topic} 1 2 --queue broker-a:0")
    rmq.ok("group create behind")
    rmq.ok(f"offset reset behind {topic} --to earliest --yes")
    [row] = rmq.ok("lag behind -o json").json
    assert (row["topic"], row["lag"], row["queues"]) == (topic, 2, 1)
    assert "behind" in rmq.ok("lag").text
    [row] = rmq.ok(f"lag behind --topic {topic} --queues -o json").json
    assert (row["broker"], row["queue"], row["lag"]) == ("broker-a", 0, 2)
    ticks = rmq.ok("lag behind --watch 10ms --count 2 -o json").json_lines
    assert [tick["rows"][0]["lag"] for tick in ticks] == [2, 2]
    assert rmq.ok("lag behind --watch 10ms --count 3 -o csv").text.count("group,topic") == 1
    rmq.ok("lag behind --fail-above 2")
    assert "lag above 1: behind 2" in rmq.refused("lag behind --fail-above 1", Exit.CONDITION)
    rmq.refused("lag nobody", Exit.NOT_FOUND)


def test_dead_letters_are_listed_and_sent_again(
    rmq: CommandLine, topic: str, cluster: RunningCluster
) -> None:
    got: list[MessageExt] = []
    accepted: list[bool] = []

    def listen(messages: list[MessageExt]) -> ConsumeResult:
        got.extend(messages)
        return ConsumeResult.SUCCESS if accepted else ConsumeResult.LATER

    with PushConsumer(
        cluster.address,
        group="refusing",
        topics=[topic],
        listener=listen,
        max_reconsume_times=0,
        consume_from="first",
    ):
        rmq.ok(f"produce {topic} refused")
        until_in_thread(lambda: cluster.broker.messages("%DLQ%refusing"))
        [letter] = rmq.ok("dlq show refusing -o json").json
        assert (letter["body"], letter["origin"]) == ("refused", topic)
        assert topic in rmq.ok("dlq show refusing").text
        assert {"group": "refusing", "dead_letters": 1} in rmq.ok("dlq list -o json").json
        accepted.append(True)
        assert "would send 1 dead letter of" in rmq.ok("dlq resend refusing --all --dry-run").errors
        sent = rmq.ok(f"dlq resend refusing {letter['id']} --yes").errors
        assert sent == "sent 1 dead letter again to group refusing\n"
        until_in_thread(lambda: len(got) == 2)
    rmq.ok(f"dlq resend refusing --all --to-topic {topic} --yes")
    assert len(rmq.ok(f"consume {topic} --format body").text.split()) == 2
    assert "no dead letter X" in rmq.refused("dlq resend refusing X --yes", Exit.NOT_FOUND)
    rmq.refused("dlq resend refusing --yes", Exit.USAGE)


def test_traces_are_shown(rmq: CommandLine, topic: str, cluster: RunningCluster) -> None:
    with Producer(cluster.address, group="tracing", trace=Tracing(linger_seconds=0.01)) as producer:
        sent = producer.send(Message(topic, b"1"))
    [event] = rmq.ok(f"trace show {sent.msg_id} -o json").json
    assert (event["event"], event["group"], event["succeeded"]) == ("sent", "tracing", True)
    assert "no trace of message X" in rmq.refused("trace show X", Exit.NOT_FOUND)


def test_transactions_that_were_given_up_are_listed_and_checked_again(
    rmq: CommandLine, topic: str, cluster: RunningCluster
) -> None:
    with Producer(cluster.address, group="undecided") as producer:
        with producer.transaction(Message(topic, b"open")) as transaction:
            transaction.leave_open()
        until_in_thread(lambda: cluster.broker.messages("TRANS_CHECK_MAX_TIME_TOPIC"))
        [half] = rmq.ok("transaction list -o json").json
        assert half["body"] == "open"
        assert (
            "would let broker broker-a check" in rmq.ok(f"transaction resume {half['id']} --dry-run").errors
        )
        rmq.ok(f"transaction resume {half['offset_id']}")
    rmq.refused(f"transaction resume {'0' * 32}", Exit.NOT_FOUND)


def test_benchmarks_measure_sends_and_reads(rmq: CommandLine, topic: str) -> None:
    sends = rmq.ok(f"bench produce {topic} --messages 50 --size 10 --concurrency 4 -o json").json
    assert sends["messages"] == 50 and sends["messages_per_second"] > 0 and sends["p99_ms"] > 0
    reads = rmq.ok(f"bench consume {topic} --messages 40 -o json").json
    assert reads["messages"] == 40 and reads["messages_per_second"] > 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("consume T --tag a --sql b", "--tag or --sql"),
        ("consume T --format '{colour}'", "write names in braces"),
        ("consume T --from yesterdayish", "time 'yesterdayish' cannot be read"),
        ("consume T --queue broker-a", "write BROKER:ID"),
        ("produce T x --delay soon", "duration 'soon' cannot be read"),
        ("produce T x --property colour", "write KEY=VALUE"),
        ("produce T --json", "is no JSON"),
        ("produce T --file /nowhere/orders.txt", "cannot be read"),
    ],
)
def test_wrong_values_are_told(rmq: CommandLine, line: str, told: str) -> None:
    assert told in rmq.refused(line, Exit.USAGE, given="{")
