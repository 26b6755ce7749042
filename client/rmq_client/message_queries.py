"""Queries for messages by key, by id and by time, over all brokers of a topic."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pydantic import Field

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.query import (
    UNIQUE_KEY_QUERY,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_errors import DecompressionBudgetError, MessageDecodeError, MessageIdError
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.socket_addresses import HostPort

from .checks import check_time_ms
from .errors import BrokerError, ClientError, NotFound, RouteError, Unavailable, readable
from .network.broker_api import BrokerApi
from .network.routing import TopicRoute
from .response_decoding import decode_all

DEFAULT_MAX_MESSAGES: Final = 32
_END_OF_TIME_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """A query for messages of a topic with a key, stored between two times (ms since 1970)."""

    topic: str
    key: str
    is_unique_key: bool = False
    begin_ms: int = 0
    end_ms: int = _END_OF_TIME_MS
    max_messages: int = DEFAULT_MAX_MESSAGES

    def matches(self, message: MessageExt) -> bool:
        """Whether a message is a match: brokers search by hashes, which other keys may have too."""
        if self.is_unique_key:
            return message.msg_id == self.key
        return message.topic == self.topic and self.key in message.keys


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The messages found, the oldest first.

    `indexed_until`: store time (UTC) of the newest indexed message on the brokers that found some; None if
    none did. `failures`: the errors of brokers that could not be asked, by broker name.
    """

    messages: list[MessageExt]
    indexed_until: datetime | None = None
    failures: Mapping[str, ClientError] = field(default_factory=dict)


class _QueryHeader(QueryMessageRequestHeader):
    """Header of code 12, with the field that Apache's clients add outside of it."""

    unique_key_query: bool = Field(alias=UNIQUE_KEY_QUERY)


class MessageQueries:
    """Queries the brokers of a topic.

    A body that decompresses to more than `max_body_bytes` cannot be read.
    """

    def __init__(self, api: BrokerApi, max_body_bytes: int) -> None:
        self._api = api
        self._max_body_bytes = max_body_bytes

    async def query(self, route: TopicRoute, query: MessageQuery) -> QueryResult:
        """Return the newest matching messages of all brokers of the route that answer.

        Raises ClientError if none answers.
        """
        addresses = _addresses(route)
        answers = await asyncio.gather(
            *(self._query_broker(name, address, query) for name, address in addresses.items()),
            return_exceptions=True,
        )
        found: list[QueryResult] = []
        failures: dict[str, ClientError] = {}
        for name, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, ClientError):
                failures[name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(answer)
        if not found:
            raise next(iter(failures.values()))
        messages = [message for result in found for message in result.messages]
        messages.sort(key=lambda message: (message.store_timestamp, message.physical_offset))
        indexed_until = max((each.indexed_until for each in found if each.indexed_until), default=None)
        return QueryResult(messages[-query.max_messages :], indexed_until, failures)

    async def view(self, route: TopicRoute, message_id: str) -> MessageExt | None:
        """Return the message with an id of either kind, None if no broker of the route has it.

        An id does not say whether a broker or a producer gave it. It is a broker's if the address in it is
        the address of a broker of the topic. Raises ClientError if a broker that may have the message does
        not answer.
        """
        try:
            place = parse_offset_message_id(message_id)
        except MessageIdError:
            place = None
        if place is not None:
            for name, addresses in route.brokers.items():
                for address in addresses.values():
                    if await _is_address(address, place.address):
                        return await self._view_at(name, address, place.physical_offset)
        query = MessageQuery(route.topic, message_id, is_unique_key=True)
        result = await self.query(route, query)
        if result.messages:
            return result.messages[0]
        if result.failures:
            raise next(iter(result.failures.values()))
        return None

    async def _query_broker(self, name: str, address: str, query: MessageQuery) -> QueryResult:
        """12: return the messages of one broker."""
        header = _QueryHeader(
            topic=query.topic,
            key=query.key,
            max_num=query.max_messages,
            begin_timestamp=query.begin_ms,
            end_timestamp=query.end_ms,
            unique_key_query=query.is_unique_key,
        )
        about = f"messages of topic {query.topic} with key {query.key}"
        try:
            answer = await self._api.call(address, RequestCode.QUERY_MESSAGE, header, about=about)
        except NotFound as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return QueryResult([])
            raise
        with readable(address, about):
            until_ms = QueryMessageResponseHeader.decode(answer.ext_fields).index_last_update_timestamp
        messages = await self._read(answer, name, address, about)
        until = None if until_ms <= 0 else datetime.fromtimestamp(until_ms / 1000, UTC)
        return QueryResult([message for message in messages if query.matches(message)], until)

    async def _view_at(self, name: str, address: str, physical_offset: int) -> MessageExt | None:
        """33: return the message at an offset of one broker's log."""
        header = ViewMessageRequestHeader(offset=physical_offset)
        about = f"message at offset {physical_offset}"
        try:
            answer = await self._api.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header, about=about)
        except Unavailable as error:
            # A broker names the offset in its answer (SYSTEM_ERROR) if there is no message at it.
            if error.code == ResponseCode.SYSTEM_ERROR and str(physical_offset) in (error.remark or ""):
                return None
            raise
        messages = await self._read(answer, name, address, about)
        return next((each for each in messages if each.physical_offset == physical_offset), None)

    async def _read(self, answer: RemotingCommand, name: str, address: str, about: str) -> list[MessageExt]:
        try:
            messages = await decode_all(answer.body, self._max_body_bytes)
        except DecompressionBudgetError as error:
            text = f"too much for one answer: {error}; query fewer messages at a time"
            raise BrokerError(ResponseCode.SUCCESS, text, address, about) from error
        except MessageDecodeError as error:
            raise BrokerError(ResponseCode.SUCCESS, f"unreadable: {error}", address, about) from error
        for message in messages:
            message.broker_name = name
        return messages


def time_range_ms(begin: datetime | None, end: datetime | None) -> tuple[int, int]:
    """Return two times in ms since 1970 UTC; None is the beginning or the end of time.

    Raises InvalidArgumentError for a time without a time zone.
    """
    return (
        0 if begin is None else check_time_ms("begin", begin),
        _END_OF_TIME_MS if end is None else check_time_ms("end", end),
    )


def _addresses(route: TopicRoute) -> dict[str, str]:
    """Return an address for each broker name: the master's, if there is a master."""
    addresses = {name: address for name in route.brokers if (address := route.broker_address(name))}
    if not addresses:
        raise RouteError(f"topic {route.topic} has no broker with an address: no broker can be asked")
    return addresses


async def _is_address(address: str, wanted: HostPort) -> bool:
    """Whether `host:port`, whose host may be a name, resolves to an IP address and port."""
    host, _, port = address.rpartition(":")
    if port != str(wanted[1]):
        return False
    ip = ipaddress.ip_address(wanted[0])
    try:
        return ipaddress.ip_address(host.strip("[]")) == ip
    except ValueError:
        pass
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # a name that does not resolve cannot be in an id, either
    return any(ipaddress.ip_address(str(info[4][0]).partition("%")[0]) == ip for info in infos)
