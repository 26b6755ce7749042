"""Where queues begin and end (codes 29 to 32)."""

from __future__ import annotations

import pytest

from rmq_broker.processors.offsets import QueueOffsetProcessor
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import HeaderError
from tests.support.peers import Peer
from tests.unit.broker.processors.parts import FakeStore


def _processor() -> QueueOffsetProcessor:
    store = FakeStore()
    store.queues["T", 1] = [1000, 2000, 2000, 3000]
    store.first_offsets["T", 1] = 10
    return QueueOffsetProcessor(store)


def _request(code: RequestCode, **fields: str) -> RemotingCommand:
    return RemotingCommand.request(code, {"topic": "T", "queueId": "1", **fields})


async def test_ends_of_a_queue() -> None:
    processor, connection = _processor(), Peer().connection
    assert processor.max_offset(connection, _request(RequestCode.GET_MAX_OFFSET)).ext_fields == {
        "offset": "14"
    }
    assert processor.min_offset(connection, _request(RequestCode.GET_MIN_OFFSET)).ext_fields == {
        "offset": "10"
    }
    times = _request(RequestCode.GET_EARLIEST_MSG_STORETIME)
    assert processor.earliest_time(connection, times).ext_fields == {"timestamp": "1000"}


async def test_a_queue_without_messages_is_no_error() -> None:
    processor, connection = _processor(), Peer().connection
    other = {"queueId": "9"}
    assert processor.max_offset(connection, _request(RequestCode.GET_MAX_OFFSET, **other)).ext_fields == {
        "offset": "0"
    }
    times = _request(RequestCode.GET_EARLIEST_MSG_STORETIME, **other)
    assert processor.earliest_time(connection, times).ext_fields == {"timestamp": "-1"}


@pytest.mark.parametrize(
    ("boundary", "offset"), [({}, "11"), ({"boundaryType": "lower"}, "11"), ({"boundaryType": "upper"}, "12")]
)
async def test_offsets_by_time(boundary: dict[str, str], offset: str) -> None:
    request = _request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp="2000", **boundary)
    assert _processor().by_time(Peer().connection, request).ext_fields == {"offset": offset}


async def test_a_bad_header_is_told() -> None:
    with pytest.raises(HeaderError, match="queueId"):
        _processor().max_offset(Peer().connection, _request(RequestCode.GET_MAX_OFFSET, queueId="first"))
