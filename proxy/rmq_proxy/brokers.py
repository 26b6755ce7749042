"""Requests to brokers, by name or by address, and the routes that lead to them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from rmq_client.errors import ClientError, TopicNotFound, UnreachableError, broker_error, request_failure
from rmq_client.network.name_servers import NameServers
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import RequestError

from .protocol.definition_pb2 import Code
from .refreshing_cache import RefreshingCache
from .routes import TopicRoute
from .settings import ProxySettings
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

# Binary headers have 16 bits for the request code. The codes of POP need more.
_LAST_BINARY_CODE: Final = 0x7FFF


class Backend(Protocol):
    """Carries requests to brokers: connections to a cluster, or the way into the broker of this process."""

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        """Send a request and wait for its response. Raises RequestError."""

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request without a response. Raises RequestError."""


@dataclass(frozen=True, slots=True)
class OwnBroker:
    """The broker of a proxy in LOCAL mode: its name, and its address in routes."""

    name: str
    address: str


class Brokers:
    """The brokers of the cluster. Belongs to one loop."""

    def __init__(
        self,
        backend: Backend,
        name_servers: NameServers,
        settings: ProxySettings,
        own: OwnBroker | None = None,
    ) -> None:
        """`own`: the broker of this process, which gets all requests in LOCAL mode."""
        self.own = own
        self._backend = backend
        self._name_servers = name_servers
        self._timeout_seconds = settings.request_timeout_ms / 1000
        self._routes = RefreshingCache(
            "route of topic",
            self._load_route,
            refresh_seconds=settings.route_refresh_seconds,
            expire_seconds=settings.route_expired_seconds,
            most=settings.route_max_num,
        )
        self.caches = (self._routes,)

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Raises TopicNotFound, NameServerUnreachable, BrokerError."""
        return await self._routes.get(topic)

    async def address(self, broker_name: str, code: Code) -> str:
        """Return the address of a broker's master. Raises Refusal with `code` for an unknown broker.

        In LOCAL mode all other brokers are unknown: their receipts would be taken for those of this one.
        """
        if self.own is None:
            address = await self.known_address(broker_name)
        else:
            address = self.own.address if broker_name == self.own.name else None
        if address is None:
            raise Refusal(code, f"cannot find broker {broker_name}")
        return address

    async def known_address(self, broker_name: str) -> str | None:
        """Return the address of a broker's master, None if no name server knows it."""
        route = await self._route_of_broker(broker_name)
        return None if route is None else route.master(broker_name)

    async def serving_address(self, broker_name: str) -> str | None:
        """Return the address of a broker's master, or of its replica with the lowest id.

        None if no name server knows any.
        """
        route = await self._route_of_broker(broker_name)
        return None if route is None else route.address(broker_name)

    def lost(self, address: str) -> None:
        """Note that a broker has not answered: it may have moved, and the next requests look for it."""
        self._routes.outdate(lambda route: route.has(address))

    async def _route_of_broker(self, broker_name: str) -> TopicRoute | None:
        if not broker_name:
            return None
        try:
            # Each broker registers a topic of its own name.
            return await self._routes.get(broker_name)
        except UnreachableError:
            raise
        except ClientError as error:
            log.info("broker not found broker=%s cause=%s", broker_name, error)
            return None

    async def any_address(self, topic: str) -> str | None:
        """Return the address of one of a topic's brokers. Raises as `route`."""
        return self.own.address if self.own is not None else (await self.route(topic)).any_address()

    async def call(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        about: str,
        timeout_seconds: float | None = None,
    ) -> RemotingCommand:
        """Send a request and return its response with SUCCESS. Raises BrokerError, UnreachableError."""
        response = await self.ask(address, code, fields, body, about=about, timeout_seconds=timeout_seconds)
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        return response

    async def ask(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        about: str,
        timeout_seconds: float | None = None,
    ) -> RemotingCommand:
        """Send a request and return its response, whatever it says. Raises UnreachableError."""
        command = RemotingCommand.request(code, fields, body, serialization=_serialization(code))
        try:
            return await self._backend.request(address, command, timeout_seconds or self._timeout_seconds)
        except RequestError as error:
            self.lost(address)
            raise request_failure(error, about) from error

    async def tell(self, address: str, code: RequestCode, fields: dict[str, str], *, about: str) -> None:
        """Send a request without a response. Raises UnreachableError if it cannot be sent."""
        command = RemotingCommand.request(code, fields, oneway=True, serialization=_serialization(code))
        try:
            await self._backend.oneway(address, command)
        except RequestError as error:
            self.lost(address)
            raise request_failure(error, about) from error

    async def stop(self) -> None:
        """Cancel the requests for routes in flight."""
        await self._routes.stop()

    async def _load_route(self, topic: str) -> TopicRoute:
        try:
            data = await self._name_servers.topic_route_body(topic)
        except TopicNotFound:
            known = self._routes.known(topic)
            if known is not None and await self._is_any_registered(known):
                log.info("topic deleted topic=%s", topic)
                self._routes.drop(topic)
            raise
        return TopicRoute.of(topic, data, None if self.own is None else self.own.name)

    async def _is_any_registered(self, route: TopicRoute) -> bool:
        """Whether a broker of the route is up. One that restarts takes its topics from name servers, too."""
        for name in route.brokers:
            try:
                # Each broker registers a topic of its own name.
                await self._name_servers.topic_route_body(name)
            except ClientError:
                continue
            return True
        return False


def _serialization(code: RequestCode) -> Serialization:
    return Serialization.BINARY if code <= _LAST_BINARY_CODE else Serialization.JSON
