"""Transactions: Java's producer with this project's broker, and the SDK's producer with both brokers.

The brokers check transactions after half a second, so that the tests take seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Set
from pathlib import Path

import pytest

from rmq_client import Message, MessageExt, Producer, PullConsumer, TransactionState
from rmq_client.admin import Admin
from tests.interop.clusters import Apache, Cluster, Own
from tests.interop.foreign import JavaClient, JavaShell
from tests.support import golden_store
from tests.support.apache import ApacheBroker, ApacheNamesrv, apache_cluster
from tests.support.own_servers import OwnBroker, OwnNamesrv, own_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

SETTINGS = {"transactionTimeOut": "500", "transactionCheckInterval": "500"}


@pytest.fixture(scope="module")
def own_quick() -> Iterator[Own]:
    with asyncio.Runner() as runner:
        cluster = own_cluster(SETTINGS)
        try:
            yield runner.run(cluster.__aenter__())
        finally:
            runner.run(cluster.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def apache_quick(apache_program: JavaProgram) -> Iterator[Apache]:
    with asyncio.Runner() as runner:
        cluster = apache_cluster(apache_program, SETTINGS)
        try:
            yield runner.run(cluster.__aenter__())
        finally:
            runner.run(cluster.__aexit__(None, None, None))


@pytest.fixture(scope="module", params=[pytest.param("apache_quick", marks=pytest.mark.java), "own_quick"])
def quick(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster, with early transaction checks."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(scope="module")
def java(java_program: JavaProgram, own_quick: Own, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    return JavaClient(java_program, own_quick[0].address, tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def shell(java: JavaClient) -> Iterator[JavaShell]:
    with java.shell() as running:
        yield running


async def _topic(cluster: Cluster, name: str) -> str:
    async with Admin(cluster[0].address) as admin:
        await admin.create_topic(name, queues=1)
    return name


async def _messages(cluster: Cluster, topic: str, count: int) -> list[MessageExt]:
    """Consume the first messages of a topic, and those received together with the last of them."""
    return await _read_until(cluster, topic, lambda messages: len(messages) >= count)


async def _bodies(cluster: Cluster, topic: str, wanted: Set[bytes]) -> list[bytes]:
    """Consume a topic until all of `wanted` were received."""
    messages = await _read_until(
        cluster, topic, lambda messages: wanted <= {message.body for message in messages}
    )
    return [message.body for message in messages]


async def _read_until(
    cluster: Cluster, topic: str, enough: Callable[[list[MessageExt]], bool]
) -> list[MessageExt]:
    async with PullConsumer(cluster[0].address, group=f"reader-of-{topic}", consume_from="first") as reader:
        await reader.assign(await reader.queues(topic))
        messages: list[MessageExt] = []
        async with asyncio.timeout(30):
            while not enough(messages):
                messages += await reader.poll()
        return messages


# --- Java's producer with this project's broker ---


@pytest.mark.java
async def test_java_commits_and_rolls_back(own_quick: Own, shell: JavaShell, name: str) -> None:
    topic = await _topic(own_quick, name)
    for say, count in (("rollback", 1), ("commit", 3)):
        outcome = (await shell.run("transact", topic=topic, group=name, count=count, say=say)).check()
        for sent in outcome.sent:
            assert (sent["status"], sent["transactionId"]) == ("SEND_OK", sent["msgId"])
    received = (await shell.run("consume", topic=topic, group=name, count=3)).check()
    assert {message["msgId"] for message in received.messages} == {sent["msgId"] for sent in outcome.sent}
    for message in received.messages:
        assert message["properties"]["REAL_TOPIC"] == topic


@pytest.mark.java
@pytest.mark.parametrize("say", ["unknow", "throw"])
async def test_java_answers_checks_of_unknown_outcomes(
    own_quick: Own, shell: JavaShell, name: str, say: str
) -> None:
    topic = await _topic(own_quick, name)
    outcome = (
        await shell.run("transact", topic=topic, group=name, say=say, check="commit", checks=1)
    ).check()
    [checked] = [event for event in outcome.events if event["event"] == "checked"]
    [sent] = outcome.sent
    assert (checked["transactionId"], checked["checkTimes"]) == (sent["transactionId"], "1")
    assert (checked["topic"], checked["queueId"]) == (topic, sent["queueId"])
    [message] = await _messages(own_quick, topic, 1)
    assert message.msg_id == sent["msgId"]


@pytest.mark.java
async def test_another_producer_of_the_group_answers_for_a_killed_one(
    own_quick: Own, java: JavaClient, shell: JavaShell, name: str
) -> None:
    topic = await _topic(own_quick, name)
    with java.start("transact", topic=topic, group=name, say="unknow", check="unknow", checks=99) as first:
        await first.wait_for("sent")
        first.kill()
    outcome = (
        await shell.run("transact", topic=topic, group=name, count=0, check="commit", checks=1)
    ).check()
    assert [event["topic"] for event in outcome.events if event["event"] == "checked"] == [topic]
    assert len(await _messages(own_quick, topic, 1)) == 1


# --- the SDK's producer ---


async def test_the_sdk_commits_and_rolls_back(quick: Cluster, name: str) -> None:
    topic = await _topic(quick, name)
    async with Producer(quick[0].address, group=name) as producer:
        with pytest.raises(RuntimeError, match="no"):
            async with producer.transaction(Message(topic, b"no")):
                raise RuntimeError("no")
        async with producer.transaction(Message(topic, b"yes", tags="a", keys=["k"])) as transaction:
            pass
        [message] = await _messages(quick, topic, 1)
    assert (message.body, message.msg_id, message.tags, message.keys) == (
        b"yes",
        transaction.msg_id,
        "a",
        ["k"],
    )


async def test_the_sdk_answers_checks_of_pending_transactions(quick: Cluster, name: str) -> None:
    topic = await _topic(quick, name)
    asked: list[MessageExt] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT if message.body == b"yes" else TransactionState.ROLLBACK

    async with Producer(quick[0].address, group=name, check_transaction=check) as producer:
        for body in (b"no", b"yes"):
            async with producer.transaction(Message(topic, body)) as transaction:
                await transaction.leave_open("tested")
        await until(lambda: {message.body for message in asked} == {b"no", b"yes"}, 30)
        received = await _messages(quick, topic, 1)
    assert {message.msg_id for message in received} == {transaction.msg_id}
    # Apache's broker checks again before an answer arrives that took longer, and delivers for each answer.
    assert len(received) == 1 or isinstance(quick[0], ApacheNamesrv)
    assert {found.topic for found in asked} == {topic}


async def test_the_sdk_runs_the_local_transaction(quick: Cluster, name: str) -> None:
    topic = await _topic(quick, name)

    async def work(message: Message) -> TransactionState:
        return TransactionState.COMMIT

    async with Producer(quick[0].address, group=name) as producer:
        result = await producer.send_in_transaction(Message(topic, b"yes"), work)
        [message] = await _messages(quick, topic, 1)
    assert (message.msg_id, result.state) == (result.sent.msg_id, TransactionState.COMMIT)


# --- a directory taken over ---


@pytest.mark.java
async def test_brokers_take_over_pending_transactions(
    apache_program: JavaProgram, name: str, tmp_path: Path
) -> None:
    """This broker → Apache's, killed → this broker: each checks only the pending transactions."""
    layout = golden_store.SETTINGS
    asking = {**layout, **SETTINGS, "transactionOpBatchInterval": "100", "transactionCheckMax": "1000"}
    asked: list[bytes] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT if message.body in commits else TransactionState.UNKNOWN

    async with OwnNamesrv() as namesrv:
        async with OwnBroker(namesrv.address, home=tmp_path, settings=layout) as ours:
            async with Admin(namesrv.address) as admin:
                await admin.create_topic(name, queues=1)
            async with Producer(namesrv.address, group=name) as producer:
                async with producer.transaction(Message(name, b"1")) as transaction:
                    await transaction.leave_open()
                async with producer.transaction(Message(name, b"2")):
                    pass
            await ours.stop()

        commits = {b"1"}
        async with ApacheBroker(apache_program, namesrv.address, home=tmp_path, settings=asking) as apaches:
            async with Producer(namesrv.address, group=name, check_transaction=check) as producer:
                async with producer.transaction(Message(name, b"3")) as transaction:
                    await transaction.leave_open()
                # By then the op message of the other transaction is stored.
                await until(lambda: b"1" in asked and asked[-3:] == [b"3"] * 3, 30)
            apaches.kill()
        assert set(asked) == {b"1", b"3"}
        # Before its op message is stored Apache's broker may check again, and stores the half message again.
        times_asked = asked.count(b"1")

        asked.clear()
        commits = {b"3"}
        async with (
            OwnBroker(namesrv.address, home=tmp_path, settings=asking) as ours,
            Producer(namesrv.address, group=name, check_transaction=check) as producer,
        ):
            async with producer.transaction(Message(name, b"4")):
                pass
            stored = Counter(await _bodies((namesrv, ours), name, {b"1", b"2", b"3", b"4"}))
        assert 1 <= stored.pop(b"1") <= times_asked
        assert stored == {b"2": 1, b"3": 1, b"4": 1}
        assert set(asked) == {b"3"}
