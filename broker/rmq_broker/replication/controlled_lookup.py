"""The master as the controller tells it; its port of replication as the master itself tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registration.master_address import MasterAddress
from .lookup import MasterLookup

if TYPE_CHECKING:
    from ..controller.member import GroupMember
    from ..registration.registrar import Registrar
    from ..settings.broker import BrokerSettings


class ControlledLookup(MasterLookup):
    """Finds the master of a group with a controller."""

    unknown = "the controller knows no other broker as the master, or that broker does not answer"

    def __init__(self, settings: BrokerSettings, registrar: Registrar, member: GroupMember) -> None:
        super().__init__(settings, registrar)
        self._member = member

    @property
    def known(self) -> MasterAddress | None:
        """The master as it was found last, if it is the master still."""
        found, clients = self._found, self._clients
        return found if found is not None and found.clients == clients else None

    async def find(self) -> MasterAddress | None:
        """Ask the master for its port of replication; None if there is no master now."""
        clients = self._clients
        if clients is None:
            return None
        ha = await self.ha_address(clients)
        self._found = MasterAddress(ha, clients) if ha else None
        return self.known

    def told(self, master: MasterAddress) -> None:
        """Do nothing: the controller decides who is the master."""

    @property
    def _clients(self) -> str | None:
        role = self._member.role
        return None if role is None or role.is_master else role.master_address
