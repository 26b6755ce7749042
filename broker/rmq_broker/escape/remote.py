"""Send messages of an acting replica to other masters of the cluster.

Source: Apache RocketMQ 5.3.3, EscapeBridge. Apache's broker counts an escaped check point of POP as failed
although it is stored, and skips a half message after ten attempts. Here a message counts as stored once
another broker has stored it, and not before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError, RequestError

from ..delivery.inner_message import InnerMessage
from .outgoing import Outgoing

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

    from ..settings.acting import ActingSettings
    from .routes import EscapeRoutes, OtherMaster

_SEND_SECONDS: Final = 3.0
_MOST_AT_A_TIME: Final = 64
# The masters that are tried for one message, before its delivery is retried later.
_MOST_MASTERS: Final = 3
_OFF: Final = "this broker is a replica, and enableRemoteEscape is off"
# The message is stored; the other three tell how durable it is.
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class RemoteEscape:
    """Implements `Elsewhere` by sends; belongs to the loop's thread."""

    def __init__(
        self,
        settings: ActingSettings,
        sender_group: str,
        client: RemotingClient,
        routes: EscapeRoutes,
        is_replica: Callable[[], bool],
    ) -> None:
        """`sender_group`: the producer group of messages without one."""
        self.routes = routes
        self.sent: Counter[str] = Counter()  # stored messages by the name of the broker that has them
        self.failures = 0  # messages that no broker has stored, each attempt
        self._settings = settings
        self._sender_group = sender_group
        self._client = client
        self._is_replica = is_replica
        self._free = asyncio.Semaphore(_MOST_AT_A_TIME)

    @property
    def is_used(self) -> bool:
        """Whether this broker is a replica."""
        return self._is_replica()

    async def put_all(self, messages: Sequence[InnerMessage]) -> list[str]:
        """Send messages at once; return for each why no master has stored it, empty if one has.

        Messages of one queue go to one queue, in their order.
        """
        if not self._settings.enable_remote_escape:
            return [_OFF] * len(messages)
        return list(await asyncio.gather(*map(self._put, messages)))

    async def stop(self) -> None:
        """Close the connections."""
        await self._client.stop()

    async def _put(self, message: InnerMessage) -> str:
        """Send one message; return why no master has stored it, empty if one has."""
        outgoing = Outgoing(message, self._sender_group)
        async with self._free:
            masters, problem = await self.routes.masters_of(outgoing.topic)
            for number in range(min(len(masters), _MOST_MASTERS)):
                master = masters[(outgoing.queue_id + number) % len(masters)]
                problem = await self._send(outgoing, master)
                if not problem:
                    self.sent[master.broker_name] += 1
                    return ""
        self.failures += 1
        if masters:
            self.routes.forget(outgoing.topic)
        return problem

    async def _send(self, outgoing: Outgoing, master: OtherMaster) -> str:
        request = outgoing.request(master.broker_name, outgoing.queue_id % master.queues)
        try:
            response = await self._client.request(master.address, request, _SEND_SECONDS)
        except RequestError as error:
            return f"topic {outgoing.topic}, broker {master.broker_name}: {error}"
        if response.code in _STORED:
            return ""
        refusal = CommandError(response.code, response.remark or "")
        return f"topic {outgoing.topic}, broker {master.broker_name} answered {refusal}"
