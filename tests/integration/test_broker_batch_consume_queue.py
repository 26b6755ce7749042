"""Topics with the attribute `queue.type=BatchCQ`: a batch is one record, and clients take it apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.topic import CreateTopicRequestHeader
from rmq_remoting.message import Message
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import offsets, pull, pulled, request, send, send_batch, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient


def batch(*bodies: bytes) -> list[Message]:
    return [Message("Orders", body) for body in bodies]


async def create(client: RawClient) -> None:
    header = CreateTopicRequestHeader(
        topic="Orders",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        attributes="+queue.type=BatchCQ",
    )
    answer = await client.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, b"", **header.encode()))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path, flushDiskType=request.param) as running:
        yield running


@pytest.fixture
async def client(broker: RunningBroker) -> AsyncIterator[RawClient]:
    async with broker.client() as connected:
        await create(connected)
        yield connected


async def test_a_batch_is_one_record_and_many_messages(client: RawClient) -> None:
    answer = await client.ask(send_batch("Orders", batch(b"a", b"b", b"c"), properties={"UNIQ_KEY": "0A0B"}))
    assert sent(answer).queue_offset == 0
    assert answer.ext_fields["batchUniqId"] == "0A0B"
    assert "," not in answer.ext_fields["msgId"]
    assert sent(await client.ask(send("Orders", b"d"))).queue_offset == 3
    assert sent(await client.ask(send_batch("Orders", batch(b"e", b"f")))).queue_offset == 4

    found = await client.ask(pull("Orders"))
    messages = pulled(found)
    assert [message.body for message in messages] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [message.queue_offset for message in messages] == list(range(6))
    assert offsets(found) == (6, 0, 6)


async def test_a_pull_in_the_middle_gets_the_whole_batch(client: RawClient) -> None:
    """The client drops what it did not ask for, as with Apache's broker."""
    await client.ask(send_batch("Orders", batch(b"a", b"b", b"c")))
    messages = pulled(await client.ask(pull("Orders", offset=1)))
    assert [message.queue_offset for message in messages] == [0, 1, 2]
    assert offsets(await client.ask(pull("Orders", offset=1))) == (3, 0, 3)


async def test_the_stored_record_says_what_it_is(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(send("Orders", b"first"))
    at = sent(await client.ask(send_batch("Orders", batch(b"a", b"b"))))
    store = broker.store
    entry = store.queues.get_or_create("Orders", 0).entry(at.queue_offset)
    assert entry is not None
    record = store.commit_log.record_at(entry[0])
    assert record is not None
    both = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    assert record.sys_flag & both == both
    assert b"INNER_NUM\x012\x02INNER_BASE\x011\x02" in record.properties
    assert record.queue_offset == 1
    single = store.commit_log.record_at(store.commit_log.min_offset)
    assert single is not None and not single.sys_flag & both and b"INNER" not in single.properties


async def test_it_is_all_there_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await create(client)
        for number in range(20):
            await client.ask(send_batch("Orders", batch(*[b"%d" % number] * (number + 1))))
    for removed in ((), ("batchconsumequeue",)):
        for name in removed:
            for path in sorted((tmp_path / "store" / name).rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
        async with running_broker(tmp_path) as broker, broker.client() as client:
            assert broker.store.max_offset("Orders", 0) == 210
            got: list[int] = []
            offset = 0
            while offset < 210:
                answer = await client.ask(pull("Orders", offset=offset))
                got += [message.queue_offset for message in pulled(answer)]
                offset = offsets(answer)[0]
            assert got == list(range(210))


@pytest.mark.parametrize("body", [b"\0\0", b"\0" * 30])
async def test_a_broken_batch_is_refused(client: RawClient, body: bytes) -> None:
    answer = await client.ask(send_batch("Orders", body))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "of the batch" in str(answer.remark)
