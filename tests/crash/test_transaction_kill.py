"""Transactions and kill -9: each ends as its producer decided, and pending ones stay pending."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.sys_flags import MessageSysFlag
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import end_of, read_queues
from tests.support.broker_requests import create_topic, heartbeat, request, send, sent
from tests.support.raw_client import RawClient, raw_client

_ROUNDS = 2
_A_ROUND = 30
_POLL_SECONDS = 0.02
_GROUP = "PG"
_COMMITTED, _OPS = ("T", 0), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
_HALVES = ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
_OPEN, _COMMIT, _ROLLBACK = (
    MessageSysFlag.TRANSACTION_NOT,
    MessageSysFlag.TRANSACTION_COMMIT,
    MessageSysFlag.TRANSACTION_ROLLBACK,
)
# No checks during the sends, frequent ones afterwards. Offsets are on the disk at a kill.
_SETTINGS = {
    "transactionTimeOut": "600000",
    "transactionCheckInterval": "50",
    "transactionCheckMax": "10000",
    "flushConsumerOffsetInterval": "100",
    "flushIntervalCommitLog": "50",
    "flushCommitLogLeastPages": "0",
}


@pytest.mark.timeout(90)
async def test_each_transaction_ends_as_its_producer_decided(
    tmp_path: Path, flush_mode: str, seed: int
) -> None:
    chance = random.Random(seed)
    said: dict[bytes, int] = {}
    not_in_ops: set[bytes] = set()
    async with FaultyBroker(tmp_path, flush_mode, settings=_SETTINGS) as broker:
        await _make_topic(broker.port)
        for number in range(_ROUNDS):
            now = await _transact(broker.port, number * _A_ROUND, chance)
            said |= {body: state for body, (state, _) in now.items()}
            if number % 2:
                not_in_ops |= set(now)
            else:
                await _until_ops_name(
                    broker.port, {offset for state, offset in now.values() if state != _OPEN}
                )
                await _until_checked(broker.port)
            broker.kill()
            await broker.start()
            check_directory(broker.store_path)
        await _answer_for_all(broker.port, said, not_in_ops)
        stored = Counter(
            message.body for message in (await read_queues(broker.port, [_COMMITTED]))[_COMMITTED]
        )
        assert set(stored) == {body for body, state in said.items() if state != _ROLLBACK}
        # Transactions killed before their op message was stored may be checked and committed again.
        assert {body for body, count in stored.items() if count > 1} <= not_in_ops
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []


async def _make_topic(port: int) -> None:
    async with raw_client(port) as client:
        assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS


async def _transact(port: int, first: int, chance: random.Random) -> dict[bytes, tuple[int, int]]:
    """Send half messages, and commit, roll back or leave each pending; return outcomes and queue offsets."""
    said: dict[bytes, tuple[int, int]] = {}
    async with raw_client(port) as client:
        for number in range(first, first + _A_ROUND):
            body = b"%d" % number
            place = sent(await client.ask(_half(body)))
            state = chance.choice([_COMMIT, _ROLLBACK, _OPEN])
            answer = await client.ask(_end(place, state))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            said[body] = (state, place.queue_offset)
    return said


async def _until_ops_name(port: int, half_offsets: set[int]) -> None:
    """Wait until op messages name all of these half messages."""
    async with asyncio.timeout(20):
        while True:
            ops = (await read_queues(port, [_OPS]))[_OPS]
            if half_offsets <= {int(text) for op in ops for text in op.body.split(b",") if text}:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _until_checked(port: int) -> None:
    """Wait until half messages were appended again by checks."""
    async with asyncio.timeout(20), raw_client(port) as client:
        before = await end_of(client, _HALVES)
        await _check_at_once(client)
        while await end_of(client, _HALVES) == before:  # noqa: ASYNC110  # another process appends
            await asyncio.sleep(_POLL_SECONDS)


async def _check_at_once(client: RawClient) -> None:
    """Let the broker check all pending transactions."""
    command = request(RequestCode.UPDATE_BROKER_CONFIG, b"transactionTimeOut=1\n")
    answer = await client.ask(command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _answer_for_all(port: int, said: dict[bytes, int], not_in_ops: set[bytes]) -> None:
    """Answer checks with the same outcome, and commit the pending transactions until none is left."""
    left = {body for body, state in said.items() if state == _OPEN}
    waiting: dict[int, bytes] = {}
    async with asyncio.timeout(30), raw_client(port) as client:
        await _check_at_once(client)
        client.send(heartbeat("c", None, producer_groups=[_GROUP]))
        while left:
            command = await client.receive()
            if command.is_response:
                body = waiting.pop(command.opaque, b"")
                assert not body or command.code == ResponseCode.SUCCESS, command.remark
                left.discard(body)
                continue
            if command.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            (message,) = decode_messages(command.body)
            assert said[message.body] == _OPEN or message.body in not_in_ops
            answer = _answer(command, said[message.body] or _COMMIT)
            waiting[answer.opaque] = message.body
            client.send(answer)


def _answer(question: RemotingCommand, state: int) -> RemotingCommand:
    header = CheckTransactionStateRequestHeader.decode(question.ext_fields)
    return request(
        RequestCode.END_TRANSACTION,
        producerGroup=_GROUP,
        tranStateTableOffset=header.tran_state_table_offset,
        commitLogOffset=header.commit_log_offset,
        commitOrRollback=state,
        msgId=header.msg_id,
        transactionId=header.transaction_id,
        fromTransactionCheck=True,
    )


def _half(body: bytes) -> RemotingCommand:
    properties = {"TRAN_MSG": "true", "PGROUP": _GROUP, "UNIQ_KEY": body.decode()}
    return send("T", body, properties=properties, sys_flag=MessageSysFlag.TRANSACTION_PREPARED, group=_GROUP)


def _end(place: SendMessageResponseHeader, state: int) -> RemotingCommand:
    return request(
        RequestCode.END_TRANSACTION,
        producerGroup=_GROUP,
        tranStateTableOffset=place.queue_offset,
        commitLogOffset=parse_offset_message_id(place.msg_id).physical_offset,
        commitOrRollback=state,
        msgId=place.transaction_id,
        transactionId=place.transaction_id,
    )
