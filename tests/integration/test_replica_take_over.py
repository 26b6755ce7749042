"""A broker on a replica of another broker's log continues its transactions, delayed and timed messages.

The replica has the bytes of the log, received in pieces, and the files that slaves request (Apache RocketMQ
5.3.3, SlaveSynchronize): topics and groups, and the offsets unless they were lost.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

import pytest

from rmq_broker.groups.names import TRANSACTION_GROUP
from rmq_broker.store.api import MessageStore
from rmq_broker.store.log.commit_log import CommitLog
from rmq_broker.topics.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import (
    create_topic,
    heartbeat,
    pull,
    pulled,
    request,
    send,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

GROUP = "PG"
_KNOWN: Final = {
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}
_OFFSETS: Final = {
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
}
_FILES: Final = pytest.mark.parametrize("files", [_KNOWN | _OFFSETS, _KNOWN], ids=["all", "offsets lost"])
_MOST_BYTES: Final = 301  # received at a time
# The broker returns an offset once the messages before it are on the disk.
_FLUSHES_SOON: Final = {"flushIntervalCommitLog": 50, "flushCommitLogLeastPages": 0}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _copy(source: CommitLog, target: MessageStore) -> None:
    """Copy the rest of the source's log to the target, in pieces that cut records anywhere."""
    chance = random.Random(_MOST_BYTES)
    offset = 0
    while offset < source.max_offset:
        data = source.get_data(offset, chance.randint(1, _MOST_BYTES))
        assert data
        target.append_data(offset, data)
        target.enter_data()
        offset += len(data)
    assert target.commit_log.max_offset == source.max_offset


async def _replicate(
    master: RunningBroker, client: RawClient, folder: Path, files: dict[str, RequestCode], **keys: object
) -> None:
    """Make a replica in `folder`: the master's answers for these files, then its log.

    The order matters: a broker skips messages if its offsets are ahead of its log.
    """
    settings = broker_configuration(folder, **keys).settings
    settings.config_dir.mkdir(parents=True)
    for name, code in files.items():
        (settings.config_dir / name).write_bytes(succeeded(await client.ask(request(code))).body)
    store = MessageStore(settings, settings, settings)
    store.open()
    _copy(master.store.commit_log, store)
    await store.stop()


async def _messages(client: RawClient) -> list[MessageExt]:
    """All messages of the topic's queue."""
    return pulled(await client.ask(pull("T")))


async def _half(client: RawClient, body: bytes) -> SendMessageResponseHeader:
    properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body.decode()}
    flag = MessageSysFlag.TRANSACTION_PREPARED
    return sent(await client.ask(send("T", body, properties=properties, sys_flag=flag, group=GROUP)))


def _end(place: SendMessageResponseHeader, state: int) -> RemotingCommand:
    return request(
        RequestCode.END_TRANSACTION,
        producerGroup=GROUP,
        tranStateTableOffset=place.queue_offset,
        commitLogOffset=parse_offset_message_id(place.msg_id).physical_offset,
        commitOrRollback=state,
        msgId=place.transaction_id,
        transactionId=place.transaction_id,
    )


async def _asked_about(producer: RawClient, times: int) -> list[bytes]:
    """The bodies of the half messages in the next transaction checks."""
    bodies: list[bytes] = []
    while len(bodies) < times:
        command = await producer.receive()
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            bodies += [message.body for message in decode_messages(command.body)]
    return bodies


@_FILES
async def test_transactions_go_on(tmp_path: Path, files: dict[str, RequestCode]) -> None:
    """Without offsets, the broker finds ended transactions by reading all op messages."""
    async with running_broker(tmp_path / "master", **_FLUSHES_SOON) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        committed = await _half(client, b"committed")
        still_open = await _half(client, b"open")
        rolled_back = await _half(client, b"rolled back")
        succeeded(await client.ask(_end(committed, MessageSysFlag.TRANSACTION_COMMIT)))
        succeeded(await client.ask(_end(rolled_back, MessageSysFlag.TRANSACTION_ROLLBACK)))
        # Both ends are in the log, and the first half message is no longer needed according to the offsets.
        offsets = master.offsets
        await until(lambda: master.store.max_offset(TRANSACTION_OP_TOPIC, 0), 10)
        await until(lambda: offsets.query(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, 0) == 1, 20)
        await _replicate(master, client, tmp_path / "replica", files)

    # Checks begin at once and last as long as the test: no transaction is given up.
    keys = {"transactionTimeOut": 1, "transactionCheckInterval": 50, "transactionCheckMax": 100_000}
    async with running_broker(tmp_path / "replica", **keys) as broker, broker.client() as client:
        transactions = broker.services.transactions
        assert transactions is not None
        assert [half.first_offset for half in transactions.halves.in_order()] == [still_open.queue_offset]
        assert [message.body for message in await _messages(client)] == [b"committed"]
        async with broker.client() as producer:
            succeeded(await producer.ask(heartbeat("producer", None, producer_groups=[GROUP])))
            assert await _asked_about(producer, times=3) == [b"open"] * 3

        # The place that the master returned to the producer is still valid.
        succeeded(await client.ask(_end(still_open, MessageSysFlag.TRANSACTION_COMMIT)))

        messages = await _messages(client)
        assert [(message.body, message.msg_id) for message in messages] == [
            (b"committed", "committed"),
            (b"open", "open"),
        ]
        assert not len(transactions.halves)


