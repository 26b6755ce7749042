"""Brokers of requests: by the name in the request, by the topics of a subscription, or all of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from rmq_client.errors import ClientError
from rmq_remoting.bodies.heartbeat import ConsumerData, HeartbeatData
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..brokers import Brokers
from .sessions import Broker, different

log = logging.getLogger("rmq.proxy")

_RETRY_PREFIX: Final = "%RETRY%"
# The Java client's own producer, which every consumer has.
_INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"


class Lookup:
    """Finds brokers by the routes of name servers. Belongs to one loop."""

    def __init__(self, brokers: Brokers, cluster: str) -> None:
        """`cluster`: the cluster whose brokers know the producers (rocketMQClusterName)."""
        self._brokers = brokers
        self._cluster = cluster

    async def named(self, name: str) -> Broker:
        """Return a broker's master, or without a master its replica with the lowest id.

        Raises CommandError (SERVICE_NOT_AVAILABLE) for an unknown name, ClientError.
        """
        address = await self._brokers.serving_address(name)
        if address is None:
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"cannot find broker {name:.100}: no name server knows an address of it; it is down, or "
                "belongs to another cluster",
            )
        return Broker(name, address)

    async def of_topic(self, topic: str) -> list[Broker]:
        """Return the brokers of a topic, by name. Raises ClientError."""
        route = await self._brokers.route(topic)
        found = ((name, route.address(name)) for name in sorted(route.brokers))
        return [Broker(name, address) for name, address in found if address is not None]

    async def of_heartbeat(self, data: HeartbeatData) -> list[Broker]:
        """Return the brokers that a heartbeat is for.

        Consumers are members at the brokers of their topics. A producer has to be known by every broker that
        may ask it for the outcome of a transaction, or send it the reply to a request.
        """
        brokers: list[Broker] = []
        if any(producer.group_name != _INNER_PRODUCER for producer in data.producer_data_set):
            brokers += await self._known(self._cluster)
        for consumer in data.consumer_data_set:
            brokers += await self.of_consumer(consumer)
        return different(brokers)

    async def of_consumer(self, consumer: ConsumerData) -> list[Broker]:
        """Return the brokers of the topics that a consumer is subscribed to."""
        topics = (subscription.topic for subscription in consumer.subscription_data_set)
        return await self._of_topics(topic for topic in topics if not topic.startswith(_RETRY_PREFIX))

    async def of_cluster(self) -> list[Broker]:
        """Return the brokers of the cluster, by name."""
        return await self._known(self._cluster)

    async def _of_topics(self, topics: Iterable[str]) -> list[Broker]:
        return different([broker for topic in topics for broker in await self._known(topic)])

    async def _known(self, topic: str) -> list[Broker]:
        """Return the brokers of a topic; none if its route is unknown."""
        try:
            return await self.of_topic(topic)
        except ClientError as error:
            log.debug("brokers of topic unknown topic=%s cause=%s", topic, error)
            return []
