"""Detection of a second broker with this broker's name.

A name server keeps one address per broker name and id, that of the broker which registered last (Apache
RocketMQ 5.3.3, RouteInfoManager.registerBroker). Two brokers with the same name and different addresses
therefore replace each other in the route with every registration, each 30 seconds, and clients send to one of
them at a time. If the address it has belongs to a broker with a newer state version, the name server ignores
the registration instead. It answers both cases with success, so a broker has to ask which address is kept.
"""

from __future__ import annotations

import logging

from rmq_remoting.bodies.route import GetBrokerMemberGroupResponseBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError

from .announcements import BrokerIdentity

log = logging.getLogger("rmq.broker.registration")


class RouteConflict:
    """Whether another broker holds this broker's route at one name server, as last seen.

    `holder` is the other broker's address; None: there is no conflict.
    """

    def __init__(self, name_server: str, identity: BrokerIdentity) -> None:
        self.holder: str | None = None
        self._name_server = name_server
        self._identity = identity

    def other_holder(self, response: RemotingCommand) -> str | None:
        """Return the address in the answer to 901 that is kept for this broker's name and id, if not its own.

        None also for name servers before 5.0, which do not know 901.
        """
        if response.code != ResponseCode.SUCCESS:
            return None
        try:
            members = GetBrokerMemberGroupResponseBody.decode(response.body).broker_member_group
        except BodyError as error:
            log.warning("broker members cannot be read name_server=%s cause=%s", self._name_server, error)
            return None
        address = None if members is None else members.broker_addrs.get(self._identity.broker_id)
        return None if address == self._identity.address else address

    def seen(self, holder: str, *, is_replaced: bool) -> None:
        """Note that another broker held the route; log an error if that is news.

        `is_replaced`: this broker's registration took the route over, otherwise it was ignored.
        """
        if self._identity.is_elected and is_replaced:
            log.info(
                "route taken over name_server=%s broker=%s from=%s",
                self._name_server,
                self._identity.name,
                holder,
            )
            return
        if holder == self.holder:
            return
        self.holder = holder
        log.error(
            "route conflict name_server=%s broker=%s holder=%s address=%s: another broker with this name and "
            "id is registered, and the name server %s. Clients reach only one of the two at a time. Set "
            "another %s, or stop the broker at %s; if none runs there, this clears within a minute",
            self._name_server,
            self._identity.name,
            holder,
            self._identity.address,
            "replaced its address by this broker's" if is_replaced else "ignored this broker's registration",
            "brokerId" if self._identity.broker_id else "brokerName",
            holder,
        )

    def cleared(self) -> bool:
        """Note that the route is free or this broker's own; return whether that ends a conflict."""
        was_there = self.holder is not None
        self.holder = None
        return was_there
