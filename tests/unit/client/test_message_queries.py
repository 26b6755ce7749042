"""Message queries over all brokers of a topic: requests, answers and failures."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime

import pytest

from rmq_client.errors import BrokerError, BrokerUnreachable, RouteError, Unavailable
from rmq_client.message_queries import MessageQueries, MessageQuery, time_range_ms
from rmq_client.network.broker_api import BrokerApi
from rmq_client.network.routing import TopicRoute
from rmq_client.settings import ClientSettings
from rmq_remoting import compression
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.sys_flags import MessageSysFlag

_A, _B = "192.0.2.1:10911", "192.0.2.2:10911"
_ROUTE = TopicRoute("T", (), (), {"broker-a": {0: _A, 1: "192.0.2.9:10911"}, "broker-b": {0: _B}})
_NOT_FOUND = (int(ResponseCode.QUERY_NOT_FOUND), "nothing")

Reply = tuple[int, str] | list[MessageExt] | bytes | RequestError


class _Brokers:
    """Answers by address, and records the requests."""

    def __init__(self, **replies: Reply) -> None:
        self.replies = {_A: replies.get("a", _NOT_FOUND), _B: replies.get("b", _NOT_FOUND)}
        self.asked: list[tuple[str, RemotingCommand]] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        self.asked.append((address, command))
        reply = self.replies[address]
        if isinstance(reply, RequestError):
            raise reply
        if isinstance(reply, tuple):
            return command.response(*reply)
        body = reply if isinstance(reply, bytes) else b"".join(map(encode_stored_message, reply))
        fields = {"indexLastUpdatePhyoffset": "5", "indexLastUpdateTimestamp": str(len(body))}
        return command.response(ResponseCode.SUCCESS, ext_fields=fields, body=body)

    def queries(self) -> MessageQueries:
        return MessageQueries(BrokerApi(self, ClientSettings()), max_body_bytes=1000)


def _message(
    offset: int, *, keys: str = "k", unique_key: str = "", topic: str = "T", stored_ms: int = 0
) -> MessageExt:
    properties = {"KEYS": keys, "UNIQ_KEY": unique_key} if unique_key else {"KEYS": keys}
    return MessageExt(
        topic,
        b"body",
        properties=properties,
        physical_offset=offset,
        store_timestamp=stored_ms,
        born_host=("192.0.2.7", 1),
        store_host=("192.0.2.1", 10911),
    )


def _offsets(messages: list[MessageExt]) -> list[tuple[str, int]]:
    return [(message.broker_name, message.physical_offset) for message in messages]


def _time(stored_ms: int) -> datetime:
    return datetime.fromtimestamp(stored_ms / 1000, UTC)


async def test_messages_of_all_brokers_in_the_order_they_were_stored() -> None:
    brokers = _Brokers(
        a=[_message(0, stored_ms=10), _message(100, stored_ms=30)], b=[_message(0, stored_ms=20)]
    )
    result = await brokers.queries().query(_ROUTE, MessageQuery("T", "k", begin_ms=1, end_ms=9))
    assert _offsets(result.messages) == [("broker-a", 0), ("broker-b", 0), ("broker-a", 100)]
    assert not result.failures
    assert result.indexed_until == _time(2 * len(encode_stored_message(_message(0))))
    assert [address for address, _ in brokers.asked] == [_A, _B]
    assert brokers.asked[0][1].code == RequestCode.QUERY_MESSAGE
    assert brokers.asked[0][1].ext_fields == {
        "topic": "T",
        "key": "k",
        "maxNum": "32",
        "beginTimestamp": "1",
        "endTimestamp": "9",
        "_UNIQUE_KEY_QUERY": "false",
    }


async def test_a_query_keeps_the_newest_messages() -> None:
    brokers = _Brokers(
        a=[_message(0, stored_ms=10), _message(100, stored_ms=30)], b=[_message(0, stored_ms=20)]
    )
    result = await brokers.queries().query(_ROUTE, MessageQuery("T", "k", max_messages=2))
    assert _offsets(result.messages) == [("broker-b", 0), ("broker-a", 100)]


async def test_messages_with_a_hash_collision_are_left_out() -> None:
    messages = [
        _message(0, keys="a k b"),
        _message(1, keys="kk"),
        _message(2, topic="U"),
        _message(3, keys="K"),
    ]
    result = await _Brokers(a=messages).queries().query(_ROUTE, MessageQuery("T", "k"))
    assert _offsets(result.messages) == [("broker-a", 0)]
    messages = [_message(0, unique_key="U1"), _message(1, unique_key="U2"), _message(2, keys="U1")]
    result = await _Brokers(a=messages).queries().query(_ROUTE, MessageQuery("T", "U1", is_unique_key=True))
    assert _offsets(result.messages) == [("broker-a", 0)]


async def test_a_query_without_matches_is_empty() -> None:
    result = await _Brokers().queries().query(_ROUTE, MessageQuery("T", "k"))
    assert (result.messages, result.indexed_until, result.failures) == ([], None, {})


async def test_a_broker_without_an_answer_is_listed_in_failures() -> None:
    brokers = _Brokers(a=[_message(0)], b=RequestError("connection lost"))
    result = await brokers.queries().query(_ROUTE, MessageQuery("T", "k"))
    assert len(result.messages) == 1
    assert isinstance(result.failures["broker-b"], BrokerUnreachable)


async def test_a_query_without_any_answer_raises() -> None:
    brokers = _Brokers(a=RequestError("connection lost"), b=(int(ResponseCode.SYSTEM_BUSY), "busy"))
    with pytest.raises(BrokerUnreachable, match="messages of topic T with key k"):
        await brokers.queries().query(_ROUTE, MessageQuery("T", "k"))
    with pytest.raises(RouteError):
        await _Brokers().queries().query(TopicRoute("T", (), (), {}), MessageQuery("T", "k"))


@pytest.mark.parametrize("body", [b"\0\0\0\7nothing", bytes(200)])
async def test_an_unreadable_answer_raises_broker_error(body: bytes) -> None:
    result = await _Brokers(a=body).queries().query(_ROUTE, MessageQuery("T", "k"))
    assert isinstance(result.failures["broker-a"], BrokerError)
    assert "unreadable" in str(result.failures["broker-a"])


async def test_an_offset_message_id_is_looked_up_on_its_broker() -> None:
    brokers = _Brokers(a=[_message(4711)])
    message = await brokers.queries().view(_ROUTE, _message(4711).offset_msg_id)
    assert message is not None and (message.broker_name, message.physical_offset) == ("broker-a", 4711)
    [(address, request)] = brokers.asked
    assert (address, request.code) == (_A, RequestCode.VIEW_MESSAGE_BY_ID)
    assert request.ext_fields == {"offset": "4711"}


async def test_a_brokers_address_may_be_a_host_name() -> None:
    route = TopicRoute("T", (), (), {"broker-a": {0: "localhost:10911"}})
    message = _message(7)
    message.store_host = ("127.0.0.1", 10911)
    brokers = _Brokers()
    brokers.replies["localhost:10911"] = [message]
    found = await brokers.queries().view(route, message.offset_msg_id)
    assert found is not None and found.physical_offset == 7
    message.store_host = ("127.0.0.1", 10912)
    brokers.replies["localhost:10911"] = _NOT_FOUND
    assert await brokers.queries().view(route, message.offset_msg_id) is None
    assert brokers.asked[-1][1].code == RequestCode.QUERY_MESSAGE, "another port is another broker"


async def test_an_offset_without_a_message_is_none() -> None:
    # The answers of Apache's broker and of ours: the remark names the offset.
    brokers = _Brokers(a=(int(ResponseCode.SYSTEM_ERROR), "... by the offset, 4711"))
    assert await brokers.queries().view(_ROUTE, _message(4711).offset_msg_id) is None
    brokers = _Brokers(a=[_message(0)])
    assert await brokers.queries().view(_ROUTE, _message(4711).offset_msg_id) is None, "another message"


async def test_an_unreachable_broker_makes_view_message_raise() -> None:
    brokers = _Brokers(a=(int(ResponseCode.SYSTEM_ERROR), "the disk is on fire"))
    with pytest.raises(Unavailable, match="on fire"):
        await brokers.queries().view(_ROUTE, _message(4711).offset_msg_id)
    brokers = _Brokers(b=RequestError("connection lost"))
    with pytest.raises(BrokerUnreachable):
        await brokers.queries().view(_ROUTE, "no id of a broker")


@pytest.mark.parametrize(
    "unique_key",
    [
        "C0A80101000118B4AAC2000000000001",  # an address of no broker, if it were an offset message id
        "7F0000012F9C18B4AAC2000000000001",  # an invalid port
        "an id that an application made",
    ],
)
async def test_a_unique_key_is_looked_up_on_all_brokers(unique_key: str) -> None:
    brokers = _Brokers(b=[_message(5, unique_key=unique_key)])
    message = await brokers.queries().view(_ROUTE, unique_key)
    assert message is not None and message.broker_name == "broker-b"
    assert [request.ext_fields["_UNIQUE_KEY_QUERY"] for _, request in brokers.asked] == ["true", "true"]
    assert await _Brokers().queries().view(_ROUTE, unique_key) is None


def test_times() -> None:
    begin, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    assert time_range_ms(begin, end) == (1_704_067_200_000, 1_704_153_600_000)
    assert time_range_ms(None, None) == (0, 2**63 - 1)


async def test_an_answer_over_the_limit_of_decompressed_bodies_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "MAX_RESPONSE_BYTES", 1)
    message = _message(0)
    message.body, message.sys_flag = zlib.compress(b"body"), MessageSysFlag.COMPRESSED
    result = await _Brokers(a=[message], b=[message, message]).queries().query(_ROUTE, MessageQuery("T", "k"))
    assert [found.body for found in result.messages] == [b"body"]
    assert "query fewer messages at a time" in str(result.failures["broker-b"])
