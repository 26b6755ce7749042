"""Registration with the name servers, so that clients find this broker and its topics.

Each name server has a task of its own, so that one that is dead or hangs does not delay the others. The
broker sends a full registration when it first reaches the name server, after the connection was lost (a name
server forgets a broker whose connection ends), and every 30 seconds. A topic that was created or changed is
announced at once, by itself where that is enough. Before each full registration the broker asks whether
another broker of its name holds the route (`route_conflict.py`).

Source: Apache RocketMQ 5.3.3, BrokerOuterAPI, and BrokerController with its registerBrokerAll,
registerIncrementBrokerData and sendHeartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.topic import DataVersion, TopicConfig
from rmq_remoting.client import ClientTls, RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, HeaderError, RequestError, RequestTimeout
from rmq_remoting.headers.namesrv import QueryDataVersionResponseHeader, RegisterBrokerResponseHeader
from rmq_remoting.signing import RequestSigner

from ..settings.registration import RegistrationSettings
from ..settings.topics import TopicSettings
from ..topics.table import TopicsChanged, TopicTable
from .announcements import Announcements, BrokerIdentity
from .master_address import MasterAddress
from .route_conflict import RouteConflict

log = logging.getLogger("rmq.broker.registration")

_CREDENTIALS_ADVICE: Final = (
    "; the name server checks users: set innerClientAuthenticationCredentials to the keys of one that may "
    "register this broker"
)
_RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)
# With more changed topics than this the whole table is registered.
_MAX_SINGLE_TOPICS: Final = 64


class RegistrationRefused(Exception):
    """A name server refused a registration."""


class RegistrationIgnored(Exception):
    """A name server kept the address of another broker with this broker's name."""


class NameServerLink:
    """Keeps one name server up to date. The public attributes are for metrics and logs.

    `announced_version` is the version of the topic table that the name server has.
    """

    def __init__(self, address: str, registrar: Registrar) -> None:
        self.address = address
        self.is_registered = False
        self.registrations = 0
        self.failures = 0
        self.announced_version = -1
        self.conflict = RouteConflict(address, registrar.announcements.identity)
        self._registrar = registrar
        self._wake = asyncio.Event()
        self._all_due = True
        self._due: dict[str, TopicConfig] = {}

    def topics_changed(self, change: TopicsChanged) -> None:
        """Register topics that were created, changed or deleted."""
        self._due.update((config.topic_name, config) for config in change.updated)
        # Only a full registration shows a deletion, or a change of the broker itself, which names no topic.
        if change.removed or not change.updated or len(self._due) > _MAX_SINGLE_TOPICS:
            self._all_due = True
        self._wake.set()

    def connection_lost(self) -> None:
        """Register again with everything: the name server dropped the broker, or is gone."""
        self.is_registered = False
        self._all_due = True
        self._wake.set()

    async def run(self) -> None:
        """Register periodically and after changes, until cancelled."""
        failures = 0
        while True:
            self._wake.clear()
            try:
                await self._announce()
                failures = 0
                pause = self._registrar.settings.registration_period_ms / 1000
            except RegistrationIgnored:
                # Sending everything again at once would change nothing, as the other broker goes on.
                self.failures += 1
                self.is_registered = False
                pause = self._registrar.settings.registration_period_ms / 1000
            except (RequestError, RegistrationRefused, HeaderError) as error:
                self._failed(error, is_news=failures == 0)
                pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
            self._registrar.progressed()
            if await self._pause(pause, interruptible=failures == 0):
                self._all_due = True

    async def _announce(self) -> None:
        """Send the name server the changed topics or, where that is not enough, a full registration."""
        registrar = self._registrar
        version = registrar.topics.version
        everything, changed = self._all_due, list(self._due.values())
        self._all_due = False
        self._due.clear()
        try:
            if everything:
                await self._register(is_known=self.is_registered)
            elif not await self._takes(changed):
                await self._register(is_known=False)
        except BaseException:
            self._all_due = True
            raise
        self.is_registered = True
        self.registrations += 1
        self.announced_version = version

    async def _register(self, *, is_known: bool) -> None:
        """Send a full registration unless the name server, which knows the broker, has the newest topics.

        Raises RegistrationIgnored where the name server keeps the address of another broker.
        """
        holder = await self._other_holder()
        if holder is not None or not is_known or await self._is_outdated():
            for request in await self._registrar.announcements.full():
                await self._send(request)
        if holder is None:
            if self.conflict.cleared() or not self.is_registered:
                log.info("registered with name server %s", self.address)
            return
        is_replaced = await self._other_holder() is None
        self.conflict.seen(holder, is_replaced=is_replaced)
        if not is_replaced:
            raise RegistrationIgnored(f"name server {self.address} kept the address {holder}")

    async def _other_holder(self) -> str | None:
        """Return the address of another broker that holds this broker's route at the name server."""
        return self.conflict.other_holder(await self._ask(self._registrar.announcements.query_members()))

    async def _takes(self, changed: list[TopicConfig]) -> bool:
        """Register some topics; return False if the name server refuses, since it dropped the broker."""
        try:
            for request in self._registrar.announcements.changed(changed):
                await self._send(request)
        except RegistrationRefused as error:
            log.info("registering everything name_server=%s cause=%s", self.address, error)
            return False
        return True

    async def _is_outdated(self) -> bool:
        """Return whether the name server needs a full registration."""
        registrar = self._registrar
        if registrar.settings.force_register:
            return True
        response = await self._request(registrar.announcements.query_data_version())
        if QueryDataVersionResponseHeader.decode(response.ext_fields).changed:
            return True
        try:
            return not response.body or DataVersion.decode(response.body) != registrar.topics.data_version
        except BodyError as error:
            log.warning(
                "data version of a name server not readable, registering everything name_server=%s cause=%s",
                self.address,
                error,
            )
            return True

    async def _send(self, request: RemotingCommand) -> None:
        response = await self._request(request)
        if request.code == RequestCode.REGISTER_BROKER:
            self._registrar.answered(self.address, response)

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        timeout_seconds = self._registrar.settings.register_broker_timeout_ms / 1000
        return await self._registrar.client.request(self.address, request, timeout_seconds)

    async def _request(self, request: RemotingCommand) -> RemotingCommand:
        response = await self._ask(request)
        if response.code != ResponseCode.SUCCESS:
            advice = _CREDENTIALS_ADVICE if response.code == ResponseCode.NO_PERMISSION else ""
            raise RegistrationRefused(f"code {response.code}, {response.remark}{advice}")
        return response

    def _failed(self, error: Exception, *, is_news: bool) -> None:
        self.failures += 1
        self.is_registered = False
        if isinstance(error, RequestTimeout):
            # The connection may be dead without notice (a lost route, a replaced machine). The kernel gives
            # it up only after a quarter of an hour, so the retry opens another one.
            self._registrar.client.close_address(self.address)
        level = logging.WARNING if is_news else logging.DEBUG
        log.log(level, "not registered with name server %s, retrying: %s", self.address, error)

    async def _pause(self, seconds: float, *, interruptible: bool) -> bool:
        """Wait; return whether the whole time has passed. After a failure nothing interrupts the wait."""
        if not interruptible:
            await asyncio.sleep(seconds)
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return True
        return False


