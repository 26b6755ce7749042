"""Requests to name servers. Each name server knows all routes, so any answer will do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError, TlsError

from ..errors import (
    NameServerUnreachable,
    TlsFailed,
    TopicNotFound,
    TopicNotOnBroker,
    UnreachableError,
    broker_error,
    readable,
)
from ..settings import ClientSettings, is_address_server
from .address_server import REFRESH_SECONDS, AddressServer
from .plain_answers import PlainHeader, RouteData, decode_route

if TYPE_CHECKING:
    from rmq_remoting.bodies.route import ClusterInfo, TopicRouteData
    from rmq_remoting.headers.base import TypedHeader

T = TypeVar("T")

log = logging.getLogger(__name__)

# Requests that no name server refuses as unknown, of any version.
_OF_EVERY_NAME_SERVER: Final = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.UPDATE_NAMESRV_CONFIG,
)


class NameServers:
    """Asks one name server, and keeps to it until it does not answer. Belongs to the network loop."""

    def __init__(self, addresses: Sequence[str], client: RemotingClient, settings: ClientSettings) -> None:
        """Use these name servers, or those that one address server lists."""
        self._address_server = AddressServer(addresses[0]) if is_address_server(addresses[0]) else None
        self.addresses = () if self._address_server else tuple(addresses)
        self._client = client
        self._settings = settings
        self._preferred = 0

    def __str__(self) -> str:
        unknown = "" if self._address_server is None else self._address_server.url
        return ";".join(self.addresses) or unknown

    async def look_up(self) -> None:
        """Ask the address server, if there is one.

        Raises NameServerUnreachable; the known addresses stay in use.
        """
        if self._address_server is None:
            return
        addresses = await self._address_server.addresses()
        if addresses != self.addresses:
            log.info(
                "name servers changed source=%s addresses=%s", self._address_server.url, ";".join(addresses)
            )
            self.addresses, self._preferred = addresses, 0

    async def keep_resolving(self) -> None:
        """Ask the address server in intervals, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.look_up()
            except NameServerUnreachable as error:
                log.warning("name servers not updated cause=%s; the known ones stay in use", error)

    async def topic_route(self, topic: str) -> RouteData:
        """Return the route of a topic. Raises TopicNotFound, NameServerUnreachable, BrokerError."""
        return await self._route(topic, decode_route)

    async def topic_route_body(self, topic: str) -> TopicRouteData:
        """Return the route with all its members, as `topic_route`."""
        from rmq_remoting.bodies.route import TopicRouteData  # noqa: PLC0415

        return await self._route(topic, TopicRouteData.decode)

    async def _route(self, topic: str, read: Callable[[bytes], T]) -> T:
        header = PlainHeader(acceptStandardJsonOnly="true", topic=topic)
        try:
            return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, f"route of topic {topic}", read)
        except TopicNotOnBroker as error:
            raise TopicNotFound(
                f"topic {topic} has no route on {self}: create it, or start the broker with "
                "autoCreateTopicEnable=true"
            ) from error

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers. Raises NameServerUnreachable, BrokerError."""
        from rmq_remoting.bodies.route import ClusterInfo  # noqa: PLC0415

        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return await self.ask(code, None, "cluster info", ClusterInfo.decode)

    async def topics(self) -> list[str]:
        """Return the names of all topics. Raises NameServerUnreachable, BrokerError."""
        from rmq_remoting.bodies.route import TopicList  # noqa: PLC0415

        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return (await self.ask(code, None, "list of topics", TopicList.decode)).topic_list

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic's route on every name server. Raises NameServerUnreachable, BrokerError."""
        from rmq_remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader  # noqa: PLC0415

        header = DeleteTopicFromNamesrvRequestHeader(topic=topic)
        await self.ask_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, header, f"delete topic {topic}")

    async def ask_each(
        self, code: RequestCode, header: TypedHeader | None, about: str, body: bytes = b""
    ) -> dict[str, RemotingCommand]:
        """Send a request to every name server; return the responses by address.

        Raises NameServerUnreachable for the first that does not answer, and BrokerError for the first that
        refuses: those before it have acted.
        """
        if not self.addresses:
            await self.look_up()
        responses: dict[str, RemotingCommand] = {}
        for address in self.addresses:
            response = await self._request(address, code, header, body)
            if isinstance(response, RequestError):
                raise NameServerUnreachable(f"{about}: not done on {address}: {response}") from response
            _check(response, code, address, about)
            responses[address] = response
        return responses

    async def ask(
        self, code: RequestCode, header: TypedHeader | None, about: str, read: Callable[[bytes], T]
    ) -> T:
        """Ask one name server after the other until one answers, and return what `read` decodes from its
        body.
        """
        failures: list[RequestError] = []
        if not self.addresses:
            await self.look_up()
        addresses = self.addresses
        count = len(addresses)
        for attempt in range(count):
            index = (self._preferred + attempt) % count
            address = addresses[index]
            response = await self._request(address, code, header)
            if isinstance(response, RequestError):
                failures.append(response)
                continue
            if addresses is self.addresses:
                self._preferred = index
            _check(response, code, address, about)
            with readable(address, about):
                return read(response.body)
        raise self._unreachable(failures)

    def _unreachable(self, failures: list[RequestError]) -> UnreachableError:
        told = "; ".join(map(str, failures))
        if failures and all(isinstance(failure, TlsError) for failure in failures):
            return TlsFailed(f"no TLS with any name server of {self} ({told})")
        without_tls = "" if self._settings.tls else ", and does it accept connections without TLS"
        return NameServerUnreachable(
            f"no name server of {self} answers ({told}): is it running, is the address right{without_tls}?"
        )

    async def _request(
        self, address: str, code: RequestCode, header: TypedHeader | None, body: bytes = b""
    ) -> RemotingCommand | RequestError:
        fields = None if header is None else header.encode()
        request = RemotingCommand.request(code, fields, body, serialization=self._settings.serialization)
        try:
            return await self._client.request(address, request, self._settings.request_timeout_seconds)
        except RequestError as error:
            log.debug("name server request failed address=%s cause=%s", address, error)
            return error


def _check(response: RemotingCommand, code: RequestCode, address: str, about: str) -> None:
    """Raise BrokerError for a refusal, and NameServerUnreachable if it shows that this is no name server."""
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in _OF_EVERY_NAME_SERVER:
        raise NameServerUnreachable(
            f"{address} is no name server ({about}: request not supported): it may be the port of a "
            "broker; pass the address of a name server, which listens on port 9876 by default"
        )
    if response.code != ResponseCode.SUCCESS:
        raise broker_error(response.code, response.remark, address, about)
