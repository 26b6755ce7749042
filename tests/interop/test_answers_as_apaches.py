"""The same calls of Apache's Java client to Apache's servers and to this project's: equal answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop.clusters import Apache, Own
from tests.interop.foreign import JavaShell
from tests.support.outcome import Event, Option, Outcome

Call = tuple[str, dict[str, Option]]

BROKER = "broker-a"
TOPIC_NAME = "TOPIC"

pytestmark = pytest.mark.java


class Pair:
    """A Java client and two clusters."""

    def __init__(self, shell: JavaShell, own: Own, apache: Apache) -> None:
        self._shell = shell
        self._clusters: dict[str, Own | Apache] = {"ours": own, "apache": apache}

    async def run(self, *words: str, **options: Any) -> dict[str, Outcome]:
        """Run a command with each cluster; return the outcomes."""
        return {name: await self.run_one(name, *words, **options) for name in self._clusters}

    async def run_one(self, cluster: str, /, *words: str, **options: Any) -> Outcome:
        """Run a command with one cluster; return the outcome."""
        namesrv, _ = self._clusters[cluster]
        return await self._shell.run(*words, **{**options, "namesrv": namesrv.address})

    async def check_admin(self, action: str, options: Mapping[str, Option]) -> None:
        """Check that an admin call has the same result, or is refused with the same code."""
        outcomes = await self.run("admin", action, **options)
        answers = {name: self._answer(name, outcome) for name, outcome in outcomes.items()}
        assert answers["ours"] == answers["apache"], f"{action} {options}"

    def _answer(self, name: str, outcome: Outcome) -> object:
        if outcome.error is not None:
            return outcome.error["class"], outcome.error["code"]
        text = json.dumps(outcome.result, sort_keys=True)
        text = text.replace(self._clusters[name][1].address, "ADDRESS")
        # Times.
        return json.loads(re.sub(r"\b1[78]\d{11}\b", "0", text))


@pytest.fixture(scope="module")
def pair(own_shell: JavaShell, own: Own, apache: Apache) -> Pair:
    return Pair(own_shell, own, apache)


async def both_have_topic(pair: Pair, topic: str) -> None:
    created = await pair.run("admin", "createAndUpdateTopicConfig", topic=topic, queues=4)
    assert all(outcome.check().result["routeVisible"] for outcome in created.values())


QUESTIONS_ABOUT_TOPICS: list[Call] = [
    ("examineTopicConfig", {"topic": TOPIC_NAME}),
    ("examineTopicConfig", {"topic": "no-such-topic"}),
    ("examineTopicRouteInfo", {"topic": TOPIC_NAME}),
    ("examineTopicRouteInfo", {"topic": "no-such-topic"}),
    ("examineTopicStats", {"topic": TOPIC_NAME}),
    ("examineTopicStats", {"topic": "no-such-topic"}),
    ("maxOffset", {"topic": TOPIC_NAME, "queue": 1}),
    ("maxOffset", {"topic": TOPIC_NAME, "queue": 2}),
    ("maxOffset", {"topic": TOPIC_NAME, "queue": 77}),
    ("maxOffset", {"topic": "no-such-topic", "broker": BROKER}),
    ("minOffset", {"topic": TOPIC_NAME, "queue": 1}),
    ("minOffset", {"topic": TOPIC_NAME, "queue": 77}),
    ("searchOffset", {"topic": TOPIC_NAME, "queue": 1, "timestamp": 0}),
    ("searchOffset", {"topic": TOPIC_NAME, "queue": 1, "timestamp": 99_999_999_999_999}),
    ("searchOffset", {"topic": TOPIC_NAME, "queue": 2, "timestamp": 0}),
    ("earliestMsgStoreTime", {"topic": TOPIC_NAME, "queue": 1}),
    ("earliestMsgStoreTime", {"topic": TOPIC_NAME, "queue": 2}),
    ("examineBrokerClusterInfo", {}),
    ("fetchTopicsByCluster", {"cluster": "no-such-cluster"}),
    ("examineConsumerConnectionInfo", {"group": "no-such-group"}),
    ("examineProducerConnectionInfo", {"group": "no-such-group", "topic": TOPIC_NAME}),
    ("examineProducerConnectionInfo", {"group": "no-such-group", "topic": "no-such-topic"}),
]


async def test_queries_of_the_admin_api(pair: Pair, name: str) -> None:
    await both_have_topic(pair, name)
    sent = await pair.run("send", topic=name, count=5, mode="queue", queue=1)
    assert all(outcome.ok for outcome in sent.values())
    for action, options in QUESTIONS_ABOUT_TOPICS:
        mine = {key: name if value == TOPIC_NAME else value for key, value in options.items()}
        await pair.check_admin(action, mine)


async def test_the_topics_of_a_new_broker(pair: Pair) -> None:
    """System topics and groups, with all their settings."""
    topics = await pair.run("admin", "getAllTopicConfig")
    ours, apaches = ({**outcome.check().result["topics"]} for outcome in topics.values())
    system = {
        topic for topic in apaches if topic in SYSTEM_TOPICS or topic.startswith(("rmq_sys", "RMQ_SYS"))
    }
    assert len(system) > 10
    assert {topic: ours.get(topic) for topic in system} == {topic: apaches[topic] for topic in system}
    groups = await pair.run("admin", "getAllSubscriptionGroup")
    ours, apaches = ({**outcome.check().result["groups"]} for outcome in groups.values())
    system = {group for group in apaches if group.startswith(("CID_", "TOOLS_", "SELF_TEST", "FILTERSRV"))}
    assert len(system) > 5
    assert {group: ours.get(group) for group in system} == {group: apaches[group] for group in system}


QUESTIONS_ABOUT_MESSAGES: list[Call] = [
    ("queryMessage", {"topic": TOPIC_NAME, "key": "k3"}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "all"}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "all", "max": 2}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "all", "max": 1000}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "all", "max": 0}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "all", "end": 1000}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "all", "begin": 99_999_999_999_999}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "k9"}),
    ("queryMessage", {"topic": TOPIC_NAME, "key": "k3", "unique": True}),
    ("queryMessage", {"topic": "no-such-topic", "key": "k3"}),
    ("viewMessage", {"topic": TOPIC_NAME, "msg_id": "0" * 32}),
    ("viewMessage", {"topic": TOPIC_NAME, "msg_id": "nonsense"}),
    ("queryConsumeQueue", {"topic": TOPIC_NAME, "queue": 1}),
    ("queryConsumeQueue", {"topic": TOPIC_NAME, "queue": 1, "index": 2, "count": 2}),
    ("queryConsumeQueue", {"topic": TOPIC_NAME, "queue": 77}),
    ("queryConsumeQueue", {"topic": "no-such-topic"}),
    ("examineConsumeStats", {"group": TOPIC_NAME}),
    ("examineConsumeStats", {"group": TOPIC_NAME, "topic": TOPIC_NAME}),
    ("examineConsumeStats", {"group": TOPIC_NAME, "topic": "no-such-topic"}),
    ("examineConsumeStats", {"group": "no-such-group"}),
    ("fetchConsumeStatsInBroker", {"group": TOPIC_NAME}),
    ("fetchConsumeStatsInBroker", {"group": TOPIC_NAME, "order": True}),
    ("queryConsumeTimeSpan", {"topic": TOPIC_NAME, "group": TOPIC_NAME}),
    ("queryConsumeTimeSpan", {"topic": "no-such-topic", "group": TOPIC_NAME}),
    ("viewBrokerStatsData", {"name": "TOPIC_PUT_NUMS", "key": TOPIC_NAME}),
    ("viewBrokerStatsData", {"name": "TOPIC_PUT_SIZE", "key": TOPIC_NAME}),
    ("viewBrokerStatsData", {"name": "GROUP_GET_NUMS", "key": f"{TOPIC_NAME}@{TOPIC_NAME}"}),
    ("viewBrokerStatsData", {"name": "BROKER_PUT_NUMS", "key": "DefaultCluster"}),
    ("viewBrokerStatsData", {"name": "TOPIC_PUT_NUMS", "key": "no-such-topic"}),
    ("viewBrokerStatsData", {"name": "NO_SUCH_NUMS", "key": TOPIC_NAME}),
]


async def test_queries_about_messages_and_groups(pair: Pair, name: str) -> None:
    await both_have_topic(pair, name)
    sent = await pair.run("send", topic=name, count=5, mode="queue", queue=1, tag="A", keys="k{} all")
    assert all(outcome.ok for outcome in sent.values())
    pulled = await pair.run("pull", topic=name, group=name, count=5, commit=True)
    assert all(len(outcome.check().messages) == 5 for outcome in pulled.values())
    await both_find(pair, name, "all", 5)
    for action, options in QUESTIONS_ABOUT_MESSAGES:
        mine = {
            key: value.replace(TOPIC_NAME, name) if isinstance(value, str) and key != "name" else value
            for key, value in options.items()
        }
        await pair.check_admin(action, mine)
    # The ids differ, the messages that they name do not.
    for id_name in ("msgId", "offsetMsgId"):
        found = [
            await pair.run_one(cluster, "admin", "viewMessage", topic=name, msg_id=outcome.sent[2][id_name])
            for cluster, outcome in sent.items()
        ]
        ours, apaches = (outcome.check().result for outcome in found)
        assert ours == apaches and ours["queueOffset"] == 2


async def both_find(pair: Pair, topic: str, key: str, count: int) -> None:
    """Wait for the index: Apache's broker indexes a message after the answer to its send."""
    async with asyncio.timeout(20):
        while True:
            found = (await pair.run("admin", "queryMessage", topic=topic, key=key)).values()
            if all(outcome.ok and len(outcome.result["messages"]) == count for outcome in found):
                return


