"""Acknowledgements: those posted while a request is in flight share the next one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

from rmq_remoting.codes import ResponseCode

from ...errors import BrokerError, ClientError, Rejected
from .pop_client import PopClient
from .pop_receipts import PopHandle

log = logging.getLogger(__name__)

_MAX_BATCH: Final = 512
# A batch names messages by bits, counted from the first message of their pop. Messages beyond this distance
# are acknowledged one by one.
_MAX_DISTANCE: Final = 8_192

_Destination = tuple[str, str]
"""Address of a broker, and a topic."""


@dataclass(slots=True, eq=False)
class _Ack:
    held: PopHandle
    done: asyncio.Future[None]

    def fail(self, error: ClientError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class AckSender:
    """Sends acknowledgements, in batches if there are many. Belongs to one loop."""

    def __init__(self, client: PopClient) -> None:
        self._client = client
        self._waiting: dict[_Destination, deque[_Ack]] = {}
        self._senders: set[asyncio.Task[None]] = set()
        self._without_batches: set[str] = set()

    async def ack(self, address: str, topic: str, held: PopHandle) -> None:
        """Acknowledge one message; `topic` is the popped one. Raises as PopClient.ack.

        The acknowledgement is sent even if its caller is cancelled.
        """
        await self.post(address, topic, held)

    def post(self, address: str, topic: str, held: PopHandle) -> asyncio.Future[None]:
        """Acknowledge one message without waiting. The future has the outcome."""
        ack = _Ack(held, asyncio.get_running_loop().create_future())
        destination = (address, topic)
        waiting = self._waiting.get(destination)
        if waiting is None:
            waiting = self._waiting[destination] = deque()
            task = asyncio.create_task(self._send(destination, waiting), name=f"rmq acknowledge {topic}")
            self._senders.add(task)
            task.add_done_callback(self._ended)
        waiting.append(ack)
        return ack.done

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until no acknowledgement is in flight."""
        if self._senders:
            await asyncio.wait(list(self._senders), timeout=timeout_seconds)

    async def _send(self, destination: _Destination, waiting: deque[_Ack]) -> None:
        batch: list[_Ack] = []
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), _MAX_BATCH))]
                await self._send_batch(destination, batch)
        finally:
            del self._waiting[destination]
            for ack in [*batch, *waiting]:
                ack.done.cancel()  # only futures without an outcome, because this task was cancelled

    async def _send_batch(self, destination: _Destination, batch: list[_Ack]) -> None:
        address, topic = destination
        near = [ack for ack in batch if 0 <= ack.held.offset - ack.held.receipt.start_offset < _MAX_DISTANCE]
        if len(near) < 2 or address in self._without_batches:  # one message needs no batch
            await self._one_by_one(address, batch)
            return
        single = [ack for ack in batch if ack not in near]
        try:
            is_whole = await self._client.ack_batch(address, topic, [ack.held for ack in near])
        except Rejected as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._without_batches.add(address)
            is_whole = False
        except BrokerError:
            is_whole = False
        except ClientError as error:
            for ack in near:
                ack.fail(error)
            near, is_whole = [], True
        if is_whole:
            for ack in near:
                ack.succeed()
            near = []
        # The answer to a batch does not say which messages it could not acknowledge. Acknowledging is
        # idempotent.
        await self._one_by_one(address, [*single, *near])

    async def _one_by_one(self, address: str, acks: list[_Ack]) -> None:
        await asyncio.gather(*(self._send_one(address, ack) for ack in acks))

    async def _send_one(self, address: str, ack: _Ack) -> None:
        try:
            await self._client.ack(address, ack.held)
        except ClientError as error:
            ack.fail(error)
        else:
            ack.succeed()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._senders.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed name=%s", task.get_name(), exc_info=error)


def log_failure(acked: asyncio.Future[None]) -> None:
    """Log the failure of an acknowledgement without a waiting caller."""
    if not acked.cancelled() and (error := acked.exception()) is not None:
        log.warning("message not acknowledged cause=%s; it may be redelivered", error)
