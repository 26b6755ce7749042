"""One client instance per process and list of name servers, shared by all producers and consumers.

**Threads.** An instance has a thread with a loop of its own, the network thread. It owns the connections (one
per broker), the routes, heartbeats, rebalancing, pulls and commits. So these go on whatever the application
does with its own loop or threads. A listener that sleeps or computes for a minute delays messages, but the
group keeps its member.

Sends are handed from the application's loop to the network thread and back in batches. This was measured
against connections of the producer's own on the caller's loop. With 64 tasks the throughput is the same
within 5 % (see bridge.py), and there is still one connection per broker: requests of the broker
(notifications, transaction checks) arrive on the connection of the heartbeats. The price is some 30 µs for a
send that waits alone.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmq_remoting.client import RemotingClient
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.host import local_address
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.tasks import is_being_cancelled

from ..clock import now_ms
from ..errors import BrokerError, ClientError
from ..forks import after_fork_in_child
from ..loop_thread import LoopThread
from ..settings import ClientSettings, is_address_server, name_server_list
from ..tls import client_tls
from .bridge import NetworkBridge, stopped_error
from .broker_api import BrokerApi
from .connections import BrokerConnections
from .heartbeats import Heartbeats
from .members import ConsumerMember, Members
from .name_servers import NameServers
from .pending_replies import PendingReplies
from .routing import RouteTable, TopicRoute, may_be_of_old_route
from .server_requests import ServerRequests
from .transaction_checks import TransactionChecks

if TYPE_CHECKING:
    from rmq_remoting.bodies.heartbeat import SubscriptionData

log = logging.getLogger(__name__)

T = TypeVar("T")

_STOP_TIMEOUT_SECONDS: Final = 5.0
_RESTART_PAUSE_SECONDS: Final = 1.0


class ClientInstance:
    """Shared by the producers and consumers of one process. Created by `acquire`, given back by `release`."""

    def __init__(self, addresses: tuple[str, ...], settings: ClientSettings) -> None:
        """Create the instance and its network thread. Raises UsageError if TLS files cannot be used."""
        self.settings = settings
        self.addresses = addresses
        self._tls = client_tls(settings.tls)
        ip = local_address().strip("[]")
        mark = settings.instance_name if settings.instance_name != "DEFAULT" else str(time.time_ns())
        self.client_id = f"{ip}@{os.getpid()}#{mark}"
        self.unique_keys = UniqueKeyGenerator(ip, os.getpid(), secrets.randbits(32), now_ms)
        self.thread = LoopThread(f"rmq-client-{addresses[0]}")
        self.replies = PendingReplies(settings.max_unpacked_body_bytes, now_ms)
        self.transaction_checks = TransactionChecks(settings.serialization, settings.max_unpacked_body_bytes)
        # Set in a process that is forked from this one: it has no network thread.
        self.is_forked = False
        self._users = 0
        self._has_ended = False
        self._bridges: dict[int, tuple[asyncio.AbstractEventLoop, NetworkBridge]] = {}
        # Created on the network loop, by _start.
        self.loop: asyncio.AbstractEventLoop
        self.members: Members
        self.name_servers: NameServers
        self.routes: RouteTable
        self.connections: BrokerConnections
        self.api: BrokerApi
        self.heartbeats: Heartbeats
        self._client: RemotingClient
        self._tasks: list[asyncio.Task[None]] = []
        self._started = self.thread.submit(self._start())

    # --- from any loop ---

    @classmethod
    async def acquire(cls, namesrv: str | Sequence[str] | None, settings: ClientSettings) -> ClientInstance:
        """Return the running instance for these name servers and settings.

        Raises UsageError for an invalid address, and for TLS files that cannot be used.
        """
        addresses = name_server_list(namesrv)
        with _registry.lock:
            instance = _registry.instances.get((addresses, settings))
            if instance is None:
                instance = _registry.instances[addresses, settings] = cls(addresses, settings)
            instance._users += 1
        try:
            await asyncio.shield(asyncio.wrap_future(instance._started))
        except BaseException:
            await instance.release()
            raise
        return instance

    @property
    def users(self) -> int:
        """The number of producers and others that have acquired and not released it."""
        return self._users

    async def release(self) -> None:
        """Give the instance back. The last user's release stops it."""
        with _registry.lock:
            self._users -= 1
            if self._users:
                return
            key = (self.addresses, self.settings)
            if _registry.instances.get(key) is self:
                del _registry.instances[key]
        await self.run(self._stop())
        self._has_ended = True
        await self.thread.stop()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the network loop and wait for its result. Cancelling this cancels the coroutine.

        Raises NotRunning if the instance has stopped, or stops in the meantime: the caller was not cancelled.
        """
        try:
            return await asyncio.wrap_future(self._submit(coroutine))
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            error = stopped_error()
            error.is_outcome_unknown = True  # the coroutine had begun
            raise error from None

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the network loop. Raises NotRunning if that loop has ended."""
        if self._has_ended:
            coroutine.close()
            raise stopped_error()
        try:
            return self.thread.submit(coroutine)
        except RuntimeError as error:
            coroutine.close()
            if not self.thread.loop().is_closed():
                raise
            raise stopped_error() from error

    async def release_after(self, leaving: Coroutine[Any, Any, None]) -> None:
        """Run a user's last coroutine on the network loop, and release the instance even if it fails."""
        try:
            await self.run(leaving)
        finally:
            await self.release()

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of an existing topic. Raises as RouteTable.route."""
        known = self.routes.existing.get(topic)
        return known if known is not None else await self.run(self.routes.route(topic))

    async def at_broker(self, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[T]]) -> T:
        """Return what `ask` returns, given the address of a queue's broker and the queue as requests name it.

        A logical queue that has been moved is asked for once more, at its new leader. Raises ClientError.
        """
        route = await self.route(queue.topic)
        try:
            return await ask(route.known_address_of(queue), route.on_broker(queue))
        except BrokerError as error:
            if not may_be_of_old_route(error):
                raise
        route = await self.run(self.routes.refresh(queue.topic))
        return await ask(route.known_address_of(queue), route.on_broker(queue))

    def bridge(self) -> NetworkBridge:
        """Return the bridge for requests of the running loop."""
        loop = asyncio.get_running_loop()
        with _registry.lock:
            for key in [key for key, (known, _) in self._bridges.items() if known.is_closed()]:
                del self._bridges[key]
            entry = self._bridges.get(id(loop))
            if entry is None:
                entry = self._bridges[id(loop)] = (loop, NetworkBridge(self.connections, self.loop, loop))
        return entry[1]

    # --- on the network loop ---

    async def add_producer(self, group: str) -> None:
        """Add a producer. Brokers learn of it by the next heartbeat, or at the first connection."""
        self.members.add_producer(group)
        if self.routes.brokers():
            self._start_task(self.heartbeats.send_all(self.connections), "announce a producer")

    async def remove_producer(self, group: str) -> None:
        """Remove a producer. Brokers are told if it was the last one of its group."""
        if self.members.remove_producer(group):
            await self._unregister(producer_group=group)

    async def add_consumer(self, member: ConsumerMember) -> None:
        """Add a consumer. Raises UsageError if its group already has one."""
        self.members.add_consumer(member)

    async def remove_consumer(self, member: ConsumerMember) -> None:
        """Remove a consumer, and tell the brokers."""
        if self.members.remove_consumer(member):
            await self._unregister(consumer_group=member.group)

    async def announce(self) -> None:
        """Send a heartbeat to all brokers now."""
        await self.heartbeats.send_all(self.connections)

    async def check_expression(self, group: str, subscription: SubscriptionData, route: TopicRoute) -> None:
        """Ask the topic's brokers whether they can filter by an expression.

        Raises BrokerError, UnreachableError.
        """
        for name in route.brokers:
            address = route.broker_address(name)
            if address is not None:
                await self.api.check_client(address, self.client_id, group, subscription)

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        async def leave(address: str) -> None:
            try:
                await self.api.unregister(
                    address, self.client_id, producer_group=producer_group, consumer_group=consumer_group
                )
            except ClientError as error:
                log.info(
                    "client not unregistered cause=%s; the broker drops it after missing heartbeats", error
                )

        await asyncio.gather(
            *(leave(address) for address in self._client.addresses() if self._is_broker(address))
        )

    def _is_broker(self, address: str) -> bool:
        return address not in self.name_servers.addresses

    async def _start(self) -> None:
        settings = self.settings
        self.loop = asyncio.get_running_loop()
        self.members = Members(self.client_id)
        dispatcher = Dispatcher()
        ServerRequests(self.members, self.settings.max_unpacked_body_bytes).register(dispatcher)
        self.replies.register(dispatcher)
        self.transaction_checks.register(dispatcher)
        self._client = RemotingClient(
            dispatcher,
            settings=settings.connection,
            connect_timeout_seconds=settings.connect_timeout_seconds,
            signer=None if settings.credentials is None else settings.credentials.signer(),
            tls=self._tls,
        )
        self.name_servers = NameServers(self.addresses, self._client, settings)
        self.routes = RouteTable(self.name_servers, settings.route_refresh_seconds)
        self.heartbeats = Heartbeats(
            self.members, self.routes, BrokerApi(self._client, settings), settings.heartbeat_seconds
        )
        self.connections = BrokerConnections(self._client, self.heartbeats.send_heartbeat)
        self.api = BrokerApi(self.connections, settings)
        self._start_task(_restarting(self.routes.keep_refreshing), "refresh routes")
        if is_address_server(self.addresses[0]):
            self._start_task(_restarting(self.name_servers.keep_resolving), "resolve name servers")
        self._start_task(_restarting(lambda: self.heartbeats.keep_sending(self.connections)), "heartbeats")
        log.info("client started id=%s name_servers=%s", self.client_id, self.name_servers)

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_TIMEOUT_SECONDS)
        await self.transaction_checks.stop()
        await self.routes.stop()
        await self.connections.stop()
        await self._client.stop()
        log.info("client stopped id=%s", self.client_id)

    def _start_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.ensure_future(coroutine)
        task.set_name(f"rmq {name}")
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed name=%s", task.get_name(), exc_info=error)


async def _restarting(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Restart background work that must not end."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("background task failed; it is restarted")
        await asyncio.sleep(_RESTART_PAUSE_SECONDS)


class _Registry:
    """The client instances of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.instances: dict[tuple[tuple[str, ...], ClientSettings], ClientInstance] = {}


_registry = _Registry()


def _forget_instances() -> None:
    """Forget the instances in a forked process, which does not have their threads."""
    global _registry  # noqa: PLW0603
    for instance in _registry.instances.values():
        instance.is_forked = True
    _registry = _Registry()


def _warn_at_exit() -> None:
    """Report producers and consumers that are alive at the end of the process and were not stopped."""
    for instance in list(_registry.instances.values()):
        warnings.warn(
            f"producers, consumers and Admins of {instance.name_servers} that were not stopped at the end of "
            f"the process: {instance.users}",
            ResourceWarning,
            stacklevel=1,
        )


after_fork_in_child(_forget_instances)
atexit.register(_warn_at_exit)