SYSTEM_TOPICS = {
    "TBW102",
    "SELF_TEST_TOPIC",
    "BenchmarkTest",
    "DefaultCluster",
    "broker-a",
    "OFFSET_MOVED_EVENT",
    "SCHEDULE_TOPIC_XXXX",
    "DefaultCluster_REPLY_TOPIC",
}

TOPIC_CHANGES: list[Call] = [
    ("createAndUpdateTopicConfig", {"read_queues": 3, "write_queues": 5, "order": True}),
    ("createAndUpdateTopicConfig", {"queues": 4, "attribute": {"+message.type": "FIFO"}}),
    ("createAndUpdateTopicConfig", {"queues": 4, "attribute": {"+message.type": "nonsense"}}),
    ("createAndUpdateTopicConfig", {"queues": 4, "attribute": {"+no.such.attribute": "1"}}),
    ("createAndUpdateTopicConfig", {"queues": 6, "perm": 4}),
    ("createAndUpdateTopicConfig", {"queues": 6, "perm": 99}),
    ("createAndUpdateTopicConfig", {"queues": 0}),
]
REFUSED_NAMES = ["bad topic", "SCHEDULE_TOPIC_XXXX", "x" * 128]


async def test_changes_of_topics(pair: Pair, name: str) -> None:
    for action, options in TOPIC_CHANGES:
        await pair.check_admin(action, {"topic": name, "await_route_ms": 2000, **options})
        await pair.check_admin("examineTopicConfig", {"topic": name})
        await pair.check_admin("examineTopicRouteInfo", {"topic": name})
    for refused in REFUSED_NAMES:
        await pair.check_admin("createAndUpdateTopicConfig", {"topic": refused})
        await pair.check_admin("deleteTopicInBroker", {"topic": refused})
    for topic in (name, "no-such-topic"):
        await pair.check_admin("deleteTopicInBroker", {"topic": topic})
        await pair.check_admin("deleteTopicInNameServer", {"topic": topic})
        await pair.check_admin("examineTopicConfig", {"topic": topic})
        await pair.check_admin("examineTopicRouteInfo", {"topic": topic})


