"""Looking messages up (codes 12 and 33)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmq_broker.access.stored_topics import StoredTopics
from rmq_broker.processors import query
from rmq_broker.processors.query import QueryProcessor
from rmq_broker.store.api import KeyQueryResult
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from rmq_remoting.headers.query import QueryMessageResponseHeader
from tests.support.broker_settings import broker_settings
from tests.support.peers import Peer

_FOREVER = 2**63 - 1


class _Lookup:
    """Records by physical offset, and offsets by topic and key, newest first."""

    def __init__(self) -> None:
        self.records = {0: b"oldest", 100: b"middle", 200: b"newest"}
        self.index = {("T", "k"): [200, 100, 0]}
        self.asked: list[tuple[str, str, int, int, int]] = []

    def query_by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> KeyQueryResult:
        self.asked.append((topic, key, max_count, begin_ms, end_ms))
        offsets = self.index.get((topic, key), [])[:max_count]
        return KeyQueryResult(offsets, last_timestamp_ms=1_700_000_000_000, last_offset=200)

    def record_at(self, physical_offset: int) -> bytes | None:
        return self.records.get(physical_offset)


def _by_key(
    lookup: _Lookup,
    fields: Mapping[str, str] | None = None,
    *,
    max_num: int = 32,
    settings: Mapping[str, object] | None = None,
) -> RemotingCommand:
    request = RemotingCommand.request(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": "T",
            "key": "k",
            "maxNum": str(max_num),
            "beginTimestamp": "0",
            "endTimestamp": str(_FOREVER),
            **(fields or {}),
        },
    )
    processor = QueryProcessor(lookup, broker_settings(**settings or {}), StoredTopics(None))
    return processor.by_key(Peer().connection, request)


def _by_offset(lookup: _Lookup, offset: object) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    return QueryProcessor(lookup, broker_settings(), StoredTopics(None)).by_offset(Peer().connection, request)


async def test_the_records_come_oldest_first_with_the_indexs_end() -> None:
    answer = _by_key(_Lookup())
    assert answer.code == ResponseCode.SUCCESS and answer.remark is None
    assert answer.body == b"oldestmiddlenewest"
    header = QueryMessageResponseHeader.decode(answer.ext_fields)
    assert header.index_last_update_physical_offset == 200
    assert header.index_last_update_timestamp == 1_700_000_000_000


async def test_of_too_many_the_newest_are_given() -> None:
    assert _by_key(_Lookup(), max_num=2).body == b"middlenewest"


async def test_times_are_handed_on() -> None:
    lookup = _Lookup()
    _by_key(lookup, {"beginTimestamp": "5", "endTimestamp": "7"})
    assert lookup.asked == [("T", "k", 32, 5, 7)]


@pytest.mark.parametrize(
    ("max_num", "fields", "count"),
    [
        (5, {}, 5),
        (1_000_000, {}, 64),
        (1, {"_UNIQUE_KEY_QUERY": "true"}, 32),
        (5, {"_UNIQUE_KEY_QUERY": "false"}, 5),
    ],
)
async def test_how_many_are_given_is_bounded(max_num: int, fields: dict[str, str], count: int) -> None:
    lookup = _Lookup()
    _by_key(lookup, fields, max_num=max_num)
    assert lookup.asked[0][2] == count


async def test_the_bounds_are_settings() -> None:
    lookup = _Lookup()
    settings = {"defaultQueryMaxNum": 3, "maxMsgsNumBatch": 7}
    _by_key(lookup, max_num=10, settings=settings)
    _by_key(lookup, {"_UNIQUE_KEY_QUERY": "true"}, settings=settings)
    assert [asked[2] for asked in lookup.asked] == [7, 3]


async def test_entries_without_a_record_and_repeated_ones_are_passed_over() -> None:
    lookup = _Lookup()
    lookup.index["T", "k"] = [300, 200, 200, 150, 0]
    assert _by_key(lookup).body == b"oldestnewest"


async def test_nothing_found_says_what_was_looked_for() -> None:
    with pytest.raises(
        CommandError, match=r"topic T with key other.* between 0 and .*1700000000000"
    ) as refusal:
        _by_key(_Lookup(), {"key": "other"})
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND
    lookup = _Lookup()
    lookup.records.clear()
    with pytest.raises(CommandError) as refusal:
        _by_key(lookup)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("max_num", [0, -1, -(2**31)])
async def test_max_num_below_one_is_refused(max_num: int) -> None:
    with pytest.raises(CommandError, match="maxNum must be at least 1") as refusal:
        _by_key(_Lookup(), max_num=max_num)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND


async def test_an_answer_fits_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_ANSWER_BYTES", 12)
    answer = _by_key(_Lookup())
    assert answer.body == b"middlenewest"
    assert "1 oldest do not fit" in (answer.remark or "")


async def test_a_message_by_its_place() -> None:
    answer = _by_offset(_Lookup(), 100)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"middle")


@pytest.mark.parametrize("offset", [-1, -(2**63), 50, 2**63 - 1])
async def test_a_place_where_no_message_begins(offset: int) -> None:
    lookup = _Lookup()
    lookup.records[-1] = b"must not be asked for"
    with pytest.raises(CommandError, match=f"no message begins at offset {offset} ") as refusal:
        _by_offset(lookup, offset)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


async def test_bad_headers_are_told() -> None:
    with pytest.raises(HeaderError, match="offset"):
        _by_offset(_Lookup(), "x")
    with pytest.raises(HeaderError, match="beginTimestamp"):
        _by_key(_Lookup(), {"beginTimestamp": "now"})
