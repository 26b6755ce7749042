"""Which broker is the master of this group, and where do replicas connect to?

A registration's answer tells both, but a replica registers only every 30 s. While it has no master it asks
the name servers for the members of its group, and the master for its port of replication. Source: Apache
RocketMQ 5.3.3, requests 901 GET_BROKER_MEMBER_GROUP and 906 EXCHANGE_BROKER_HA_INFO.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.route import GetBrokerMemberGroupResponseBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, HeaderDecodeError, HeaderError, RequestError
from rmq_remoting.headers.ha import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader

from ..registration.master_address import MasterAddress

if TYPE_CHECKING:
    from ..registration.registrar import Registrar
    from ..settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker.replication")

_MASTER_ID: Final = 0
_REQUEST_SECONDS: Final = 3.0


class MasterLookup:
    """Finds the master of this broker's group.

    `unknown`: why there may be none.
    """

    unknown = "no master is known: no name server has told one, and haMasterAddress is empty"

    def __init__(self, settings: BrokerSettings, registrar: Registrar) -> None:
        self._settings = settings
        self._registrar = registrar
        self._found: MasterAddress | None = None

    @property
    def known(self) -> MasterAddress | None:
        """The master as it was found last, or as a registration told later; None if neither was."""
        announced = self._registrar.announced_master() or self._found
        fixed = self._settings.ha_master_address
        if fixed:
            return MasterAddress(fixed, announced.clients if announced is not None else "")
        return announced

    def told(self, master: MasterAddress) -> None:
        """Note what a master that has just started sent to this replica (code 906)."""
        self._found = master

    async def find(self) -> MasterAddress | None:
        """Ask the name servers, and the master; None if there is no master now."""
        clients = await self._address_of_master()
        if clients is not None:
            ha = self._settings.ha_master_address or await self.ha_address(clients)
            if ha:
                found = self._found = MasterAddress(ha, clients)
                self._registrar.found_master(found)
        return self.known

    async def _address_of_master(self) -> str | None:
        """Return where clients reach the master, from the first name server that knows; None if none does."""
        for link in self._registrar.links:
            request = self._registrar.announcements.query_members()
            response = await self._ask(link.address, request)
            if response is None:
                continue
            try:
                group = GetBrokerMemberGroupResponseBody.decode(response.body).broker_member_group
            except BodyError as error:
                log.debug("members of the group not readable name_server=%s cause=%s", link.address, error)
                continue
            address = None if group is None else group.broker_addrs.get(_MASTER_ID)
            if address is not None and address != self._registrar.announcements.identity.address:
                return address
        return None

    async def ha_address(self, clients: str) -> str:
        """Return the master's port of replication; empty if it does not tell."""
        request = RemotingCommand.request(
            RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader().encode()
        )
        response = await self._ask(clients, request)
        if response is None:
            return ""
        try:
            return ExchangeHAInfoResponseHeader.decode(response.ext_fields).master_ha_address or ""
        except (HeaderError, HeaderDecodeError):
            return ""

    async def _ask(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        try:
            response = await self._registrar.client.request(address, request, _REQUEST_SECONDS)
        except RequestError as error:
            log.debug("master not found, no answer address=%s cause=%s", address, error)
            return None
        return response if response.code == ResponseCode.SUCCESS else None
