"""Requests to the other brokers of a static topic.

Source: Apache RocketMQ 5.3.3, BrokerOuterAPI, RpcClientImpl. Apache's broker blocks a thread for each one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from rmq_remoting.bodies.route import MASTER_BROKER_ID, TopicRouteData
from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, CommandError, RequestError, RequestTimeout
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader

from ..settings.topics import TopicSettings
from .requests import BROKER_NAME

log = logging.getLogger("rmq.broker.static_topics")

# Age at which the address of a broker is asked for again, as clients do.
_MAX_AGE_SECONDS: Final = 30.0
_MAX_BROKERS: Final = 1024
# A single late response says little: others of the same connection may be on their way.
_MAX_LATE: Final = 3


class _KnownAddress(NamedTuple):
    """The address of a broker's master, and when a name server told it."""

    address: str
    asked_at_seconds: float


class OtherBrokers:
    """Finds brokers by the route of their topic, and asks them; belongs to the loop's thread."""

    def __init__(
        self,
        settings: TopicSettings,
        client: RemotingClient,
        name_servers: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        """`client` signs and encrypts as configured; `clock` counts seconds."""
        self._settings = settings
        self._client = client
        self._name_servers = tuple(name_servers)
        self._clock = clock
        self._addresses: BoundedCache[str, _KnownAddress] = BoundedCache(
            "static_topic_brokers",
            max_entries=_MAX_BROKERS,
            max_bytes=512 * 1024,
            size_of=_size_of,
        )
        self.caches: tuple[BoundedCache[Any, Any], ...] = (self._addresses,)
        # Time-outs in a row by broker name; as many as there are names in mappings.
        self._late: dict[str, int] = {}

    async def ask(
        self, topic: str, broker_name: str, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:
        """Return a broker's response to a request about a static topic, within `forwardTimeout`.

        A refusal is a response, too. Raises CommandError (SYSTEM_ERROR) if there is no response.
        """
        timeout_ms = self._settings.forward_timeout_ms
        problem: object
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                address = await self._address_of(topic, broker_name)
                request = RemotingCommand.request(code, {**fields, BROKER_NAME: broker_name})
                response = await self._client.request(address, request, timeout_ms / 1000)
                self._late.pop(broker_name, None)
                return response
        except (TimeoutError, RequestTimeout):
            problem = f"no response within {timeout_ms} ms (forwardTimeout)"
            self._was_late(broker_name)
        except RequestError as error:
            problem = error
            self._addresses.discard(broker_name)
        raise CommandError(
            ResponseCode.SYSTEM_ERROR,
            f"broker {broker_name}, which has a part of a queue of static topic {topic}, cannot be asked: "
            f"{problem}",
        )

    async def route_of(self, topic: str) -> TopicRouteData:
        """Return a topic's route from the first name server that knows it.

        Raises CommandError (SYSTEM_ERROR) if none does, and RequestError.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        problem: object = "no name server is set (namesrvAddr)"
        for name_server in self._name_servers:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
            try:
                response = await self._client.request(
                    name_server, request, self._settings.forward_timeout_ms / 1000
                )
                if response.code == ResponseCode.SUCCESS:
                    return TopicRouteData.decode(response.body)
                problem = f"name server {name_server} answered {response.code}, {response.remark}"
            except (RequestError, BodyError) as error:
                problem = error
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, f"the route of static topic {topic} is unknown: {problem}"
        )

    def _was_late(self, broker_name: str) -> None:
        """Give a connection up after several time-outs in a row: it may be dead without notice."""
        late = self._late[broker_name] = self._late.get(broker_name, 0) + 1
        known = self._addresses.get(broker_name)
        if late >= _MAX_LATE and known is not None:
            log.warning(
                "connection to another broker given up broker=%s address=%s timeouts=%d; a new one follows",
                *(broker_name, known.address, late),
            )
            del self._late[broker_name]
            self._addresses.discard(broker_name)
            self._client.close_address(known.address)

    async def _address_of(self, topic: str, broker_name: str) -> str:
        """Return the address of a broker with queues of a topic, or of its replica. Raises CommandError."""
        known = self._addresses.get(broker_name)
        now = self._clock()
        if known is not None and now - known.asked_at_seconds < _MAX_AGE_SECONDS:
            return known.address
        route = await self.route_of(topic)
        brokers = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
        addresses = brokers.get(broker_name)
        if not addresses:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"broker {broker_name}, which has a part of a queue of static topic {topic}, is not in the "
                "topic's route: start it, or see why it is not registered",
            )
        # A replica serves consumers while its master is away.
        address = addresses.get(MASTER_BROKER_ID) or addresses[min(addresses)]
        return self._addresses.put(broker_name, _KnownAddress(address, now)).address


def succeeded(response: RemotingCommand, broker_name: str) -> RemotingCommand:
    """Return the response of another broker. Raises CommandError for a refusal."""
    if response.code != ResponseCode.SUCCESS:
        raise refused(response, broker_name)
    return response


def refused(response: RemotingCommand, broker_name: str) -> CommandError:
    """Return the error for a request that another broker has refused."""
    return CommandError(
        ResponseCode.SYSTEM_ERROR,
        f"broker {broker_name}, which has this part of the logical queue, answered {response.code}: "
        f"{response.remark}",
    )


def _size_of(name: str, known: _KnownAddress) -> int:
    return ENTRY_OVERHEAD_BYTES + len(name) + len(known.address)
