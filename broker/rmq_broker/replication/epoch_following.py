"""The replica's end in a group with a controller: epochs and bytes tell where logs differ.

Apache's replica goes by epochs alone. A master that lost the end of its log in a power cut, and is the master
of the same epoch again, has other bytes at the same offsets then. Here bytes decide wherever the master can
send them. Source: Apache RocketMQ 5.3.3, AutoSwitchHAClient.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ..store.api import Epoch, agreeing_end
from .comparison import Unrelated, common_end
from .epoch_protocol import (
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    ReplicaHandshake,
    replica_handshake,
    replica_report,
)
from .epoch_sending import COMPARES_ONLY
from .following import Follower
from .master import LogExtent, MasterConnection, MasterUnavailable, connected_as, log_extent
from .protocol import ReplicationProtocolError, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq_remoting.client import RemotingClient

    from ..registration.master_address import MasterAddress
    from ..settings.broker import BrokerSettings
    from ..store.api import EpochFile, MessageStore
    from .lookup import MasterLookup

log = logging.getLogger("rmq.broker.replication")

# A master that is deposed without hearing of it stores messages for seconds.
_LARGEST_UNSHARED_BYTES: Final = 64 << 20


class EpochMasterConnection(MasterConnection):
    """A connection to a master that has a controller."""

    def __init__(self, silence_seconds: float) -> None:
        super().__init__(silence_seconds)
        self._messages = MasterReader()

    async def greet(self, handshake: ReplicaHandshake) -> MasterHandshake:
        """Introduce this replica; return the master's epochs. Raises as `receive`."""
        self._write(replica_handshake(handshake))
        while True:
            for message in self._messages.feed(await self._read()):
                if isinstance(message, MasterHandshake):
                    return message
                raise ReplicationProtocolError("the master sent its log before its epochs")

    def report(self, offset: int) -> None:
        """Tell the master a log offset. The first one is where it begins to send."""
        self._write(replica_report(offset))

    async def receive_epochs(self) -> list[EpochTransfer]:
        """Return the next transfers. Raises MasterUnavailable, ReplicationProtocolError."""
        while True:
            messages = self._messages.feed(await self._read())
            transfers = [each for each in messages if isinstance(each, EpochTransfer)]
            if len(transfers) != len(messages):
                raise ReplicationProtocolError("a second handshake of the master")
            if transfers:
                return transfers

    async def receive(self) -> list[Transfer]:
        """Return the next transfers without their epochs. Raises as `receive_epochs`."""
        return [each.plain for each in await self.receive_epochs()]


class EpochFollower(Follower):
    """Follows the master that the controller names."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        client: RemotingClient,
        lookup: MasterLookup,
        now_ms: Callable[[], int],
        on_following: Callable[[], None],
        epochs: EpochFile,
        own_id: Callable[[], int],
        elected_epoch: Callable[[], int],
    ) -> None:
        """`own_id` returns this broker's id, `elected_epoch` the master's epoch; the rest as of Follower."""
        super().__init__(settings, store, client, lookup, now_ms, on_following)
        self._epochs = epochs
        self._own_id = own_id
        self._elected_epoch = elected_epoch
        self._handshake_flags = (settings.sync_from_last_file, settings.async_learner)

    async def _follow(self, master: MasterAddress) -> None:
        silence_seconds = self._settings.ha_housekeeping_interval_ms / 1000
        end = await self._agreed_end(master, silence_seconds)
        self._store.confirm_data(end)
        async with connected_as(EpochMasterConnection, master.ha, silence_seconds) as connection:
            self._connection = connection
            told = await connection.greet(ReplicaHandshake(*self._handshake_flags, self._own_id()))
            own = self._epochs.epochs
            if end and own and agreeing_end(own, end, told.epochs, told.log_end) != end:
                raise MasterUnavailable("the master's epochs have changed since the logs were compared")
            await self._stay(master, connection, end)

    async def _compare(self, master: MasterAddress, silence_seconds: float) -> None:
        """Make sure that the master has this log, and take over its epochs. Raises DaemonRestart."""
        store, loop = self._store, asyncio.get_running_loop()
        end = store.max_phy_offset()
        extent = await log_extent(self._client, master)
        told = MasterHandshake(0, ())

        @asynccontextmanager
        async def compared() -> AsyncIterator[MasterConnection]:
            nonlocal told
            async with connected_as(EpochMasterConnection, master.ha, silence_seconds) as connection:
                self._connection = connection
                told = await connection.greet(ReplicaHandshake(False, True, COMPARES_ONLY))
                yield connection

        async with compared():
            pass
        self.status.master_end = told.log_end
        by_epochs = agreeing_end(self._epochs.epochs, end, told.epochs, told.log_end)
        # Apache's master does not send a part of its log that has no epoch.
        first = told.epochs[0].start if told.epochs else 0
        try:
            if first < min(end, told.log_end):
                known = LogExtent(max(extent.begin, first), told.log_end)
                common = await common_end(store, known, self._executor, compared)
            elif by_epochs >= 0:
                common = by_epochs
            else:
                raise Unrelated(
                    f"this log ends at {end}, the master's epochs begin at {first}: the logs cannot be "
                    "compared. Copy the master's store, or remove this one"
                )
        except Unrelated:
            if not self._began_before(told):
                raise
            common = 0
        if common != end:
            log.error(
                "logs differ by_epochs=%d by_bytes=%d own_epochs=%s master_epochs=%s",
                *(by_epochs, common, _short(self._epochs.epochs), _short(told.epochs)),
            )
            await self._truncate(master, common, end)
        await loop.run_in_executor(self._executor, self._epochs.follow, told.epochs, end)

    def _began_before(self, told: MasterHandshake) -> bool:
        """Whether the master was elected with an empty log, and this log is of a master before it.

        Then no message of this log was acknowledged. The master's own epochs do not tell that: like those of
        Apache's, they keep the number of an earlier epoch in which nothing was written. A large log is left
        to operators: an unclean election of a broker that lost its disk looks the same.
        """
        own, end = self._epochs.epochs, self._store.max_phy_offset()
        if not own or not told.epochs or end > _LARGEST_UNSHARED_BYTES:
            return False
        return own[0].start == told.epochs[0].start == 0 and own[-1].number < self._elected_epoch()

    async def _take_log(self, master: MasterAddress, connection: MasterConnection) -> None:
        assert isinstance(connection, EpochMasterConnection)
        while self._lookup.known == master:
            await self._receive(connection)

    async def _receive(self, connection: EpochMasterConnection) -> None:
        store, status = self._store, self.status
        transfers = await connection.receive_epochs()
        status.last_read_ms = self._now_ms()
        self._count(connection.received_bytes)
        for offset, data, epoch, confirmed in transfers:
            status.master_end = max(status.master_end, offset + len(data))
            await self._note_epoch(epoch, offset)
            if data:
                store.append_data(offset, data)
                self._report(connection)
                await asyncio.sleep(0)  # the report leaves before entries are made; consumers are served
            store.confirm_data(max(confirmed, 0))

    async def _note_epoch(self, epoch: Epoch, offset: int) -> None:
        """Keep an epoch of the master before its bytes from `offset` on are appended. Raises OSError."""
        if epoch.number > self._epochs.last and epoch.start <= max(offset, self._store.max_phy_offset()):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._epochs.received, epoch)


def _short(epochs: tuple[Epoch, ...]) -> str:
    """Return the newest epochs for a line of the log."""
    shown = ", ".join(f"{each.number} from {each.start}" for each in epochs[-5:])
    return f"[{'... ' if len(epochs) > 5 else ''}{shown}]"
