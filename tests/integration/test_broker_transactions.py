"""Transactions over the wire: half messages, outcomes, checks of producers, restarts."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.offsets.table import ConsumerOffsetTable
from rmq_broker.store.log.commit_log import CommitLog
from rmq_remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.message import Message
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
    send_batch,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

GROUP = "PG"
COMMIT, ROLLBACK = MessageSysFlag.TRANSACTION_COMMIT, MessageSysFlag.TRANSACTION_ROLLBACK
_QUICK = {"transactionTimeOut": 1, "transactionCheckInterval": 20}


@asynccontextmanager
async def _running(folder: Path, **keys: object) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    async with running_broker(folder, **keys) as broker, broker.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        yield broker, client


def _half(body: bytes = b"one", **properties: str) -> RemotingCommand:
    own = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body.decode()}
    return send(
        "T", body, properties={**own, **properties}, sys_flag=MessageSysFlag.TRANSACTION_PREPARED, group=GROUP
    )


def _end(
    place: SendMessageResponseHeader, state: int, *, oneway: bool = False, **fields: object
) -> RemotingCommand:
    command = request(
        RequestCode.END_TRANSACTION,
        **{
            "producerGroup": GROUP,
            "tranStateTableOffset": place.queue_offset,
            "commitLogOffset": parse_offset_message_id(place.msg_id).physical_offset,
            "commitOrRollback": state,
            "msgId": place.transaction_id or "",
            "transactionId": place.transaction_id or "",
            **fields,
        },
    )
    if oneway:
        command.flag |= FLAG_ONEWAY
    return command


def _progress(folder: Path) -> list[int]:
    """Return the committed offsets of half and op messages, as a stopped broker left them."""
    offsets = ConsumerOffsetTable(lambda: 0)
    offsets.decode((folder / "store" / "config" / "consumerOffset.json").read_bytes())
    topics = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    return [offsets.query("CID_RMQ_SYS_TRANS", topic, 0) for topic in topics]


async def test_a_message_becomes_visible_when_it_is_committed(tmp_path: Path) -> None:
    async with _running(tmp_path) as (_, client):
        place = sent(await client.ask(_half()))
        assert (place.queue_id, place.queue_offset, place.transaction_id) == (0, 0, "one")
        assert (await client.ask(pull("T"))).code != ResponseCode.SUCCESS

        succeeded(await client.ask(_end(place, COMMIT)))

        (message,) = pulled(await client.ask(pull("T")))
        assert (message.body, message.msg_id) == (b"one", "one")
        assert message.sys_flag == COMMIT


async def test_a_one_way_commit_wakes_held_pulls(tmp_path: Path) -> None:
    async with _running(tmp_path) as (broker, client), broker.client() as consumer:
        place = sent(await client.ask(_half()))
        consumer.send(pull("T", suspend_ms=10_000))
        await until(lambda: broker.held_pulls.count)
        client.send(_end(place, COMMIT, oneway=True))
        (message,) = pulled(await consumer.receive())
        assert message.body == b"one"


@pytest.mark.parametrize(
    "command",
    [
        send("T", b"one", properties={"TRAN_MSG": "true"}),
        send("T", b"one", sys_flag=MessageSysFlag.TRANSACTION_PREPARED),
    ],
)
async def test_a_property_or_a_flag_makes_a_half_message(tmp_path: Path, command: RemotingCommand) -> None:
    async with _running(tmp_path) as (_, client):
        place = sent(await client.ask(command))
        assert (await client.ask(pull("T"))).code != ResponseCode.SUCCESS
        succeeded(await client.ask(_end(place, COMMIT)))
        assert [message.body for message in pulled(await client.ask(pull("T")))] == [b"one"]


async def test_an_unknown_outcome_is_answered(tmp_path: Path) -> None:
    """Apache's broker does not answer it."""
    async with _running(tmp_path) as (broker, client):
        place = sent(await client.ask(_half()))
        succeeded(await client.ask(_end(place, MessageSysFlag.TRANSACTION_NOT)))
        assert len(broker.services.transactions.halves) == 1


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"producerGroup": "other"}, ResponseCode.SYSTEM_ERROR, "was not sent by producer group 'other'"),
        ({"commitLogOffset": 1}, ResponseCode.SYSTEM_ERROR, "no half message begins at offset 1"),
        ({"tranStateTableOffset": 9}, ResponseCode.SYSTEM_ERROR, "does not have the queue offset 9"),
        ({"transactionId": "x"}, ResponseCode.SYSTEM_ERROR, "does not belong to transaction 'x'"),
        ({"commitOrRollback": 5}, ResponseCode.INVALID_PARAMETER, "commitOrRollback=5 must be 8 (commit)"),
        ({"commitOrRollback": "x"}, None, "commitOrRollback"),
        ({"commitLogOffset": "x"}, None, "commitLogOffset"),
    ],
)
async def test_invalid_outcomes_are_refused(
    tmp_path: Path, fields: dict[str, Any], code: int | None, remark: str
) -> None:
    async with _running(tmp_path) as (broker, client):
        place = sent(await client.ask(_half()))
        answer = await client.ask(_end(place, COMMIT, **fields))
        assert answer.code != ResponseCode.SUCCESS and (code is None or answer.code == code)
        assert remark in (answer.remark or "")
        client.send(_end(place, COMMIT, oneway=True, **fields))
        succeeded(await client.ask(_end(place, ROLLBACK)))
        assert broker.store.max_offset("T", 0) == 0


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (_half(DELAY="3"), "cannot be delayed"),
        (send_batch("T", [Message("T", b"x")], properties={"TRAN_MSG": "true"}), "a batch cannot be part"),
    ],
)
async def test_sends_that_cannot_be_transactional_are_refused(
    tmp_path: Path, command: RemotingCommand, remark: str
) -> None:
    async with _running(tmp_path) as (broker, client):
        answer = await client.ask(command)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert remark in (answer.remark or "")
        assert broker.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 0


