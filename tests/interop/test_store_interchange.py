"""Store directories that this project's broker and Apache's open in turn.

Apache's Java client reads all messages, and every field is compared. Files are small, so that they roll over.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.store.api import MessageStore, RecordTemplate, pack_host
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.java_hash import tags_code
from tests.interop.checks import expected_bodies
from tests.interop.foreign import JavaShell
from tests.interop.store_hands import (
    MOST_BY_UNIQUE_KEY,
    LookUp,
    Queue,
    Serving,
    Stored,
    check_begins_with,
    comparable,
)
from tests.support import golden_store
from tests.support.apache import ApacheBroker
from tests.support.broker_load import Load, read_all
from tests.support.broker_requests import request
from tests.support.broker_settings import broker_settings
from tests.support.outcome import Event
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.processes import run_command
from tests.support.raw_client import raw_client
from tests.support.toolchain import JavaProgram

pytestmark = pytest.mark.java

# Checks would append half messages again during the comparison.
SETTINGS = {**golden_store.SETTINGS, "transactionCheckInterval": "3600000"}
# 600 of these fill most of a log file of 1 MiB.
MESSAGES = 600
MESSAGE_BYTES = 1500
GROUP = "went-on"
# Too long for the topic of a V1 record.
LONG_GROUP = "g" * 200
LONG_TOPIC = "%RETRY%" + LONG_GROUP
BATCH_TOPIC = "Batches"
_V6_HOSTS = pack_host("2001:db8::1", 10911), pack_host("2001:db8::2", 4444)
# Not looked up by key: topics with deliveries of Apache's broker, and batches with one key for all messages.
_WITHOUT_LOOK_UPS = ("SCHEDULE_TOPIC_XXXX", "TopicDelay", "TopicTimer", BATCH_TOPIC)
_LOADED = 3000
_DELIVERED_SECONDS = 20.0
_KEYS_LOOKED_UP = 60
_VIEWED = 40


# --- Apache's directories ---


@pytest.mark.parametrize("name", golden_store.NAMES)
async def test_this_broker_serves_apaches_directories(
    own_shell: JavaShell, name: str, tmp_path: Path
) -> None:
    """All messages and keys are found, and the log is unchanged; delayed messages are appended to it."""
    root = golden_store.unpack(name, tmp_path)
    rows = golden_store.manifest(name)
    end = rows[-1]["phyOffset"] + rows[-1]["size"]
    log = log_of(root, end)
    expected = expected_of(rows)
    async with (
        OwnNamesrv() as namesrv,
        OwnBroker(namesrv.address, home=tmp_path, settings=SETTINGS) as broker,
    ):
        serving = Serving(own_shell, namesrv.address, broker)
        scanned = await serving.scan(expected)
        check_begins_with(scanned, expected)
        delayed = [row["properties"] for row in rows if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
        await deliver_all(serving, delayed)
        # These are found a second time, in their own queues.
        moved = {properties["REAL_TOPIC"] for properties in delayed}
        look_ups = dict(expected_look_ups(name))
        await serving.finds({key: found for key, found in look_ups.items() if key.topic not in moved})
        by_offset = {message["commitLogOffset"]: message for queue in expected.values() for message in queue}
        viewed = sorted(by_offset)[:: len(by_offset) // _VIEWED]
        assert await serving.view(viewed) == [by_offset[offset] for offset in viewed]
        await broker.stop()
        if name != "damaged":
            assert broker.logged_errors() == []
    assert log_of(root, end) == log


async def deliver_all(serving: Serving, delayed: list[dict[str, str]]) -> None:
    """Wait until all delayed messages were delivered."""
    wanted: dict[Queue, set[str]] = defaultdict(set)
    for properties in delayed:
        queue = properties["REAL_TOPIC"], int(properties["REAL_QID"])
        wanted[queue].add(properties["UNIQ_KEY"])
    async with asyncio.timeout(_DELIVERED_SECONDS):
        while wanted:
            scanned = await serving.scan(wanted)
            keys = {
                queue: {message["properties"]["UNIQ_KEY"] for message in found}
                for queue, found in scanned.items()
            }
            wanted = {queue: missing for queue, missing in wanted.items() if not missing <= keys[queue]}


def expected_of(rows: list[dict[str, Any]]) -> Stored:
    """The messages of a manifest in the form that the Java client prints."""
    stored: Stored = defaultdict(list)
    for row in rows:
        shown = {
            **row,
            "commitLogOffset": row["phyOffset"],
            "storeSize": row["size"],
            "bodySize": row["uncompressedBodySize"],
            "bodySha256": row["uncompressedBodySha256"],
            "bornHost": "/" + row["bornHost"],
            "storeHost": "/" + row["storeHost"],
        }
        stored[row["topic"], row["queueId"]].append(comparable(shown))
    return dict(stored)


def expected_look_ups(name: str) -> Iterator[tuple[LookUp, list[int]]]:
    """The Java client's results for the entries in Apache's index, without other keys with the same hash."""
    rows = {row["phyOffset"]: row for row in golden_store.manifest(name)}
    unique_keys = {row["uniqKey"] for row in rows.values()}
    for row in golden_store.look_ups(name):
        unique = row["key"] in unique_keys
        look_up = LookUp(
            row["topic"],
            row["key"],
            unique,
            row.get("begin", 0),
            row.get("end", 2**63 - 1),
            row.get("max", 64),
        )
        found = row["phyOffsets"][:MOST_BY_UNIQUE_KEY] if unique else row["phyOffsets"]
        yield look_up, [offset for offset in sorted(found) if has_key(rows[offset], look_up)]


def has_key(row: Mapping[str, Any], look_up: LookUp) -> bool:
    if look_up.unique:
        return bool(row["uniqKey"] == look_up.key)
    return row["topic"] == look_up.topic and look_up.key in (row["keys"] or "").split(" ")


def log_of(root: Path, end: int) -> bytes:
    """The log up to an offset."""
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


# --- several brokers in turn ---


@pytest.mark.timeout(300, func_only=True)  # Apache's broker starts twice, and stops slowly
@pytest.mark.long
async def test_brokers_take_over_a_directory_in_turn(
    apache_program: JavaProgram, own_shell: JavaShell, tmp_path: Path
) -> None:
    """Apache's, this (stopped), Apache's (killed), this (killed under load), Apache's (stopped), this.

    Each broker finds all messages of those before it, byte by byte, and adds messages.
    """
    root = golden_store.unpack("clean", tmp_path)
    rows = golden_store.manifest("clean")
    end = rows[-1]["phyOffset"] + rows[-1]["size"]
    log = log_of(root, end)
    known = expected_of(rows)
    async with OwnNamesrv() as namesrv:
        hands = Hands(own_shell, apache_program, namesrv.address, tmp_path)

        async with hands.ours() as own:
            serving = hands.serving(own)
            known = await check_serves(serving, known)
            await serving.create_topic("Ours", queues=4)
            known |= await add_all_kinds(serving, "Ours")
            assert await serving.commit("Ours", GROUP, 0, 20) == 0
            await own.stop()
        await check_verified(root)
        add_topic(root, LONG_TOPIC)
        await store_long_topics(root)
        known[LONG_TOPIC, 0] = []

        async with hands.apaches() as apache:
            serving = hands.serving(apache)
            known = await check_serves(serving, known)
            check_hosts(known[LONG_TOPIC, 0])
            assert await serving.commit("Ours", GROUP, 0, 20) == 20
            await serving.create_topic("Apaches", queues=4)
            known |= await add_all_kinds(serving, "Apaches")
            known |= await add_retries(serving, known["Ours", 0][:3])
            await serving.create_topic(BATCH_TOPIC, queues=4, attribute={"+queue.type": "BatchCQ"})
            known |= await add_whole_batches(serving)
            apache.kill()

        async with hands.ours() as own:
            serving = hands.serving(own)
            known = await check_serves(serving, known)
            assert await serving.commit("Ours", GROUP, 0, 20) in (
                20,
                40,
            )  # Apache's broker writes it every 5 s
            known |= await add_all_kinds(serving, "Ours")
            known |= await add_whole_batches(serving)
            async with Load(own.port, connections=6, topics=2) as load:
                await load.until_acknowledged(_LOADED)
                own.kill()

        async with hands.apaches() as apache:
            load.acknowledged.check(await read_all(apache.port, load.queues))
            serving = hands.serving(apache)
            known = await check_serves(serving, known | {queue: [] for queue in load.queues})
            known |= await add_all_kinds(serving, "Apaches")
            before_last = await serving.commit("Ours", GROUP, 1, 20)
            await apache.stop(timeout_s=60)
        await store_long_topics(root)

        async with hands.ours() as own:
            serving = hands.serving(own)
            known = await check_serves(serving, known)
            check_hosts(known[LONG_TOPIC, 0][-4:])
            assert await serving.commit("Ours", GROUP, 1, 20) == before_last + 20
            await own.stop()
            assert own.logged_errors() == []
    await check_verified(root)
    assert log_of(root, end) == log


class Hands:
    """Starts brokers on one directory in turn."""

    def __init__(
        self, shell: JavaShell, apache_program: JavaProgram, namesrv_address: str, home: Path
    ) -> None:
        self._shell = shell
        self._program = apache_program
        self._namesrv_address = namesrv_address
        self._home = home

    def ours(self) -> OwnBroker:
        return OwnBroker(self._namesrv_address, home=self._home, settings=SETTINGS)

    def apaches(self) -> ApacheBroker:
        registering = {"compressedRegister": "true", "enableSingleTopicRegister": "true"}
        return ApacheBroker(
            self._program, self._namesrv_address, home=self._home, settings={**SETTINGS, **registering}
        )

    def serving(self, broker: OwnBroker | ApacheBroker) -> Serving:
        return Serving(self._shell, self._namesrv_address, broker)


async def check_serves(serving: Serving, known: Stored) -> Stored:
    """Check that all known messages are stored and found by key; return the messages of the queues."""
    now = await serving.scan(known)
    check_begins_with(now, known)
    await serving.finds(some_keys(now))
    assert await serving.addresses("TopicPlain") == {"0": serving.broker.address}
    return now


async def check_verified(root: Path) -> None:
    """Check that `rmq-store verify` finds no error."""
    command = [sys.executable, "-m", "rmq_broker.store_tool.main", "verify", str(root)]
    verified = await run_command(command, timeout_s=60)
    assert verified.exit_code == 0, str(verified)


def some_keys(stored: Stored) -> dict[LookUp, list[int]]:
    """Some keys and unique keys of topics without sends at this time, with their places."""
    found: dict[LookUp, list[int]] = defaultdict(list)
    for (topic, _), messages in stored.items():
        if topic in _WITHOUT_LOOK_UPS or topic.lower().startswith("rmq_sys_"):
            continue
        for message in messages:
            properties = message["properties"]
            keys = {LookUp(topic, key) for key in properties.get("KEYS", "").split(" ") if key}
            if "UNIQ_KEY" in properties:
                keys.add(LookUp(topic, properties["UNIQ_KEY"], unique=True))
            for key in keys:
                found[key].append(message["commitLogOffset"])
    few = {key: sorted(offsets) for key, offsets in found.items() if len(offsets) <= MOST_BY_UNIQUE_KEY}
    chosen = sorted(few, key=lambda key: few[key])
    return {key: few[key] for key in chosen[:: max(1, len(chosen) // _KEYS_LOOKED_UP)]}


async def add_all_kinds(serving: Serving, topic: str) -> Stored:
    """Send single messages, batches and compressed ones; return the messages of the topic."""
    before = await serving.scan(queues_of(topic))
    plain: dict[str, Any] = {"count": MESSAGES, "size": MESSAGE_BYTES, "compress_over": 10_000}
    await serving.send(topic, mode="selector", tag="plain", keys="k{} all", **plain)
    await serving.send(topic, mode="batch", count=40, tag="batch", keys="b{}", property={"größe": "klein"})
    for compression in ("zlib", "lz4", "zstd"):
        await serving.send(topic, count=3, size=20_000, compress=compression, tag=compression)
    after = await serving.scan(queues_of(topic))
    assert bodies_by_tag(before, after) == {
        "plain": expected_bodies(MESSAGES, MESSAGE_BYTES),
        "batch": expected_bodies(40),
        **{compression: expected_bodies(3, 20_000) for compression in ("zlib", "lz4", "zstd")},
    }
    return after


async def add_whole_batches(serving: Serving) -> Stored:
    """Send batches, which such a topic stores as one record each, and single messages."""
    before = await serving.scan(queues_of(BATCH_TOPIC))
    await serving.send(BATCH_TOPIC, mode="batch", count=40, batch=8, tag="batch")
    await serving.send(BATCH_TOPIC, count=3, tag="one")
    after = await serving.scan(queues_of(BATCH_TOPIC))
    assert bodies_by_tag(before, after) == {"batch": expected_bodies(40), "one": expected_bodies(3)}
    places = {message["commitLogOffset"] for messages in after.values() for message in messages}
    stored_before = {message["commitLogOffset"] for messages in before.values() for message in messages}
    assert len(places - stored_before) == 40 // 8 + 3
    return after


def queues_of(topic: str) -> list[Queue]:
    return [(topic, queue_id) for queue_id in range(4)]


def bodies_by_tag(before: Stored, after: Stored) -> dict[str, list[str]]:
    """The digests of the added messages."""
    check_begins_with(after, before)
    bodies: dict[str, list[str]] = defaultdict(list)
    for queue, messages in after.items():
        for message in messages[len(before[queue]) :]:
            bodies[message["properties"]["TAGS"]].append(message["bodySha256"])
    return {tag: sorted(digests) for tag, digests in bodies.items()}


# --- records with long topics and hosts ---


async def store_long_topics(root: Path) -> None:
    """Store V2 records with IPv4 and IPv6 hosts directly, because no client can send to such a topic."""
    ours = {field.alias for field in BrokerSettings.model_fields.values()}
    sizes = {key: value for key, value in SETTINGS.items() if key in ours}
    settings = broker_settings(storePathRootDir=str(root), **sizes)
    store = MessageStore(settings, settings, settings, is_batch=lambda topic: topic == BATCH_TOPIC)
    store.open()
    for born_host in (pack_host("10.0.0.2", 4444), _V6_HOSTS[1]):
        for store_host in (pack_host("10.0.0.1", 10911), _V6_HOSTS[0]):
            template = RecordTemplate(
                LONG_TOPIC,
                0,
                flag=7,
                sys_flag=0,
                reconsume_times=1,
                born_host_bytes=len(born_host),
                store_host=store_host,
            )
            store.put(
                store.queues.get_or_create(LONG_TOPIC, 0),
                template,
                b"a long topic",
                b"TAGS\x01long\x02",
                tags_code=tags_code("long"),
                born_timestamp_ms=time.time_ns() // 1_000_000,
                born_host=born_host,
            )
    await store.stop()


def check_hosts(messages: list[Event]) -> None:
    """Check that messages are those of `store_long_topics`."""
    hosts = [(message["bornHost"], message["storeHost"]) for message in messages]
    born_hosts = ("/10.0.0.2:4444", "/[2001:db8:0:0:0:0:0:2]:4444")
    store_hosts = ("/10.0.0.1:10911", "/[2001:db8:0:0:0:0:0:1]:10911")
    assert hosts == [(born, store) for born in born_hosts for store in store_hosts]


def add_topic(root: Path, topic: str) -> None:
    """Create a retry topic as Apache's broker does."""
    path = root / "config" / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"][topic] = {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 1,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }
    path.write_text(json.dumps(content))


async def add_retries(serving: Serving, messages: list[Event]) -> Stored:
    """Let Apache's broker redeliver messages to the group with the long name, as V2 records.

    (It allows such long names only for retry topics: HookUtils.checkBeforePutMessage.)
    """
    queue = (LONG_TOPIC, 0)
    before = len((await serving.scan([queue]))[queue])
    async with raw_client(serving.broker.port) as client:
        for message in messages:
            again = request(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                offset=message["commitLogOffset"],
                group=LONG_GROUP,
                delayLevel=1,
                originMsgId="",
                originTopic=message["topic"],
            )
            answer = await client.ask(again)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    async with asyncio.timeout(_DELIVERED_SECONDS):
        while len((stored := await serving.scan([queue]))[queue]) < before + len(messages):
            pass
    bodies = [message["bodySha256"] for message in messages]
    assert [message["bodySha256"] for message in stored[queue][before:]] == bodies
    return stored
