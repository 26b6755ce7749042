"""Hand back: a master that starts continues where an acting replica has left off.

The master announces itself to each replica (906), which stops acting before it answers. Then it takes over
consumer offsets (43), delay offsets (45) and the timer's checkpoint (60), if they are ahead of its own. The
answer of a replica of this version to 906 has the popped messages that it has closed.
Source: Apache RocketMQ 5.3.3, BrokerPreOnlineService. Apache's master replaces its own state by that of the
replica if the replica's data version is not lower. Here the higher offset counts, each apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, RequestError, RequestTimeout
from rmq_remoting.headers.ha import ExchangeHAInfoRequestHeader

from ..delivery.timer_entry import TIMER_QUEUE_ID
from ..groups.names import TRANSACTION_GROUP
from ..offsets.saved import SavedOffsets
from ..offsets.table import NO_OFFSET, split_key
from ..pop.closed_pops import closed_by_replica
from ..replication.metadata.master import Master, MetadataError
from ..timers.checkpoint import TimerCheckpoint
from ..timers.pending import DeliveredTimers
from ..topics.names import TIMER_TOPIC

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

    from ..delivery.service import DeliveryService
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.table import ConsumerOffsetTable
    from ..pop.service import PopService
    from ..store.api import MessageStore
    from ..timers.service import TimerService
    from ..topics.table import TopicTable

log = logging.getLogger("rmq.broker.acting")

_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.5
_REQUEST_SECONDS: Final = 15.0  # a replica flushes its log before it answers
_EXPECTED: Final = (RequestError, MetadataError, BodyError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Progress:
    """The parts of a master whose progress a replica may have made."""

    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    delivery: DeliveryService
    timers: TimerService
    pops: PopService
    store: MessageStore


class HandBack:
    """Takes over the progress of replicas; belongs to the loop's thread."""

    def __init__(
        self,
        progress: Progress,
        client: RemotingClient,
        address: str,
        ha_address: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`address` is where clients reach this broker, `ha_address` where replicas do; both host:port."""
        self._progress = progress
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._sleep = sleep

    async def take(self, members: Mapping[int, str]) -> None:
        """Take over the progress of the group's replicas, among its `members` by broker id.

        A replica that cannot be reached is given up after three attempts, one that does not answer after
        15 s. Messages may be delivered twice then.
        """
        for broker_id in sorted(members):
            if broker_id != MASTER_BROKER_ID and members[broker_id] != self._address:
                await self._take_from(members[broker_id])

    async def _take_from(self, address: str) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._take_once(Master(self._client, address, _REQUEST_SECONDS))
            except _EXPECTED as error:
                log.warning(
                    "progress of a replica not taken over replica=%s attempt=%d attempts=%d cause=%s",
                    *(address, attempt, _ATTEMPTS, error),
                )
                if isinstance(error, RequestTimeout):
                    break  # the replica stands still: the master does not wait for it again
                if attempt < _ATTEMPTS:
                    await self._sleep(_PAUSE_SECONDS)
            else:
                log.info("progress of a replica taken over replica=%s", address)
                return
        log.warning("messages that a replica has delivered may be delivered again replica=%s", address)

    async def _take_once(self, replica: Master) -> None:
        """Raises RequestError, MetadataError, BodyError, OSError, ValueError."""
        header = ExchangeHAInfoRequestHeader(
            master_address=self._address,
            master_flush_offset=self._progress.store.flushed_offset,
            master_ha_address=self._ha_address,
        )
        request = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO, header.encode())
        answer = await replica.send(request)  # a replica of this version has stopped acting when it answers
        self._progress.pops.take_closed(closed_by_replica(answer.body))
        offsets = SavedOffsets.decode(await replica.ask(RequestCode.GET_ALL_CONSUMER_OFFSET))
        self._take_offsets(offsets.offset_table)
        delays = DelayOffsetSerializeWrapper.decode(await replica.ask(RequestCode.GET_ALL_DELAY_OFFSET))
        self._progress.delivery.catch_up(delays.offset_table)
        checkpoint = await replica.ask(RequestCode.GET_TIMER_CHECK_POINT)
        await self._take_timers(TimerCheckpoint.decode(checkpoint))

    def _take_offsets(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Take higher offsets of consumers, and those of half messages; POP's journal is the master's own."""
        progress = self._progress
        for key, offsets in table.items():
            topic, group = split_key(key)
            is_known = group in progress.groups and topic in progress.topics
            if not is_known and group != TRANSACTION_GROUP:
                continue
            for queue_id, theirs in offsets.items():
                ours = progress.offsets.query(group, topic, queue_id)
                offset = min(theirs, progress.store.max_offset(topic, queue_id))
                if offset > max(ours, NO_OFFSET) and not progress.offsets.has_reset(group, topic, queue_id):
                    progress.offsets.put(group, topic, queue_id, offset)

    async def _take_timers(self, checkpoint: TimerCheckpoint) -> None:
        """Take over which timed messages are delivered; those of the queue are entered again without them."""
        timers, store = self._progress.timers, self._progress.store
        own = timers.pending
        before_ms, before_offset = checkpoint.read_ms, checkpoint.queue_offset
        if before_offset < checkpoint.delivered_offset:  # it has not acted, or has just begun to
            before_ms, before_offset = checkpoint.delivered_ms, checkpoint.delivered_offset
        if before_ms <= own.read_ms:
            return
        end = store.max_offset(TIMER_TOPIC, TIMER_QUEUE_ID)
        # POP's check points that the timer of Apache's broker has handed over stay this broker's own part.
        handed_over_ms = own.checkpoint.handed_over_ms
        await timers.follow(DeliveredTimers(before_ms, min(before_offset, end), handed_over_ms))
