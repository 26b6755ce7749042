"""Topics: create, change, delete, list, and show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.constants import PERM_READ_WRITE
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message_queue import MessageQueue

from ..checks import Seconds, check_seconds
from ..errors import AlreadyExists, ClientError, NotFound, TopicNotFound
from ..names import check_topic
from .arguments import checked
from .base import AdminBase
from .results import QueueOffsets, TopicSettings, time_of

if TYPE_CHECKING:
    from rmq_remoting.bodies.topic import TopicConfig

_ROUTE_POLL_SECONDS: Final = 0.1


class TopicAdmin(AdminBase):
    """Administration of topics."""

    @checked
    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        permission: int = PERM_READ_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_name: str | None = None,
        exists_ok: bool = False,
        timeout_seconds: Seconds = 10.0,
    ) -> None:
        """Create a topic on all masters, and wait until the name servers know it there.

        `cluster` or `broker_name` restrict the masters. `queues` is per broker. `permission` is 2 to write, 4
        to read, 6 for both. `attributes` have the names of Apache's tools, with a + before the name. A master
        that has the topic keeps it as it is: with `exists_ok` that is no error, otherwise AlreadyExists is
        raised and nothing is created. Raises ClientError.
        """
        from rmq_remoting.bodies.topic import TopicConfig  # noqa: PLC0415

        topic = self._namespace.wrap(topic)
        check_topic(topic)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=permission,
            order=ordered,
            attributes=dict(attributes or {}),
        )
        masters = await self._masters(cluster, broker_name)
        there = [name for name, found in (await self._topic_configs(topic, masters)).items() if found]
        if there and not exists_ok:
            raise AlreadyExists(
                f"topic {topic} exists on {', '.join(sorted(there))}: pass exists_ok=True to leave it as it "
                "is there, or call update_topic to change it"
            )
        without = [address for name, address in masters.items() if name not in there]
        await asyncio.gather(*(self._api.create_topic(address, config) for address in without))
        await self._wait_for_route(topic, set(masters), check_seconds("timeout_seconds", timeout_seconds))

    @checked
    async def update_topic(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int | None = None,
        ordered: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Change a topic on all masters that have it; None leaves a property as it is.

        To remove queues without losing messages, lower `write_queues` first, and `read_queues` once their
        messages are consumed. `attributes`: `{"+name": value}` sets one, `{"-name": ""}` removes it. Raises
        TopicNotFound if no master has the topic, and other ClientErrors.
        """
        topic = self._namespace.wrap(topic)
        masters = await self._masters(cluster, broker_name)
        found = await self._topic_configs(topic, masters)
        changed = {
            name: config.model_copy(
                update={
                    key: value
                    for key, value in (
                        ("read_queue_nums", read_queues),
                        ("write_queue_nums", write_queues),
                        ("perm", permission),
                        ("order", ordered),
                    )
                    if value is not None
                }
                | {"attributes": dict(attributes or {})}
            )
            for name, config in found.items()
            if config is not None
        }
        if not changed:
            raise TopicNotFound(f"topic {topic} is on none of {', '.join(sorted(masters))}: create it first")
        await asyncio.gather(
            *(self._api.create_topic(masters[name], config) for name, config in changed.items())
        )

    @checked
    async def delete_topic(self, topic: str, *, missing_ok: bool = False) -> None:
        """Delete a topic and its messages on all brokers and name servers.

        Raises TopicNotFound for a topic that no master and no name server has, unless `missing_ok`, and other
        ClientErrors.
        """
        instance = self._running()
        topic = self._namespace.wrap(topic)
        check_topic(topic)
        info = await self._cluster()
        if not missing_ok and not await self._exists(topic):
            raise TopicNotFound(f"topic {topic} is on no broker and no name server: nothing was deleted")
        addresses = [
            address for broker in info.broker_addr_table.values() for address in broker.broker_addrs.values()
        ]
        await asyncio.gather(*(self._api.delete_topic(address, topic) for address in addresses))
        await instance.run(instance.name_servers.delete_topic(topic))

    @checked
    async def topics(self, *, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those in the namespace if there is one.

        `cluster` restricts them to the topics of one cluster. Raises ClientError.
        """
        from rmq_remoting.bodies.route import TopicList  # noqa: PLC0415
        from rmq_remoting.headers.namesrv import GetTopicsByClusterRequestHeader  # noqa: PLC0415

        instance, namespace = self._running(), self._namespace
        if cluster is None:
            topics = await instance.run(instance.name_servers.topics())
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            about = f"topics of cluster {cluster}"
            listed = await instance.run(
                instance.name_servers.ask(RequestCode.GET_TOPICS_BY_CLUSTER, header, about, TopicList.decode)
            )
            topics = listed.topic_list
        return sorted(namespace.unwrap(topic) for topic in topics if namespace.has(topic))

    @checked
    async def topic_settings(self, topic: str) -> dict[str, TopicSettings]:
        """Return the settings of a topic by broker name. Raises TopicNotFound and other ClientErrors."""
        wrapped = self._namespace.wrap(topic)
        route = await self.topic_route(topic)
        addresses = {name: address for name in route.brokers if (address := route.broker_address(name))}
        found = await self._topic_configs(wrapped, addresses)
        return {
            name: TopicSettings(
                topic=self._namespace.unwrap(config.topic_name),
                read_queues=config.read_queue_nums,
                write_queues=config.write_queue_nums,
                permission=config.perm,
                ordered=config.order,
                attributes=dict(config.attributes),
            )
            for name, config in sorted(found.items())
            if config is not None
        }

    @checked
    async def topic_stats(
        self, topic: str, *, broker_name: str | None = None
    ) -> dict[MessageQueue, QueueOffsets]:
        """Return where every queue of a topic begins and ends, on all of its brokers or on one.

        With `broker_name` the broker is found through the cached route: the call is a single request. Raises
        ClientError.
        """
        topic = self._namespace.wrap(topic)
        if broker_name is None:
            addresses = await self._addresses_of(topic)
        else:
            addresses = [await self._address_of(MessageQueue(topic, broker_name, 0))]
        tables = await asyncio.gather(*(self._api.topic_stats(address, topic) for address in addresses))
        unwrap = self._namespace.unwrap_queue
        return {
            unwrap(queue): QueueOffsets(
                reach.min_offset, reach.max_offset, time_of(reach.last_update_timestamp)
            )
            for table in tables
            for queue, reach in table.items()
        }

    async def _topic_configs(self, topic: str, addresses: Mapping[str, str]) -> dict[str, TopicConfig | None]:
        """351: return the configuration at each address, None where there is no such topic."""
        from rmq_remoting.bodies.topic import TopicConfig  # noqa: PLC0415
        from rmq_remoting.headers.topic import GetTopicConfigRequestHeader  # noqa: PLC0415

        header = GetTopicConfigRequestHeader(topic=topic)

        async def ask(address: str) -> TopicConfig | None:
            about = f"settings of topic {topic}"
            try:
                return await self._body(
                    address, RequestCode.GET_TOPIC_CONFIG, header, about, TopicConfig.decode
                )
            except NotFound as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                raise

        return await self._of_each(addresses, ask)

    async def _exists(self, topic: str) -> bool:
        try:
            await self.topic_route(topic)
        except TopicNotFound:
            return any((await self._topic_configs(topic, await self._masters())).values())
        return True

    async def _wait_for_route(self, topic: str, broker_names: set[str], timeout_seconds: float) -> None:
        """Wait for the registration of a new topic, which brokers send after they have answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            missing = broker_names
            try:
                route = await self.topic_route(topic)
                missing = broker_names - {
                    route.broker_of(queue) for queue in (*route.write_queues, *route.read_queues)
                }
            except TopicNotFound:
                pass
            if not missing:
                return
            if loop.time() > deadline:
                raise ClientError(
                    f"topic {topic} was created on {', '.join(sorted(missing))}, but the name servers do "
                    f"not list it there after {timeout_seconds} s: check that those brokers can reach the "
                    "name servers"
                )
            await asyncio.sleep(_ROUTE_POLL_SECONDS)
