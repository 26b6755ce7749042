"""QueryRoute and QueryAssignment.

Source: Apache RocketMQ 5.3.3, RouteActivity and ProxyTopicRouteData.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from rmq_client.errors import TopicNotFound
from rmq_remoting.bodies.route import MASTER_BROKER_ID, QueueData

from .brokers import Brokers
from .calls import Call
from .metadata import Metadata, TopicType
from .protocol import definition_pb2 as pb
from .protocol import service_pb2 as rpc
from .protocol.definition_pb2 import Code
from .routes import PERM_READ, PERM_WRITE, TopicRoute
from .settings import ProxySettings
from .statuses import Refusal, ok
from .validation import check_group, check_topic

# The queue id that stands for all queues of a broker.
_ANY_QUEUE: Final = -1
_ACCEPTED: Final = {
    TopicType.NORMAL: (pb.NORMAL,),
    TopicType.FIFO: (pb.FIFO,),
    TopicType.DELAY: (pb.DELAY,),
    TopicType.TRANSACTION: (pb.TRANSACTION,),
    TopicType.MIXED: (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION),
    TopicType.UNSPECIFIED: (pb.MESSAGE_TYPE_UNSPECIFIED,),
}


class Routing:
    """Requests for routes. `port` is the one that clients connect to."""

    def __init__(self, brokers: Brokers, metadata: Metadata, settings: ProxySettings) -> None:
        self.port = settings.grpc_server_port
        self._brokers = brokers
        self._metadata = metadata
        self._settings = settings

    async def query_route(self, call: Call, request: rpc.QueryRouteRequest) -> rpc.QueryRouteResponse:
        """Return the queues of a topic, with the proxy's endpoints in place of the brokers'.

        Raises Refusal, ClientError.
        """
        topic = check_topic(request.topic.name)
        route = await self._existing(topic)
        accepted = _ACCEPTED[await self._metadata.topic_type(topic)]
        queues: list[pb.MessageQueue] = []
        for queue_data in route.queue_datas:
            for broker in self._brokers_of(route, queue_data.broker_name, request.endpoints):
                for queue_id, permission in enumerate(_permissions(queue_data)):
                    queues.append(
                        pb.MessageQueue(
                            topic=request.topic,
                            id=queue_id,
                            permission=permission,
                            broker=broker,
                            accept_message_types=accepted,
                        )
                    )
        return rpc.QueryRouteResponse(status=ok(), message_queues=queues)

    async def query_assignment(
        self, call: Call, request: rpc.QueryAssignmentRequest
    ) -> rpc.QueryAssignmentResponse:
        """Return the sources of a push consumer: each broker, or in a FIFO group each queue.

        Raises Refusal, ClientError.
        """
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        route = await self._existing(topic)
        config = await self._metadata.group(group)
        in_order = config is not None and config.consume_message_orderly
        assignments: list[pb.Assignment] = []
        for queue_data in route.queue_datas:
            if not queue_data.perm & PERM_READ or queue_data.read_queue_nums <= 0:
                continue
            for broker in self._brokers_of(route, queue_data.broker_name, request.endpoints):
                if broker.id != MASTER_BROKER_ID:
                    continue
                for queue_id in range(queue_data.read_queue_nums) if in_order else (_ANY_QUEUE,):
                    queue = pb.MessageQueue(
                        topic=request.topic,
                        id=queue_id,
                        permission=_permission(queue_data.perm),
                        broker=broker,
                    )
                    assignments.append(pb.Assignment(message_queue=queue))
        if not assignments:
            raise Refusal(Code.FORBIDDEN, "no readable queue")
        return rpc.QueryAssignmentResponse(status=ok(), assignments=assignments)

    async def _existing(self, topic: str) -> TopicRoute:
        route = await self._brokers.route(topic)
        if not route.queue_datas:
            raise TopicNotFound(f"topic {topic} has no queues")
        return route

    def _brokers_of(
        self, route: TopicRoute, broker_name: str, endpoints: pb.Endpoints
    ) -> Iterator[pb.Broker]:
        """Yield a broker and its slaves.

        In CLUSTER mode all have the endpoints that the client connected to: those of the proxies. In LOCAL
        mode each broker has a proxy of its own on its host.
        """
        broker = route.brokers.get(broker_name)
        if broker is None:
            return
        for broker_id, address in broker.broker_addrs.items():
            reached = self._proxies(endpoints) if self._brokers.own is None else self._proxy_of(address)
            yield pb.Broker(name=broker_name, id=broker_id, endpoints=reached)

    def _proxies(self, endpoints: pb.Endpoints) -> pb.Endpoints:
        keeps_port = self._settings.use_endpoint_port_from_request
        return pb.Endpoints(
            scheme=endpoints.scheme or pb.IPv4,
            addresses=[
                pb.Address(host=address.host, port=address.port if keeps_port else self.port)
                for address in endpoints.addresses
            ],
        )

    def _proxy_of(self, address: str) -> pb.Endpoints:
        host = address.rpartition(":")[0].strip("[]")
        return pb.Endpoints(scheme=_scheme(host), addresses=[pb.Address(host=host, port=self.port)])


def _scheme(host: str) -> pb.AddressScheme:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return pb.DOMAIN_NAME
    return pb.IPv4 if address.version == 4 else pb.IPv6


def _permission(perm: int) -> pb.Permission:
    if perm & PERM_READ:
        return pb.READ_WRITE if perm & PERM_WRITE else pb.READ
    return pb.WRITE if perm & PERM_WRITE else pb.NONE


def _permissions(queues: QueueData) -> list[pb.Permission]:
    """Return the permission of each queue: first those only to read, then only to write, then both."""
    read, write = queues.read_queue_nums, queues.write_queue_nums
    permission = _permission(queues.perm)
    if permission == pb.NONE:
        return [pb.NONE] * max(1, read, write)
    if permission == pb.READ:
        return [pb.READ] * read
    if permission == pb.WRITE:
        return [pb.WRITE] * write
    both = min(read, write)
    return [pb.READ] * (read - both) + [pb.WRITE] * (write - both) + [pb.READ_WRITE] * both
