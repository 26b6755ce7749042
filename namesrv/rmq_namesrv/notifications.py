"""Tells brokers that another one of their name has the smallest id now."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

from .smallest_id import MinBrokerChange

log = logging.getLogger("rmq.namesrv.notifications")

_MAX_UNDER_WAY: Final = 1000


class MinBrokerNotifier:
    """Sends NOTIFY_MIN_BROKER_ID_CHANGE one-way: a broker that misses it finds out by its own heartbeat."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._under_way: set[asyncio.Task[None]] = set()
        self.sent = 0
        self.failed = 0

    def notify(self, change: MinBrokerChange) -> None:
        """Begin to send word to every receiver."""
        log.info(
            "smallest broker id of %s is %d now: telling %s",
            change.broker_name,
            change.smallest_id,
            ", ".join(change.receivers),
        )
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.smallest_id,
            min_broker_addr=change.address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        for address in change.receivers:
            if len(self._under_way) >= _MAX_UNDER_WAY:
                self.failed += 1
                log.warning("not telling %s: %d notifications are under way already", address, _MAX_UNDER_WAY)
                continue
            task = asyncio.get_running_loop().create_task(self._send(address, header))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def stop(self) -> None:
        """Give up what has not been sent."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        request = RemotingCommand.request(
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.encode(), oneway=True
        )
        try:
            await self._client.oneway(address, request)
            self.sent += 1
        except RequestError as error:
            self.failed += 1
            log.warning("%s could not be told of its new smallest broker id: %s", address, error)
