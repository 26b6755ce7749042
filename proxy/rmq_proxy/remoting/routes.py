"""Routes of topics, with the address of the proxy in place of those of brokers.

Source: Apache RocketMQ 5.3.3, GetTopicRouteActivity and ProxyTopicRouteData.
"""

from __future__ import annotations

from typing import Final

from rmq_client.errors import ClientError
from rmq_remoting.answers import Answer
from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader

from ..brokers import Brokers
from .commands import refusal_for

# V4_9_4 in Apache's MQVersion: clients since this version are answered in standard JSON, requested or not.
_VERSION_WITH_STANDARD_JSON: Final = 401


class Routes:
    """Answers route requests. `port` is the one that the proxy listens on."""

    def __init__(self, brokers: Brokers, access_host: str) -> None:
        """`access_host` is the host in routes; empty: the one that the client connected to."""
        self.port = 0
        self._brokers = brokers
        self._access_host = access_host

    async def route(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """105: return the route of a topic; a broker keeps its name and ids. Raises CommandError."""
        header = GetRouteInfoRequestHeader.decode(request.ext_fields)
        try:
            route = await self._brokers.route(header.topic)
        except ClientError as error:
            raise refusal_for(error) from error
        address = self._address(client)
        body = TopicRouteData(
            broker_datas=[
                broker.model_copy(update={"broker_addrs": dict.fromkeys(broker.broker_addrs, address)})
                for broker in route.brokers.values()
            ],
            order_topic_conf=route.order_topic_conf,
            queue_datas=list(route.queue_datas),
            topic_queue_mapping_by_broker=route.static_mapping,
        )
        is_standard = request.version >= _VERSION_WITH_STANDARD_JSON or bool(header.accept_standard_json_only)
        return request.response(
            ResponseCode.SUCCESS, body=body.encode_standard() if is_standard else body.encode()
        )

    def _address(self, client: Connection) -> str:
        host = self._access_host or client.local_address[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