@_FILES
async def test_delayed_messages_go_on(tmp_path: Path, files: dict[str, RequestCode]) -> None:
    """A waiting message is delivered once and not early, after the delay of its level on the replica.

    Without `delayOffset.json` the replica redelivers messages that the master has delivered, as Apache's
    broker does, because each level begins at the start of its queue.
    """
    # The master's delay is longer than the test.
    masters, keys = {"messageDelayLevel": "0s 1h", **_FLUSHES_SOON}, {"messageDelayLevel": "0s 1s"}
    async with running_broker(tmp_path / "master", **masters) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        sent(await client.ask(send("T", b"delivered", properties={"DELAY": "1"})))
        store, delay_offsets = master.store, master.services.delivery.delay_offsets
        await until(lambda: b"{1:1}" in delay_offsets.encode(), 20)
        sent_ms = _now_ms()
        sent(await client.ask(send("T", b"waits", properties={"DELAY": "2"})))
        await _replicate(master, client, tmp_path / "replica", files, **keys)
        assert store.max_offset("T", 0) == 1

    async with running_broker(tmp_path / "replica", **keys) as broker, broker.client() as client:
        await until(lambda: broker.services.delivery.delayed.waiting() == {1: 0, 2: 0}, 20)
        messages = await _messages(client)
        bodies = [message.body for message in messages]
        assert bodies.count(b"waits") == 1
        assert bodies[-1] == b"waits"
        assert messages[-1].store_timestamp >= sent_ms + 1000
        if files == _KNOWN:
            assert set(bodies) == {b"delivered", b"waits"}
        else:
            assert bodies == [b"delivered", b"waits"]


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
async def test_timed_messages_go_on(tmp_path: Path, is_late: bool) -> None:
    """A waiting message is delivered once and not early, a recalled one never, whether due or overdue.

    A replica without a timer log redelivers messages that the master has delivered, as Apache's broker does,
    because it enters the timer's whole queue. (Apache's broker also delivers a recalled message if it is
    overdue at that time.)
    """
    keys = {"timerPrecisionMs": 100, "recallMessageEnable": "true"}
    async with running_broker(tmp_path / "master", **keys) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        sent(await client.ask(send("T", b"delivered", properties={"TIMER_DELAY_MS": "50"})))
        await until(lambda: master.store.max_offset("T", 0) == 1, 10)
        # The master delivers no more messages, however long the test takes.
        master.change(timerStopDequeue="true")
        deliver_ms = _now_ms() + 1500
        timed = {"TIMER_DELIVER_MS": str(deliver_ms)}
        sent(await client.ask(send("T", b"waits", properties=timed | {"UNIQ_KEY": "waits"})))
        place = sent(await client.ask(send("T", b"recalled", properties=timed | {"UNIQ_KEY": "recalled"})))
        recall = request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=place.recall_handle)
        succeeded(await client.ask(recall))
        await _replicate(master, client, tmp_path / "replica", _KNOWN | _OFFSETS, **keys)
        assert master.store.max_offset("T", 0) == 1

    if is_late:
        await until(lambda: _now_ms() > deliver_ms + 200)
    async with running_broker(tmp_path / "replica", **keys) as broker, broker.client() as client:
        timers = broker.services.timers
        await until(lambda: timers.counts.recalled == 1, 20)
        await until(lambda: not timers.pending.count and not timers.entering.behind, 10)
        messages = await _messages(client)
        bodies = [message.body for message in messages]
        assert bodies.count(b"waits") == 1
        assert set(bodies) == {b"delivered", b"waits"}
        assert messages[-1].body == b"waits"
        assert messages[-1].store_timestamp >= deliver_ms