async def test_changes_of_groups(pair: Pair, name: str) -> None:
    for options in ({}, {"retry_max_times": 3, "retry_queues": 2, "orderly": True}, {"disable": True}):
        await pair.check_admin("createAndUpdateSubscriptionGroupConfig", {"group": name, **options})
        groups = await pair.run("admin", "getAllSubscriptionGroup")
        ours, apaches = (outcome.check().result["groups"][name] for outcome in groups.values())
        assert ours == apaches
    for group in (name, "no-such-group"):
        await pair.check_admin("deleteSubscriptionGroup", {"group": group, "remove_offset": True})
    groups = await pair.run("admin", "getAllSubscriptionGroup")
    assert all(name not in outcome.check().result["groups"] for outcome in groups.values())


async def test_key_value_configuration(pair: Pair, name: str) -> None:
    entry: dict[str, Option] = {"namespace": name, "key": "k"}
    await pair.check_admin("getKVListByNamespace", {"namespace": name})
    await pair.check_admin("putKVConfig", {**entry, "value": "väl → ue"})
    await pair.check_admin("getKVConfig", entry)
    await pair.check_admin("getKVListByNamespace", {"namespace": name})
    await pair.check_admin("deleteKvConfig", entry)
    await pair.check_admin("deleteKvConfig", entry)
    await pair.check_admin("getKVConfig", entry)
    await pair.check_admin("getKVListByNamespace", {"namespace": name})


