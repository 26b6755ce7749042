"""Requests of name servers and of the group's master: 905 and 906."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.processors.admin.replication import ReplicationAdminProcessor
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from tests.support.broker_requests import request
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer
from tests.support.waiting import loop_passes


@pytest.fixture
async def processor(tmp_path: Path) -> AsyncIterator[ReplicationAdminProcessor]:
    broker = LocalBroker(tmp_path, brokerRole="SLAVE", brokerId=1, enableSlaveActingMaster="true")
    yield broker.processors.admin.replication
    broker.close()


def _smallest_is(processor: ReplicationAdminProcessor, **fields: object) -> RemotingCommand:
    command = request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, **fields)
    return processor.smallest_id_changed(Peer().connection, command)


async def test_a_name_server_tells_that_the_master_is_gone_and_back(
    processor: ReplicationAdminProcessor,
) -> None:
    smallest = processor.smallest
    answer = _smallest_is(processor, minBrokerId=1, minBrokerAddr="b:10911", offlineBrokerAddr="a:10911")
    assert answer.code == ResponseCode.SUCCESS
    assert smallest.may_act and smallest.changed.is_set()
    _smallest_is(processor, minBrokerId=0, minBrokerAddr="a:10911", haBrokerAddr="a:10912")
    assert not smallest.may_act
    known = processor.replication.lookup.known
    assert known is not None and (known.ha, known.clients) == ("a:10912", "a:10911")


@pytest.mark.parametrize("fields", [{}, {"minBrokerId": -1}])
async def test_a_notification_without_an_id_is_refused(
    processor: ReplicationAdminProcessor, fields: dict[str, object]
) -> None:
    with pytest.raises(CommandError, match="is no broker id"):
        _smallest_is(processor, **fields)
    with pytest.raises(HeaderError):
        _smallest_is(processor, minBrokerId="x")
    assert processor.smallest.broker_id is None


async def test_a_master_that_announces_itself_is_answered_when_acting_has_ended(
    processor: ReplicationAdminProcessor,
) -> None:
    smallest = processor.smallest
    command = request(RequestCode.EXCHANGE_BROKER_HA_INFO, masterHaAddress="a:10912", masterAddress="a:10911")
    answer = processor.exchange(Peer().connection, command)
    assert isinstance(answer, RemotingCommand)
    smallest.told(1, "b:10911")
    smallest.acts = True
    answer = processor.exchange(Peer().connection, command)
    assert isinstance(answer, asyncio.Future)
    await loop_passes()
    assert not smallest.may_act and not answer.done()
    smallest.acts = False
    response = await answer
    assert isinstance(response, RemotingCommand) and response.code == ResponseCode.SUCCESS