async def test_another_producer_is_checked_when_one_disconnects(tmp_path: Path) -> None:
    async with _running(tmp_path, **_QUICK) as (broker, client):
        async with broker.client() as gone:
            succeeded(await gone.ask(heartbeat("c1", None, producer_groups=[GROUP])))
            sent(await gone.ask(_half()))
            assert (await gone.receive()).code == RequestCode.CHECK_TRANSACTION_STATE
        async with broker.client() as left:
            left.send(heartbeat("c2", None, producer_groups=[GROUP]))
            while (command := await left.receive()).code != RequestCode.CHECK_TRANSACTION_STATE:
                pass
            header = CheckTransactionStateRequestHeader.decode(command.ext_fields)
            (message,) = decode_messages(command.body)
            assert (message.topic, message.body) == ("T", b"one")
            left.send(
                request(
                    RequestCode.END_TRANSACTION,
                    producerGroup=GROUP,
                    tranStateTableOffset=header.tran_state_table_offset,
                    commitLogOffset=header.commit_log_offset,
                    commitOrRollback=COMMIT,
                    msgId=header.msg_id,
                    transactionId=header.transaction_id,
                    fromTransactionCheck=True,
                )
            )
            await until(lambda: broker.store.max_offset("T", 0))
        assert [message.body for message in pulled(await client.ask(pull("T")))] == [b"one"]


async def test_an_unflushed_half_message_can_be_committed(tmp_path: Path) -> None:
    async with _running(tmp_path, flushDiskType="SYNC_FLUSH") as (_, client):
        client.send(_half(WAIT="false"))
        place = sent(await client.receive())
        succeeded(await client.ask(_end(place, COMMIT)))
        assert [message.body for message in pulled(await client.ask(pull("T")))] == [b"one"]


async def test_a_given_up_transaction_can_be_resumed(tmp_path: Path) -> None:
    async with _running(tmp_path, **_QUICK, transactionCheckMax=1) as (broker, client):
        sent(await client.ask(_half()))
        store = broker.store
        await until(lambda: store.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0))
        (message,) = pulled(await client.ask(pull("TRANS_CHECK_MAX_TIME_TOPIC")))
        resume = request(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message.offset_msg_id)
        succeeded(await client.ask(resume))
        await until(lambda: store.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0) == 2)

        for bad in ("", "xyz", "0" * 32):
            answer = await client.ask(request(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=bad))
            assert answer.code != ResponseCode.SUCCESS
            assert answer.remark


@pytest.mark.parametrize("fails_at_last", [True, False])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_stop_with_a_failing_disk_keeps_the_transactions_to_check(
    tmp_path: Path, flush: str, fails_at_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may take the committed message: the half message must not be skipped then."""

    def fail(commit_log: CommitLog) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    never = {"flushIntervalCommitLog": 3_600_000, "flushIntervalConsumeQueue": 3_600_000}
    running = RunningBroker(broker_configuration(tmp_path, flushDiskType=flush, **never))
    await running.start()
    async with running.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        place = sent(await client.ask(_half()))
        flush_log = running.store.flush_log
        flush_log()
        if fails_at_last:
            succeeded(await client.ask(_end(place, COMMIT)))
        monkeypatch.setattr(CommitLog, "flush", fail)
        if not fails_at_last:
            await client.ask(_end(place, COMMIT))
            with pytest.raises(OSError):
                flush_log()
    try:
        await running.broker.stop()
    except OSError:
        assert fails_at_last
    await running.supervisor.stop()
    assert _progress(tmp_path)[0] <= 0


async def test_a_repeated_commit_is_answered_at_once(tmp_path: Path) -> None:
    """Nothing was appended then that would cause a flush."""
    async with _running(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=60_000) as (broker, client):
        place = sent(await client.ask(_half()))
        for _ in range(3):
            async with asyncio.timeout(20):
                succeeded(await client.ask(_end(place, COMMIT)))
        assert broker.store.max_offset("T", 0) == 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_restart_between_send_and_commit(tmp_path: Path, flush: str) -> None:
    async with _running(tmp_path, flushDiskType=flush) as (_, client):
        places = [sent(await client.ask(_half(b"%d" % number))) for number in range(3)]
        succeeded(await client.ask(_end(places[1], COMMIT)))
    async with _running(tmp_path, flushDiskType=flush) as (broker, client):
        assert len(broker.services.transactions.halves) == 2
        succeeded(await client.ask(_end(places[0], COMMIT)))
        succeeded(await client.ask(_end(places[2], ROLLBACK)))
        assert (await client.ask(_end(places[1], COMMIT))).code == ResponseCode.ILLEGAL_OPERATION
        assert [message.body for message in pulled(await client.ask(pull("T")))] == [b"1", b"0"]
    assert _progress(tmp_path) == [3, 2]
    async with _running(tmp_path, flushDiskType=flush) as (broker, _):
        assert len(broker.services.transactions.halves) == 0