async def test_write_permission_and_settings(pair: Pair, name: str) -> None:
    await both_have_topic(pair, name)
    # The numbers of topics differ, because other tests created some.
    for action in ("wipeWritePerm", "addWritePerm"):
        changed = await pair.run("admin", action, broker=BROKER)
        assert all(outcome.check().result["topics"] > 10 for outcome in changed.values())
        await pair.check_admin("examineTopicRouteInfo", {"topic": name})
    await pair.check_admin("wipeWritePerm", {"broker": "no-such-broker"})
    await pair.check_admin("updateBrokerConfig", {"set": {"maxMessageSize": "100000"}})
    await pair.check_admin("updateBrokerConfig", {"set": {"maxMessageSize": str(4 * 1024 * 1024)}})
    await pair.check_admin("updateBrokerConfig", {"set": {"brokerConfigPath": "elsewhere"}})
    for permission in ("4", "6"):
        await pair.check_admin("updateBrokerConfig", {"set": {"brokerPermission": permission}})
        await pair.check_admin("examineTopicRouteInfo", {"topic": name})


@pytest.mark.parametrize(
    "options",
    [
        {"tag": "A", "keys": "k{}"},
        {"mode": "batch", "batch": 2, "keys": "k{}", "property": {"mine": "ä"}},
        {"size": 20_000, "compress": "zlib"},
        {"size": 20_000, "compress": "zstd"},
        {"mode": "oneway"},
        {"size": 1, "compress_over": 0},
    ],
    ids=["plain", "batch", "zlib", "zstd", "oneway", "tiny"],
)
async def test_stored_messages_are_equal(pair: Pair, name: str, options: dict[str, Option]) -> None:
    await both_have_topic(pair, name)
    sent = await pair.run("send", topic=name, count=2, **{"mode": "selector", **options})
    ours, apaches = (outcome.check().sent for outcome in sent.values())
    if options.get("mode") != "batch":
        assert [answer_in_short(result) for result in ours] == [answer_in_short(result) for result in apaches]
    pulled = await pair.run("pull", topic=name, group=name, count=2)
    stored = [sorted(map(message_in_short, outcome.check().messages)) for outcome in pulled.values()]
    assert stored[0] == stored[1]


def answer_in_short(result: Event) -> dict[str, Any]:
    """The fields of an answer that must be equal."""
    places = {name: result.get(name) for name in ("queueId", "queueOffset", "status", "regionId", "traceOn")}
    return {**places, "transactionId is msgId": result.get("transactionId") == result.get("msgId")}


def message_in_short(message: Event) -> str:
    """The fields of a message that must be stored equally."""
    fields: dict[str, Any] = {
        key: message[key]
        for key in (
            "queueOffset",
            "storeSize",
            "flag",
            "sysFlag",
            "reconsumeTimes",
            "tags",
            "keys",
            "bodySha256",
        )
    }
    properties = dict(message["properties"])
    properties["UNIQ_KEY"] = len(properties["UNIQ_KEY"])
    return json.dumps({**fields, "properties": properties}, sort_keys=True)
