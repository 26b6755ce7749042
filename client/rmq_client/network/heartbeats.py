"""Heartbeats: they tell brokers that this client is alive, and its groups and subscriptions."""

from __future__ import annotations

import asyncio
import logging

from rmq_remoting.bodies.constants import MASTER_BROKER_ID
from rmq_remoting.errors import RequestError

from ..errors import ClientError, UnreachableError
from .broker_api import BrokerApi
from .connections import BrokerConnections
from .members import Members
from .routing import RouteTable

log = logging.getLogger(__name__)


class Heartbeats:
    """Sends heartbeats to every broker in any route. Belongs to the network loop."""

    def __init__(self, members: Members, routes: RouteTable, api: BrokerApi, interval_seconds: float) -> None:
        """Send with `api`, which must not use BrokerConnections: these wait for the first heartbeat."""
        self._members = members
        self._routes = routes
        self._api = api
        self._interval_seconds = interval_seconds
        self.sent = 0

    async def send_heartbeat(self, address: str) -> None:
        """Send a heartbeat to one broker, if there is a group.

        A failure is logged; the next round retries.
        """
        if self._members.is_empty:
            return
        try:
            await self._api.heartbeat(address, self._members.heartbeat())
        except UnreachableError as error:
            log.info("heartbeat not sent broker=%s cause=%s; retried in the next round", address, error)
        except ClientError as error:
            log.warning("heartbeat refused cause=%s; retried in the next round", error)
        else:
            self.sent += 1

    async def send_all(self, connections: BrokerConnections) -> None:
        """Send heartbeats now: to all masters, and to slaves if this client has consumers."""
        addresses = {
            address
            for by_id in self._routes.brokers().values()
            for broker_id, address in by_id.items()
            if broker_id == MASTER_BROKER_ID or self._members.consumers
        }
        await asyncio.gather(*(self._send_one(connections, address) for address in sorted(addresses)))

    async def keep_sending(self, connections: BrokerConnections) -> None:
        """Send heartbeats to all brokers in intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            await self.send_all(connections)

    async def _send_one(self, connections: BrokerConnections, address: str) -> None:
        if connections.is_connected(address):
            await self.send_heartbeat(address)
            return
        try:
            await connections.connect(address)  # sends a heartbeat
        except RequestError as error:
            log.info("heartbeat not sent cause=%s; retried in the next round", error)
