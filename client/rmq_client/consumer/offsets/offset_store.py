"""Consumed offsets of a group: cached here, persisted by the brokers."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import RequestError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.offsets import UpdateConsumerOffsetRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ...errors import BrokerUnreachable, ClientError, UnreachableError
from ...network.broker_api import BrokerApi
from ...tasks import uninterrupted

log = logging.getLogger(__name__)

AddressOf = Callable[[MessageQueue], "str | None"]
"""Returns the address of a queue's master broker, None if it is unknown."""

OnBroker = Callable[[MessageQueue], MessageQueue]
"""Returns a queue with the name of the broker that is asked about it: a logical queue has another one."""


class CommitListener(Protocol):
    """Gets each commit to a broker: its offsets, and how long it took in seconds."""

    def __call__(
        self,
        offsets: Mapping[MessageQueue, int],
        elapsed_seconds: float,
        error: BaseException | None = None,
        *,
        broker_address: str = "",
        automatic: bool = False,
    ) -> None:
        """Note a commit, or its error."""


class OffsetStore(ABC):
    """The consumed offsets of one group, by queue: the next message to consume. Belongs to one loop."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self.commits = 0

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Note that all messages before `offset` are consumed. The offset never goes back."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, also to an earlier one."""
        self._offsets[queue] = offset

    def get(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, None if no message of it has been consumed."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset of a queue that belongs to another member now."""
        self._offsets.pop(queue, None)

    def items(self) -> list[tuple[MessageQueue, int]]:
        """Return all offsets."""
        return list(self._offsets.items())

    @abstractmethod
    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """Return the persisted offset, None if there is none. Raises ClientError."""

    @abstractmethod
    async def commit(
        self, queues: Iterable[MessageQueue] | None = None, *, failures: list[ClientError] | None = None
    ) -> bool:
        """Persist the offsets of these queues, or of all. The next commit retries a failed one.

        A failure is logged or, for a caller that raises it, added to `failures`. Returns whether all were
        persisted.
        """

    async def commit_routinely(self, queues: Iterable[MessageQueue]) -> None:
        """Commit in the background, without waiting for the outcome."""
        await self.commit(queues)

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return list(self._offsets)
        return [queue for queue in queues if queue in self._offsets]


class RemoteOffsetStore(OffsetStore):
    """Offsets that brokers persist, each broker those of its own queues."""

    def __init__(
        self,
        group: str,
        api: BrokerApi,
        address_of: AddressOf,
        post_oneway: Callable[[str, bytes], None] | None = None,
        serialization: Serialization = Serialization.BINARY,
        committed: CommitListener | None = None,
        on_broker: OnBroker = lambda queue: queue,
    ) -> None:
        """`post_oneway` writes a frame to a broker's connection, and raises RequestError without a
        connection.

        Without `post_oneway`, each commit is answered before the next one is sent. Brokers work in several
        threads: they may process a one-way commit after a later one, and the offset would go back.
        `committed` gets all commits.
        """
        super().__init__()
        self._group = group
        self._api = api
        self._address_of = address_of
        self._post_oneway = post_oneway
        self._committing = asyncio.Lock()
        self._serialization = serialization
        self._committed = committed
        self._on_broker = on_broker

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """14: return the committed offset on the broker."""
        address = self._address_of(queue)
        if address is None:
            raise _without_address(queue)
        return await self._api.committed_offset(
            address, self._group, self._on_broker(queue), zero_for_young_queues=zero_for_young_queues
        )

    async def commit(
        self, queues: Iterable[MessageQueue] | None = None, *, failures: list[ClientError] | None = None
    ) -> bool:
        """15: commit all queues, and wait for the answers of the brokers."""
        if self._post_oneway is not None:
            return await self._commit(queues, failures)
        # A cancelled caller must not release the lock before the answers are there.
        return await uninterrupted(self._commit_in_turn(queues, failures))

    async def _commit_in_turn(
        self, queues: Iterable[MessageQueue] | None, failures: list[ClientError] | None
    ) -> bool:
        async with self._committing:
            return await self._commit(queues, failures)

    async def _commit(
        self, queues: Iterable[MessageQueue] | None, failures: list[ClientError] | None
    ) -> bool:
        by_address: dict[str, list[MessageQueue]] = defaultdict(list)
        all_known = True
        for queue in self._chosen(queues):
            address = self._address_of(queue)
            if address is None:
                all_known = False
                if failures is None:
                    _log_unknown_broker(queue)
                else:
                    failures.append(_without_address(queue))
            else:
                by_address[address].append(queue)
        done = await asyncio.gather(
            *(self._commit_to(address, own, failures) for address, own in by_address.items())
        )
        return all_known and all(done)

    async def _commit_to(
        self, address: str, queues: list[MessageQueue], failures: list[ClientError] | None
    ) -> bool:
        """Commit one queue after the other.

        Of the first commits of a group that reach Apache's broker at the same time (5.3.3,
        ConsumerOffsetManager), one can delete the others.
        """
        done = True
        for number, queue in enumerate(queues):
            offset = self._offsets.get(queue)
            if offset is None:
                continue  # given up in the meantime
            began = time.perf_counter()
            try:
                await self._api.commit_offset(address, self._group, self._on_broker(queue), offset)
            except UnreachableError as error:
                self._tell(address, queue, offset, began, error)
                if failures is None:
                    log.warning(
                        "offsets not committed cause=%s others=%d; retried at the next commit",
                        error,
                        len(queues) - number - 1,
                    )
                else:
                    failures.append(error)
                return False
            except ClientError as error:
                self._tell(address, queue, offset, began, error)
                if failures is None:
                    log.warning("offset not committed queue=%s cause=%s; retried", queue, error)
                else:
                    failures.append(error)
                done = False
            else:
                self.commits += 1
                self._tell(address, queue, offset, began)
        return done

    def _tell(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        began: float,
        error: BaseException | None = None,
    ) -> None:
        if self._committed is not None:
            elapsed = time.perf_counter() - began
            self._committed({queue: offset}, elapsed, error, broker_address=address, automatic=True)

    async def commit_routinely(self, queues: Iterable[MessageQueue]) -> None:
        """15: commit by one-way requests (Apache RocketMQ 5.3.3, RemoteBrokerOffsetStore)."""
        if self._post_oneway is None:
            await self.commit(queues)
            return
        for queue in self._chosen(queues):
            address = self._address_of(queue)
            if address is None:
                _log_unknown_broker(queue)
                continue
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=self._offsets[queue],
                broker_name=self._on_broker(queue).broker_name,
            )
            request = RemotingCommand.request(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                header.encode(),
                oneway=True,
                serialization=self._serialization,
            )
            began = time.perf_counter()
            try:
                self._post_oneway(address, encode_frame(request))
            except RequestError as error:
                self._tell(address, queue, self._offsets[queue], began, error)
                log.warning(
                    "offset not committed queue=%s cause=%s; retried at the next commit", queue, error
                )
            else:
                self.commits += 1
                self._tell(address, queue, self._offsets[queue], began)


class NoOffsets(OffsetStore):
    """The store of a group that pops: the brokers themselves know its offsets."""

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """Return None."""
        return None

    async def commit(
        self, queues: Iterable[MessageQueue] | None = None, *, failures: list[ClientError] | None = None
    ) -> bool:
        """Do nothing."""
        return True


def _without_address(queue: MessageQueue) -> BrokerUnreachable:
    return BrokerUnreachable(f"no address of broker {queue.broker_name} is known for {queue}")


def _log_unknown_broker(queue: MessageQueue) -> None:
    log.warning("offset not committed queue=%s cause=broker unknown; retried at the next commit", queue)
