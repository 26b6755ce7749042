"""Act as the master while it is away: watch the group, and switch the services of a master."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.route import GetBrokerMemberGroupResponseBody, TopicRouteData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, RequestError
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader
from rmq_remoting.tasks import finished

from ..master_services import MasterServicesError
from ..topics.names import member_group_topic

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import ClockMs
    from ..master_services import MasterServices
    from ..registration.registrar import Registrar
    from ..replication.service import ReplicationService
    from ..settings.broker import BrokerSettings
    from .hand_back import HandBack
    from .smallest_broker import SmallestBroker

log = logging.getLogger("rmq.broker.acting")

_TASK: Final = "acting master"
_REQUEST_SECONDS: Final = 3.0


class ActingService:
    """Switches the services of a replica; on a master, takes over what replicas have delivered."""

    def __init__(
        self,
        settings: BrokerSettings,
        smallest: SmallestBroker,
        services: MasterServices,
        registrar: Registrar,
        replication: ReplicationService,
        hand_back: HandBack,
        now_ms: ClockMs,
    ) -> None:
        self.smallest = smallest
        self.hand_back = hand_back
        self._settings = settings
        self._services = services
        self._registrar = registrar
        self._replication = replication
        self._now_ms = now_ms
        self._problem = ""

    async def prepare_master(self) -> None:
        """Take over what acting replicas have delivered; on a master, before its services start."""
        if self._settings.enable_slave_acting_master and not self._settings.skip_pre_online:
            await self.hand_back.take(await self._members())

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Watch the group, on a replica with `enableSlaveActingMaster`."""
        if self._settings.enable_slave_acting_master and self._settings.is_replica:
            supervisor.start(_TASK, self._run)

    async def stop_tasks(self, supervisor: TaskSupervisor) -> None:
        """Watch no longer; the services of a master stay as they are."""
        await supervisor.cancel(_TASK)

    async def look(self) -> None:
        """Ask for the members of the group, and act or stop acting accordingly."""
        members = await self._members()
        self.smallest.members_are(members)
        await self.switch()

    async def switch(self) -> None:
        """Act as the master if that is this broker's part now. After an error the next call tries again.

        A switch that has begun is completed, even if the caller is cancelled.
        """
        await finished(self._switch())

    # --- inside ---

    async def _switch(self) -> None:
        acts = self.smallest.may_act and not self._master_is_heard()
        try:
            if acts and not self._services.are_running:
                log.warning("acting as the master: this is the group's smallest broker id now")
                self.smallest.acts = True
                await self._services.start()
            elif not acts and self._services.are_running:
                log.info("acting as the master ends smallest_id=%s", self.smallest.broker_id)
                await self._services.stop()
            self._problem = ""
        except (MasterServicesError, OSError) as error:
            if str(error) != self._problem:
                log.error("switch of the master's services failed, retrying cause=%s", error)
            self._problem = str(error)
        self.smallest.acts = self._services.are_running

    async def _run(self) -> None:
        period_seconds = self._settings.sync_broker_member_group_period_ms / 1000
        while True:
            self.smallest.changed.clear()
            await self.switch()
            await self.look()
            try:
                async with asyncio.timeout(period_seconds):
                    await self.smallest.changed.wait()
            except TimeoutError:
                pass

    def _master_is_heard(self) -> bool:
        """Whether this replica receives its master's log or heartbeats.

        Then it leaves everything to the master, although a name server may not know the master: after its
        own start, or in a network that is cut in two. (Apache's slave delivers as well.)
        """
        follower = self._replication.follower
        if follower is None or not follower.status.is_connected:
            return False
        silence_ms = self._now_ms() - follower.status.last_read_ms
        return silence_ms < 2 * self._settings.ha_send_heartbeat_interval_ms

    async def _members(self) -> dict[int, str]:
        """Return the living members of the group, from the first name server that knows some."""
        for link in self._registrar.links:
            members = await self._members_at(link.address)
            if members:
                return members
        return {}

    async def _members_at(self, name_server: str) -> dict[int, str]:
        try:
            response = await self._ask(name_server, self._registrar.announcements.query_members())
            if response.code == ResponseCode.SUCCESS:
                group = GetBrokerMemberGroupResponseBody.decode(response.body).broker_member_group
                return {} if group is None else group.broker_addrs
            # A name server before 5.0: the route of a topic of the group shows its members.
            name = self._settings.broker_name
            header = GetRouteInfoRequestHeader(topic=member_group_topic(name))
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
            response = await self._ask(name_server, request)
            if response.code != ResponseCode.SUCCESS:
                return {}
            brokers = TopicRouteData.decode(response.body).broker_datas
            return next((each.broker_addrs for each in brokers if each.broker_name == name), {})
        except (RequestError, BodyError) as error:
            log.debug("members of the group unknown name_server=%s cause=%s", name_server, error)
            return {}

    async def _ask(self, name_server: str, request: RemotingCommand) -> RemotingCommand:
        return await self._registrar.client.request(name_server, request, _REQUEST_SECONDS)
