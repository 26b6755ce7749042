"""Questions to name servers: each knows everything, so any one that answers will do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from rmq_remoting.bodies.route import ClusterInfo, TopicList, TopicRouteData
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.base import Header
from rmq_remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader, GetRouteInfoRequestHeader

from .errors import NameServerUnreachable, TopicNotFound, TopicNotOnBroker, readable, refusal
from .settings import ClientSettings

T = TypeVar("T")

log = logging.getLogger("rmq.client.name_servers")


class NameServers:
    """Asks one name server, and stays with it until it does not answer. Belongs to the network loop."""

    def __init__(self, addresses: Sequence[str], client: RemotingClient, settings: ClientSettings) -> None:
        self.addresses = tuple(addresses)
        self._client = client
        self._settings = settings
        self._preferred = 0

    def __str__(self) -> str:
        return ";".join(self.addresses)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Where a topic is. Raises TopicNotFound, NameServerUnreachable, BrokerError."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            return await self._ask(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, header, f"route of topic {topic}", TopicRouteData.decode
            )
        except TopicNotOnBroker as error:
            raise TopicNotFound(
                f"topic {topic} has no route on {self}: create it, or start the broker with "
                "autoCreateTopicEnable=true"
            ) from error

    async def cluster_info(self) -> ClusterInfo:
        """All brokers. Raises NameServerUnreachable, BrokerError."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return await self._ask(code, None, "cluster info", ClusterInfo.decode)

    async def topics(self) -> list[str]:
        """Names of all topics. Raises NameServerUnreachable, BrokerError."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return (await self._ask(code, None, "list of topics", TopicList.decode)).topic_list

    async def delete_topic(self, topic: str) -> None:
        """Have every name server forget a topic's route. Raises NameServerUnreachable, BrokerError."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic)
        for address in self.addresses:
            response = await self._request(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
            if isinstance(response, RequestError):
                text = f"topic {topic} is not deleted on {address}: {response}"
                raise NameServerUnreachable(text) from response
            if response.code != ResponseCode.SUCCESS:
                raise refusal(response.code, response.remark, address, f"delete topic {topic}")

    async def _ask(
        self, code: RequestCode, header: Header | None, about: str, read: Callable[[bytes], T]
    ) -> T:
        """Ask one after the other until one answers; what `read` makes of the answer's body."""
        failures: list[str] = []
        count = len(self.addresses)
        for attempt in range(count):
            index = (self._preferred + attempt) % count
            address = self.addresses[index]
            response = await self._request(address, code, header)
            if isinstance(response, RequestError):
                failures.append(str(response))
                continue
            self._preferred = index
            if response.code != ResponseCode.SUCCESS:
                raise refusal(response.code, response.remark, address, about)
            with readable(address, about):
                return read(response.body)
        raise NameServerUnreachable(
            f"no name server of {self} answers ({'; '.join(failures)}): is it running, and is the "
            "address right?"
        )

    async def _request(
        self, address: str, code: RequestCode, header: Header | None
    ) -> RemotingCommand | RequestError:
        fields = None if header is None else header.encode()
        request = RemotingCommand.request(code, fields, serialization=self._settings.serialization)
        try:
            return await self._client.request(address, request, self._settings.request_timeout_seconds)
        except RequestError as error:
            log.debug("name server %s: %s", address, error)
            return error
