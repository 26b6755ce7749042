"""Transaction checks of brokers, on a connection without a socket."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

from rmq_client.network.transaction_checks import TransactionChecks
from rmq_client.transactions import TransactionState
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until

_MAX_BODY = 1 << 20


def _question(body: bytes | None = None, **properties: str) -> RemotingCommand:
    header = CheckTransactionStateRequestHeader(
        commit_log_offset=400,
        tran_state_table_offset=4,
        msg_id="U",
        transaction_id="U",
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        broker_name="broker-a",
    )
    message = MessageExt("T", b"body", queue_offset=4, physical_offset=400)
    message.properties = {"UNIQ_KEY": "U", "PGROUP": "g", **properties}
    return RemotingCommand.request(
        RequestCode.CHECK_TRANSACTION_STATE,
        header.encode(),
        encode_stored_message(message) if body is None else body,
        oneway=True,
    )


def _checks(*states: TransactionState) -> tuple[TransactionChecks, list[MessageExt]]:
    checks, handle_check, left = (
        TransactionChecks(Serialization.JSON, _MAX_BODY),
        list[MessageExt](),
        list(states),
    )

    async def answer(message: MessageExt) -> tuple[TransactionState, str | None]:
        handle_check.append(message)
        return left.pop(0), "because"

    checks.add("g", answer)
    return checks, handle_check


@pytest.mark.parametrize(
    ("state", "flag"),
    [(TransactionState.COMMIT, 8), (TransactionState.ROLLBACK, 12), (TransactionState.UNKNOWN, 0)],
)
async def test_errors_name_the_request(state: TransactionState, flag: int) -> None:
    broker = Peer()
    checks, handle_check = _checks(state)

    checks.handle_check(broker.connection, _question())
    await loop_passes()

    (answer,) = broker.received
    assert (answer.code, answer.is_oneway, answer.remark) == (RequestCode.END_TRANSACTION, True, "because")
    header = EndTransactionRequestHeader.decode(answer.ext_fields)
    assert (header.commit_or_rollback, header.from_transaction_check) == (flag, True)
    assert (header.commit_log_offset, header.tran_state_table_offset) == (400, 4)
    assert (header.producer_group, header.msg_id, header.transaction_id) == ("g", "U", "U")
    assert (header.topic, header.broker_name) == ("RMQ_SYS_TRANS_HALF_TOPIC", "broker-a")
    assert (handle_check[0].topic, handle_check[0].body, handle_check[0].broker_name) == (
        "T",
        b"body",
        "broker-a",
    )


@pytest.mark.parametrize("question", [_question(b""), _question(b"garbage" * 20), _question(PGROUP="other")])
async def test_checks_without_a_producer_are_dropped(question: RemotingCommand) -> None:
    broker = Peer()
    checks, handle_check = _checks(TransactionState.COMMIT)
    checks.handle_check(broker.connection, question)
    await loop_passes()
    assert (broker.received, handle_check) == ([], [])


async def test_a_stopped_producer_gets_no_checks() -> None:
    broker, handle_check = Peer(), list[MessageExt]()

    async def answer(message: MessageExt) -> tuple[TransactionState, str | None]:
        handle_check.append(message)
        return TransactionState.COMMIT, None

    checks = TransactionChecks(Serialization.JSON, _MAX_BODY)
    checks.add("g", answer)
    checks.remove("g", answer)
    checks.handle_check(broker.connection, _question())
    await loop_passes()
    assert (broker.received, handle_check) == ([], [])


async def test_transaction_checks_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq_client.network.transaction_checks._MAX_CHECKS_IN_FLIGHT", 2)
    broker, release, handle_check = Peer(), asyncio.Event(), list[MessageExt]()

    async def answer(message: MessageExt) -> tuple[TransactionState, str | None]:
        handle_check.append(message)
        await release.wait()
        return TransactionState.COMMIT, None

    checks = TransactionChecks(Serialization.JSON, _MAX_BODY)
    checks.add("g", answer)
    for _ in range(3):
        checks.handle_check(broker.connection, _question())
    await loop_passes()
    assert len(handle_check) == 2
    release.set()
    await loop_passes()
    assert len(broker.received) == 2
    await checks.stop()


async def test_the_answer_to_a_disconnected_broker_is_dropped() -> None:
    broker = Peer()
    checks, handle_check = _checks(TransactionState.COMMIT)
    checks.handle_check(broker.connection, _question())
    broker.connection.abort()
    await loop_passes()
    assert len(handle_check) == 1


def _compressed_question(body: bytes) -> RemotingCommand:
    message = MessageExt("T", body, sys_flag=MessageSysFlag.COMPRESSED)
    message.properties = {"UNIQ_KEY": "U", "PGROUP": "g"}
    return _question(encode_stored_message(message))


@pytest.mark.parametrize("body", [b"body", random.Random(1).randbytes(100_000)])
async def test_compressed_messages_are_checked(body: bytes) -> None:
    broker = Peer()
    checks, handle_check = _checks(TransactionState.COMMIT)
    checks.handle_check(broker.connection, _compressed_question(zlib.compress(body)))
    await until(lambda: broker.received)
    (message,) = handle_check
    assert (message.body, message.sys_flag & MessageSysFlag.COMPRESSED) == (body, 0)


async def test_a_check_whose_message_cannot_be_decompressed_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Peer()
    checks, handle_check = _checks(TransactionState.COMMIT)
    checks.handle_check(broker.connection, _compressed_question(b"no zlib"))
    await loop_passes()
    assert (broker.received, handle_check) == ([], [])
    assert "its message is unreadable" in caplog.text
