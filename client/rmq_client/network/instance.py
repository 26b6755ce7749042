"""One client instance per process and list of name servers, shared by all its producers and consumers.

**Whose thread does what.** An instance has a thread with a loop of its own, the network thread. It owns the
connections (one per broker), the routes, heartbeats, rebalancing, pulls and commits. So they go on whatever
the application does with its own loop or threads: a listener that sleeps or computes for a minute costs
messages time, but not the group its membership.

Sends come from the application's loop and cross to the network thread and back in batches. That was measured
against connections of the producer's own on the caller's loop: with 64 tasks the throughput is the same
within 5 % (see crossing.py), and one connection per broker stays one: what a broker sends to a client by
itself (notifications, transaction checks) comes on the connection that its heartbeats go on. The price is
some 30 µs for a send that waits alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.client import RemotingClient
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.host import local_address
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.tasks import is_being_cancelled

from ..clock import now_ms
from ..errors import ClientError
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
from .routing import RouteTable, TopicRoute
from .server_requests import ServerRequests
from .transaction_checks import TransactionChecks

log = logging.getLogger("rmq.client.instance")

T = TypeVar("T")

_STOP_TIMEOUT_SECONDS: Final = 5.0
_RESTART_PAUSE_SECONDS: Final = 1.0


class ClientInstance:
    """What the producers and consumers of one process share. Made by `acquire`, given back by `release`."""

    def __init__(self, addresses: tuple[str, ...], settings: ClientSettings) -> None:
        """Raises UsageError where the files for TLS cannot be used."""
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
        self._users = 0
        self._has_ended = False
        self._bridges: dict[int, tuple[asyncio.AbstractEventLoop, NetworkBridge]] = {}
        # Made on the network loop, by _start.
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
        """The running instance for these name servers and settings.

        Raises UsageError for a bad address, and for files for TLS that cannot be used.
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

    async def release(self) -> None:
        """Give it back; the last who does ends it."""
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
        """Run a coroutine on the network loop and wait for its result; cancelling this cancels it.

        Raises NotRunning where this instance has ended, or ends meanwhile: nobody has cancelled the caller.
        """
        try:
            return await asyncio.wrap_future(self._submit(coroutine))
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            error = stopped_error()
            error.is_outcome_unknown = True  # it had begun
            raise error from None

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Raises NotRunning where the network loop has ended."""
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
        """Run a user's last coroutine on the network loop, and give it back whatever comes of that."""
        try:
            await self.run(leaving)
        finally:
            await self.release()

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic that exists. Raises as RouteTable.route."""
        known = self.routes.existing.get(topic)
        return known if known is not None else await self.run(self.routes.route(topic))

    def bridge(self) -> NetworkBridge:
        """The way for requests of the running loop."""
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
        """A producer is there; brokers learn it with the next heartbeat, or when they are connected to."""
        self.members.add_producer(group)
        if self.routes.brokers():
            self._start_task(self.heartbeats.send_all(self.connections), "announce a producer")

    async def remove_producer(self, group: str) -> None:
        """A producer is gone; the brokers are told if it was its group's last."""
        if self.members.remove_producer(group):
            await self._unregister(producer_group=group)

    async def add_consumer(self, member: ConsumerMember) -> None:
        """A consumer is there. Raises UsageError where its group has one already."""
        self.members.add_consumer(member)

    async def remove_consumer(self, member: ConsumerMember) -> None:
        """A consumer is gone; the brokers are told."""
        if self.members.remove_consumer(member):
            await self._unregister(consumer_group=member.group)

    async def announce(self) -> None:
        """Tell all brokers of this client now."""
        await self.heartbeats.send_all(self.connections)

    async def check_expression(self, group: str, subscription: SubscriptionData, route: TopicRoute) -> None:
        """Ask the topic's brokers whether they can filter so. Raises BrokerError, UnreachableError."""
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
                log.info("not unregistered: %s", error)

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
        ServerRequests(self.members).register(dispatcher)
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
            self._start_task(_restarting(self.name_servers.keep_resolving), "look name servers up")
        self._start_task(_restarting(lambda: self.heartbeats.keep_sending(self.connections)), "heartbeats")
        log.info("client %s uses name servers %s", self.client_id, self.name_servers)

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
        log.info("client %s has ended", self.client_id)

    def _start_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.ensure_future(coroutine)
        task.set_name(f"rmq {name}")
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended by an error", task.get_name(), exc_info=error)


async def _restarting(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Begin again what must not end."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("a background task failed and is started again")
        await asyncio.sleep(_RESTART_PAUSE_SECONDS)


class _Registry:
    """The instances of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.instances: dict[tuple[tuple[str, ...], ClientSettings], ClientInstance] = {}


_registry = _Registry()


def _forget_instances() -> None:
    """A forked process has the objects, but not their threads."""
    global _registry  # noqa: PLW0603
    _registry = _Registry()


os.register_at_fork(after_in_child=_forget_instances)
