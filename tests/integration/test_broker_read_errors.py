"""Unreadable pages over the wire: the request that needs one gets an error, all others are served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.message import MessageExt
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.cold_log import make_cold
from tests.support.pop_requests import pop, popped
from tests.support.raw_client import RawClient
from tests.support.unreadable_pages import PAGE_BYTES, UnreadablePages

_QUEUES = 2
_MESSAGES = 3
_BODY_BYTES = 2 * PAGE_BYTES


@pytest.fixture
def disk() -> Iterator[UnreadablePages]:
    disk = UnreadablePages()
    with disk.installed():
        yield disk


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
async def client(broker: RunningBroker) -> AsyncIterator[RawClient]:
    """A client of a broker with messages that are not in memory."""
    async with broker.client() as client:
        assert (await client.ask(create_topic("T", _QUEUES))).code == ResponseCode.SUCCESS
        for number in range(_MESSAGES):
            for queue_id in range(_QUEUES):
                body = b"%d" % number * _BODY_BYTES
                sent(await client.ask(send("T", body, queue_id=queue_id, properties={"KEYS": f"k{number}"})))
        make_cold(broker.store)
        yield client


def _log_file(broker: RunningBroker) -> Path:
    return broker.configuration.settings.commit_log_dir / ("0" * 20)


async def _message(client: RawClient, offset: int) -> MessageExt:
    (message,) = pulled(await client.ask(pull("T", offset=offset, count=1)))
    return message


def _check_refused(broker: RunningBroker, answer: RemotingCommand) -> None:
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None and f"Input/output error: '{_log_file(broker)}'" in answer.remark


async def test_a_message_that_cannot_be_read(
    broker: RunningBroker, client: RawClient, disk: UnreadablePages
) -> None:
    """It is neither skipped nor reported missing, and keeps no other message back."""
    place = (await _message(client, 1)).physical_offset
    disk.add(_log_file(broker), place + PAGE_BYTES)
    assert len(pulled(await client.ask(pull("T", offset=0)))) == 1
    _check_refused(broker, await client.ask(pull("T", offset=1)))
    assert len(pulled(await client.ask(pull("T", offset=2)))) == 1
    # These messages stand on both sides of the page. Read together, they would need it, too.
    for offset in range(_MESSAGES):
        assert len(pulled(await client.ask(pull("T", queue_id=1, offset=offset)))) >= 1

    view = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=place)
    _check_refused(broker, await client.ask(view))
    by_key = {"topic": "T", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    _check_refused(broker, await client.ask(request(RequestCode.QUERY_MESSAGE, key="k1", **by_key)))
    found = await client.ask(request(RequestCode.QUERY_MESSAGE, key="k2", **by_key))
    assert len(pulled(found)) == _QUEUES

    disk.repair()
    assert len(pulled(await client.ask(pull("T")))) == _MESSAGES
    assert len(pulled(await client.ask(view))) == 1


async def test_a_pop_leaves_a_queue_out_that_cannot_be_read(
    broker: RunningBroker, client: RawClient, disk: UnreadablePages, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of other queues are delivered; an error would leave them in flight without a consumer."""
    disk.add(_log_file(broker), (await _message(client, 0)).physical_offset + PAGE_BYTES)
    items = popped(await client.ask(pop("T", queue_id=-1)))
    assert [item.message.queue_id for item in items] == [1] * _MESSAGES
    assert len(broker.pops.in_flight) == 1
    assert "messages not popped, they cannot be read topic=T queue=0" in caplog.text
    disk.repair()
    items = popped(await client.ask(pop("T", queue_id=-1)))
    assert [item.message.queue_id for item in items] == [0] * _MESSAGES


async def test_a_start_that_cannot_read_the_log(tmp_path: Path, disk: UnreadablePages) -> None:
    """The error names the file and the page of the documentation."""
    async with running_broker(tmp_path) as broker, broker.client() as client:
        sent(await client.ask(send("T")))
        log_file = _log_file(broker)
    (tmp_path / "store" / "abort").touch()
    disk.add(log_file)
    broker = RunningBroker(broker_configuration(tmp_path))
    with pytest.raises(StartError, match=rf"Input/output error: '{log_file}'; see .* docs/durability\.md"):
        await broker.start()
    await broker.stop()
    disk.repair()
    async with running_broker(tmp_path) as broker, broker.client() as client:
        assert len(pulled(await client.ask(pull("T")))) == 1