class Registrar:
    """The registration with all name servers.

    It must be built in the running loop, since it has its own connections to the name servers.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        settings: RegistrationSettings,
        topic_settings: TopicSettings,
        topics: TopicTable,
        *,
        signer: RequestSigner | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """`signer` signs every request; `tls` encrypts the connections."""
        self.settings = settings
        self.topics = topics
        self.announcements = Announcements(identity, settings, topic_settings, topics)
        self.client = RemotingClient(on_close=self._connection_lost, signer=signer, tls=tls)
        self.links = [NameServerLink(address, self) for address in settings.name_server_addresses]
        # Address of the master for slaves, from the last response of a name server.
        self.master = RegisterBrokerResponseHeader()
        self._registered = asyncio.Event()
        self._progress = asyncio.Event()
        topics.on_change(self._topics_changed)

    async def run(self) -> None:
        """Register until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for link in self.links:
                tasks.create_task(link.run(), name=f"register with {link.address}")

    def announced_master(self) -> MasterAddress | None:
        """Return the master of this broker's group, as name servers tell a replica; None if they do not."""
        if not self.master.ha_server_addr:
            return None
        return MasterAddress(self.master.ha_server_addr, self.master.master_addr or "")

    def found_master(self, master: MasterAddress) -> None:
        """Note a master that is newer than the last registration's answer."""
        self.master = RegisterBrokerResponseHeader(ha_server_addr=master.ha, master_addr=master.clients)

    @property
    def conflicts(self) -> list[str]:
        """Addresses of other brokers that hold this broker's route at some name server."""
        return sorted({link.conflict.holder for link in self.links if link.conflict.holder is not None})

    async def wait_registered(self, timeout_seconds: float) -> bool:
        """Wait until at least one name server knows this broker, or another one of its name.

        False if that does not happen in time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._registered.wait()
        except TimeoutError:
            return False
        return True

    @property
    def is_announced(self) -> bool:
        """Whether the current topics are registered with every name server that can be reached."""
        return self._has_announced(self.topics.version)

    def _has_announced(self, version: int) -> bool:
        return not any(link.is_registered and link.announced_version < version for link in self.links)

    async def announced(self, timeout_seconds: float = 1.0) -> bool:
        """Wait until the current topics are registered with every name server that can be reached.

        Returns False if the time ends first.
        """
        version = self.topics.version
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._has_announced(version):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    def heartbeat(self) -> None:
        """Send a heartbeat to the name servers if `enableSlaveActingMaster` is on.

        Must be called every `brokerHeartbeatInterval`.
        """
        if self.settings.enable_slave_acting_master:
            self._tell_all(self.announcements.heartbeat)

    async def stop(self) -> None:
        """Unregister from the name servers, without waiting for their responses.

        Must be called after `run` has ended.
        """
        self._tell_all(self.announcements.unregister)
        await self.client.stop()

    # --- for the links ---

    def progressed(self) -> None:
        """Note that a link has succeeded or failed."""
        if any(link.is_registered or link.conflict.holder is not None for link in self.links):
            self._registered.set()
        self._progress.set()

    def answered(self, address: str, response: RemotingCommand) -> None:
        """Take the master and the order topics from a name server's response to a registration."""
        self.master = RegisterBrokerResponseHeader.decode(response.ext_fields)
        if not response.body:
            return
        try:
            self.topics.mark_order_topics(KVTable.decode(response.body).table)
        except BodyError as error:
            log.warning("order topics of a name server not readable name_server=%s cause=%s", address, error)

    # --- inside ---

    def _tell_all(self, make: Callable[[], RemotingCommand]) -> None:
        """Send a one-way request to the connected name servers."""
        for link in self.links:
            connection = self.client.existing(link.address)
            if connection is None:
                continue
            try:
                connection.send_oneway(make())
            except RequestError as error:
                log.info("one-way request not sent name_server=%s cause=%s", link.address, error)

    def _topics_changed(self, change: TopicsChanged) -> None:
        for link in self.links:
            link.topics_changed(change)

    def _connection_lost(self, address: str) -> None:
        for link in self.links:
            if link.address == address:
                link.connection_lost()
