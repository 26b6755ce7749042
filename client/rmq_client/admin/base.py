"""The connection of an `Admin`, and the choice of the brokers that a call addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.bodies.constants import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.message_queue import MessageQueue

from ..errors import BrokerError, RouteError, UsageError, readable
from ..lifetime import Lifetime, not_running
from ..namespaces import Namespace
from ..network.broker_api import BrokerApi
from ..network.instance import ClientInstance
from ..network.routing import TopicRoute, may_be_of_old_route
from ..settings import ClientSettings, check_namesrv, checked_settings
from ..tasks import uninterrupted
from .arguments import checked
from .results import BrokerAddresses, ClusterInfo

if TYPE_CHECKING:
    from rmq_remoting.bodies.route import ClusterInfo as ClusterInfoBody
    from rmq_remoting.headers.base import TypedHeader

T = TypeVar("T")

_DEFAULT_SETTINGS: Final = ClientSettings()
# A body of more bytes is decoded in a thread: 64 KiB take some 5 ms.
_DECODE_IN_THREAD_BYTES: Final = 64 * 1024


class AdminBase(Lifetime):
    """Connects to a cluster, and asks its brokers."""

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, settings: ClientSettings = _DEFAULT_SETTINGS
    ) -> None:
        """Connect to the cluster of these name servers.

        With `settings.namespace`, topics and groups are named without the namespace.
        """
        self._namesrv = check_namesrv(namesrv)
        self._settings = checked_settings(settings)
        self._namespace = Namespace(settings.namespace)
        self._instance: ClientInstance | None = None
        self._api: BrokerApi
        # Held while a part is started that only some calls need.
        self._starting: asyncio.Lock

    async def start(self) -> None:
        """Connect. Raises UsageError."""
        if self._instance is not None:
            raise UsageError("this Admin has been started already")
        self._instance = await ClientInstance.acquire(self._namesrv, self._settings)
        self._starting = asyncio.Lock()
        self._api = BrokerApi(self._instance.bridge(), self._settings)

    async def stop(self) -> None:
        """Release the connections."""
        instance, self._instance = self._instance, None
        if instance is not None and not instance.is_forked:
            await uninterrupted(instance.release())

    @checked
    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers, with their replicas. Raises ClientError."""
        body = await self._cluster()
        return ClusterInfo(
            brokers={
                name: BrokerAddresses(name, broker.cluster or "", dict(sorted(broker.broker_addrs.items())))
                for name, broker in sorted(body.broker_addr_table.items())
            },
            clusters={
                cluster: tuple(sorted(names)) for cluster, names in sorted(body.cluster_addr_table.items())
            },
        )

    @checked
    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the current route of a topic. Raises TopicNotFound and other ClientErrors."""
        instance = self._running()
        return await instance.run(instance.routes.refresh(self._namespace.wrap(topic)))

    @checked
    async def known_route(self, topic: str) -> TopicRoute:
        """Return the cached route of a topic, which is refreshed every `settings.route_refresh_seconds`.

        Only the first call for a topic asks a name server. The cache keeps the last route of a topic that
        has been deleted: call `topic_route` after a failed request. Raises as `topic_route`.
        """
        instance = self._running()
        return await instance.run(instance.routes.route(self._namespace.wrap(topic)))

    # --- which brokers ---

    async def _cluster(self) -> ClusterInfoBody:
        instance = self._running()
        return await instance.run(instance.name_servers.cluster_info())

    async def _masters(self, cluster: str | None = None, broker_name: str | None = None) -> dict[str, str]:
        """Return the addresses of the chosen masters by broker name. Raises UsageError if there are none."""
        info = await self._cluster()
        masters = {
            name: broker.broker_addrs[MASTER_BROKER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_BROKER_ID in broker.broker_addrs
            and (broker_name is None or name == broker_name)
            and (cluster is None or name in info.cluster_addr_table.get(cluster, ()))
        }
        if not masters:
            chosen = broker_name or cluster or "the cluster"
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise UsageError(f"{chosen} has no master; brokers known to the name servers: {known}")
        return masters

    async def _broker(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> str:
        """Return the address of one broker. Raises UsageError if the name servers do not know it."""
        info = await self._cluster()
        broker = info.broker_addr_table.get(broker_name)
        address = None if broker is None else broker.broker_addrs.get(broker_id)
        if address is None:
            known = ", ".join(
                f"{name} ({', '.join(map(str, sorted(each.broker_addrs)))})"
                for name, each in sorted(info.broker_addr_table.items())
            )
            raise UsageError(
                f"the name servers know no broker {broker_name} with id {broker_id}; "
                f"they know (ids in parentheses): {known or 'none'}"
            )
        return address

    async def _addresses_of(self, topic: str) -> list[str]:
        """Return an address for each broker of a topic: the master's, if there is a master."""
        route = await self.topic_route(topic)
        return [address for name in route.brokers if (address := route.broker_address(name))]

    async def _address_of(self, queue: MessageQueue) -> str:
        """Return the address of a queue's broker. Raises RouteError."""
        instance = self._running()
        route = instance.routes.existing.get(queue.topic) or await self.topic_route(queue.topic)
        address = route.address_of(queue)
        if address is None:
            raise RouteError(f"broker {route.broker_of(queue)} of {queue} is not in the route of its topic")
        return address

    # --- requests ---

    async def _at_broker(self, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[T]]) -> T:
        """Return what `ask` returns, given the address of a queue's broker; a moved queue's new leader."""
        try:
            return await ask(await self._address_of(queue), queue)
        except BrokerError as error:
            if not may_be_of_old_route(error):
                raise
        await self.topic_route(queue.topic)
        return await ask(await self._address_of(queue), queue)

    async def _of_each(
        self, addresses: Mapping[str, str], call: Callable[[str], Awaitable[T]]
    ) -> dict[str, T]:
        """Call each address at once; return the results by the names of `addresses`."""
        results = await asyncio.gather(*(call(address) for address in addresses.values()))
        return dict(zip(addresses, results, strict=True))

    async def _body(
        self,
        address: str,
        code: RequestCode,
        header: TypedHeader | None,
        about: str,
        read: Callable[[bytes], T],
    ) -> T:
        """Send a request, and return what `read` decodes from the body of its response."""
        response = await self._api.call(address, code, header, about=about)
        with readable(address, about):
            if len(response.body) <= _DECODE_IN_THREAD_BYTES:
                return read(response.body)
            return await asyncio.to_thread(read, response.body)

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise not_running("this Admin")
        self._check_process()
        return self._instance
