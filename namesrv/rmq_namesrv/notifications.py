"""Notifications to brokers that the smallest broker id of their name has changed."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rmq_remoting.tasks import cancel_all

from .smallest_id import MinBrokerChange

log = logging.getLogger("rmq.namesrv.notifications")

_MAX_IN_FLIGHT: Final = 1000


class MinBrokerNotifier:
    """Sends NOTIFY_MIN_BROKER_ID_CHANGE one-way; a broker that misses it notices at its next heartbeat."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._in_flight: set[asyncio.Task[None]] = set()
        self.sent = 0
        self.failed = 0

    def notify(self, change: MinBrokerChange) -> None:
        """Start sending the notification to every receiver."""
        log.info(
            "smallest broker id changed broker=%s smallest_id=%d receivers=%s",
            change.broker_name,
            change.smallest_id,
            ",".join(change.receivers),
        )
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.smallest_id,
            min_broker_addr=change.address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        for address in change.receivers:
            if len(self._in_flight) >= _MAX_IN_FLIGHT:
                self.failed += 1
                log.warning(
                    "notification dropped, too many in flight receiver=%s limit=%d", address, _MAX_IN_FLIGHT
                )
                continue
            task = asyncio.get_running_loop().create_task(self._send(address, header))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def stop(self) -> None:
        """Cancel the notifications that have not been sent."""
        await cancel_all(self._in_flight)

    async def _send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        request = RemotingCommand.request(
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.encode(), oneway=True
        )
        try:
            await self._client.oneway(address, request)
            self.sent += 1
        except RequestError as error:
            self.failed += 1
            log.warning("notification not sent receiver=%s cause=%s", address, error)
