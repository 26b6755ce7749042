"""The master's end of the connection to one replica, in a group with a controller.

Source: Apache RocketMQ 5.3.3, AutoSwitchHAConnection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from .epoch_protocol import ReplicaHandshake, ReplicaReader, master_handshake, transfer_head
from .protocol import ReplicationProtocolError
from .sending import ReplicaConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from ..settings.broker import BrokerSettings
    from ..store.api import Epoch, EpochFile, MessageStore, ReplicaPosition
    from .in_sync_set import InSyncSet

log = logging.getLogger("rmq.broker.replication")

# The id of a connection that only compares logs.
COMPARES_ONLY: Final = -1


class EpochReplicaConnection(ReplicaConnection):
    """Sends epochs and the confirmed offset, and tells the in-sync set what the replica acknowledges."""

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        executor: Executor,
        admit: Callable[[ReplicaConnection, str], str | None],
        on_closed: Callable[[ReplicaConnection], None],
        epochs: EpochFile,
        in_sync: InSyncSet | None,
    ) -> None:
        """`in_sync`: None on a replica, which admits no connection."""
        super().__init__(store, settings, executor, admit, on_closed)
        self._epochs = epochs
        self._in_sync = in_sync
        self._messages = ReplicaReader()
        self._handshake: ReplicaHandshake | None = None
        # The end that the log had at a moment, by the loop's clock; None before the first report.
        self._marked: tuple[int, float] | None = None
        self._sent_confirmed = -1

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the replica."""
        position = self.position
        super().connection_lost(error)
        if position is not None and self._in_sync is not None:
            self._in_sync.left(position)

    def check(self) -> None:
        """Also tell an idle replica the confirmed offset, which rose after the last bytes were sent."""
        super().check()
        is_idle = self.next_offset >= self._store.transferable_end
        if is_idle and self.next_offset >= 0 and self._sent_confirmed < self._confirmed:
            self._write(self.next_offset, b"")

    # --- the language of the replica ---

    def _received(self, data: bytes) -> None:
        for message in self._messages.feed(data):
            if isinstance(message, ReplicaHandshake):
                self._greeted(message)
            else:
                self._reported(message)

    def _greeted(self, handshake: ReplicaHandshake) -> None:
        if self.next_offset >= 0:
            raise ReplicationProtocolError("a second handshake on one connection")
        self._handshake = handshake
        self._transport.write(master_handshake(self._store.transferable_end, self._epochs.epochs))

    def _reported(self, offset: int) -> None:
        handshake, store = self._handshake, self._store
        if handshake is None:
            raise ReplicationProtocolError("a log offset before the handshake")
        if self.next_offset < 0:
            begin = self._begin_at(offset)
            if begin is None:
                return
            self.next_offset = begin
            self.send_soon()
        elif offset > store.transferable_end:
            raise ReplicationProtocolError(
                f"the replica acknowledged {offset}, the log ends at {store.transferable_end}"
            )
        if handshake.broker_id == COMPARES_ONLY:
            return
        if self.position is None:
            self.position = store.replicas.join(self.name, offset, handshake.broker_id)
            log.info(
                "replica connected address=%s broker_id=%d its_log_end=%d",
                *(self.name, handshake.broker_id, offset),
            )
        else:
            store.replicas.acknowledge(self.position, offset)
        if not handshake.is_learner and self._in_sync is not None:
            self._note_progress(self.position, offset, self._in_sync)

    def _note_progress(self, position: ReplicaPosition, offset: int, in_sync: InSyncSet) -> None:
        """Tell the in-sync set how long ago the log had its end at the offset that a replica acknowledges.

        Under load a replica never has the whole log of now: messages come while others are on their way. So
        the end of the log is noted, and when the replica acknowledges that, the next one.
        """
        now, end, marked = self._loop.time(), self._store.transferable_end, self._marked
        if offset >= end:
            since = now
        elif marked is None:
            self._marked = end, now
            return
        elif offset >= marked[0]:
            since = marked[1]
        else:
            return
        self._marked = end, now
        current = self._epochs.epochs[-1].start if self._epochs.epochs else 0
        in_sync.caught_up(position, with_epoch=offset >= current, behind_ms=int((now - since) * 1000))

    @property
    def _begins_with_last_file(self) -> bool:
        return self._handshake is not None and self._handshake.from_last_file

    def _piece(self, offset: int, size: int) -> int:
        found = self._epochs.at(offset)
        if found is None:
            self.close(f"offset {offset} is of no epoch; see the file of epochs, epochFileCheckpoint")
            return 0
        end = found[1]
        return size if end is None else min(size, end - offset)

    def _head(self, offset: int, size: int) -> bytes:
        self._sent_confirmed = self._confirmed
        return transfer_head(offset, size, self._epoch_of(offset), self._sent_confirmed)

    def _epoch_of(self, offset: int) -> Epoch:
        found = self._epochs.at(offset)
        return self._epochs.epochs[0] if found is None else found[0]

    @property
    def _confirmed(self) -> int:
        return min(self._store.replicas.confirmed_offset, self._store.transferable_end)
