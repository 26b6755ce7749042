"""How far a group has consumed: kept here, and made to last by the brokers."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import RequestError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.offsets import UpdateConsumerOffsetRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ...errors import BrokerUnreachable, ClientError, UnreachableError
from ...network.broker_api import BrokerApi
from ...tasks import uninterrupted

log = logging.getLogger("rmq.client.offsets")

AddressOf = Callable[[MessageQueue], "str | None"]
"""The address of a queue's master broker, None where it is not known."""


class OffsetStore(ABC):
    """The offsets of one group, by queue: the next message that it wants. Belongs to one loop."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self.commits = 0

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """All before `offset` is consumed; never goes back."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Go to `offset`, also back."""
        self._offsets[queue] = offset

    def get(self, queue: MessageQueue) -> int | None:
        """The offset of a queue, None where nothing of it has been consumed."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's."""
        self._offsets.pop(queue, None)

    def items(self) -> list[tuple[MessageQueue, int]]:
        """All offsets."""
        return list(self._offsets.items())

    @abstractmethod
    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """The offset that lasts, None where there is none yet. Raises ClientError."""

    @abstractmethod
    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Make the offsets of these queues (or of all) last; what fails is logged, and done the next time.

        Returns whether all went well.
        """

    async def commit_routinely(self, queues: Iterable[MessageQueue]) -> None:
        """The same every few seconds, where nobody waits for the outcome."""
        await self.commit(queues)

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return list(self._offsets)
        return [queue for queue in queues if queue in self._offsets]


class RemoteOffsetStore(OffsetStore):
    """Offsets that the brokers keep, each those of its own queues."""

    def __init__(
        self,
        group: str,
        api: BrokerApi,
        address_of: AddressOf,
        post_oneway: Callable[[str, bytes], None] | None = None,
        serialization: Serialization = Serialization.BINARY,
    ) -> None:
        """`post_oneway` writes a frame to a broker's connection, and raises RequestError where there is none.

        Without it every commit is answered before the next one is sent: brokers work in several threads, and
        may come to a one-way commit after a later one, which then goes back.
        """
        super().__init__()
        self._group = group
        self._api = api
        self._address_of = address_of
        self._post_oneway = post_oneway
        self._committing = asyncio.Lock()
        self._serialization = serialization

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """14: what the broker says."""
        address = self._address_of(queue)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {queue.broker_name} is known for {queue}")
        return await self._api.committed_offset(
            address, self._group, queue, zero_for_young_queues=zero_for_young_queues
        )

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """15, for all queues; returns when the brokers have answered."""
        if self._post_oneway is not None:
            return await self._commit(queues)
        # Who is cancelled meanwhile must not let go of the lock before the answers are there.
        return await uninterrupted(self._commit_in_turn(queues))

    async def _commit_in_turn(self, queues: Iterable[MessageQueue] | None) -> bool:
        async with self._committing:
            return await self._commit(queues)

    async def _commit(self, queues: Iterable[MessageQueue] | None) -> bool:
        by_address: dict[str, list[MessageQueue]] = defaultdict(list)
        all_known = True
        for queue in self._chosen(queues):
            address = self._address_of(queue)
            if address is None:
                all_known = False
                log.warning("the offset of %s is not committed: its broker is not known", queue)
            else:
                by_address[address].append(queue)
        done = await asyncio.gather(*(self._commit_to(address, own) for address, own in by_address.items()))
        return all_known and all(done)

    async def _commit_to(self, address: str, queues: list[MessageQueue]) -> bool:
        """One after the other: of the first commits of a group that come at the same time to Apache's broker
        (5.3.3, ConsumerOffsetManager), one can take the others with it.
        """
        done = True
        for number, queue in enumerate(queues):
            offset = self._offsets.get(queue)
            if offset is None:
                continue  # it has become somebody else's meanwhile
            try:
                await self._api.commit_offset(address, self._group, queue, offset)
            except UnreachableError as error:
                log.warning("%s; %d other offsets are not committed there", error, len(queues) - number - 1)
                return False
            except ClientError as error:
                log.warning("%s", error)
                done = False
            else:
                self.commits += 1
        return done

    async def commit_routinely(self, queues: Iterable[MessageQueue]) -> None:
        """15 as one-way requests (Apache RocketMQ 5.3.3, RemoteBrokerOffsetStore)."""
        if self._post_oneway is None:
            await self.commit(queues)
            return
        for queue in self._chosen(queues):
            address = self._address_of(queue)
            if address is None:
                log.warning("the offset of %s is not committed: its broker is not known", queue)
                continue
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=self._offsets[queue],
                broker_name=queue.broker_name,
            )
            request = RemotingCommand.request(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                header.encode(),
                oneway=True,
                serialization=self._serialization,
            )
            try:
                self._post_oneway(address, encode_frame(request))
            except RequestError as error:
                log.warning("the offset of %s is not committed for now: %s", queue, error)
            else:
                self.commits += 1


class NoOffsets(OffsetStore):
    """Brokers know themselves how far a group that pops is."""

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """There is none."""
        return None

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """There is nothing to do."""
        return True
