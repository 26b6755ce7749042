"""The index of messages by key, as the store sees it.

Apache RocketMQ 5.3.3, IndexService, which is fed by the dispatcher only; here a message's entries are made as
it is appended, and those that could not be made then are made from the log later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..settings import QuerySettings, StoreSettings
from .catch_up import MAX_PAUSE_S, IndexCatchUp, LogRecords
from .deferred_calls import CallSoon, DeferredCalls
from .index_file import PLACE_BYTES, IndexFile, offset_of
from .index_files import IndexFiles, KeyQueryResult
from .keys import KeyHasher
from .progress_file import IndexProgressFile

log = logging.getLogger("rmq.store")

_SLICE_S: Final = 0.001
_RETRY_S: Final = 5.0
_IDLE_S: Final = 10.0
# Looked at again after a crash at most, where messages have no keys.
_MARK_EVERY_BYTES: Final = 64 << 20
# What a stop may spend on catching up.
_STOP_CATCH_UP_S: Final = 2.0
_LONG_SLICE_S: Final = 0.1


class IndexState(Enum):
    """Where a message's entries come from.

    OFF          from nowhere: messageIndexEnable is false
    CATCHING_UP  from the log: `put` does nothing, the catch-up will come past
    LIVE         from `put`

    CATCHING_UP becomes LIVE when the end of the log is reached; LIVE becomes CATCHING_UP when no file can
    take the next entries: the disk is full, or the next file is not made yet.
    """

    OFF = "off"
    CATCHING_UP = "catching up"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """For metrics and runtime information."""

    state: IndexState
    end_offset: int
    behind_bytes: int
    files: int
    entries: int
    size_bytes: int
    failure: str | None


class MessageIndex:
    """Makes entries and finds messages by them.

    It never refuses a message: an index that cannot be written is late. All belongs to the loop's thread but
    `query` and `delete_before`. `run` is to run as long as the store is open.
    """

    __slots__ = (
        "_catch_up",
        "_deferred",
        "_file",
        "_files",
        "_flush_failure",
        "_hasher",
        "_live_from",
        "_log",
        "_progress",
        "_query_settings",
        "_state",
        "_thread_lock",
        "_unique_key_hash",
        "_wanted",
        "failure",
    )

    def __init__(
        self,
        settings: StoreSettings,
        query_settings: QuerySettings,
        log_records: LogRecords,
        clock: Callable[[], float] = time.time,
        call_soon: CallSoon | None = None,
    ) -> None:
        """`call_soon`, an event loop's: entries are made after the answers that the loop is writing.

        No producer waits for them then. None: they are made within `put`.
        """
        self._query_settings = query_settings
        self._log = log_records
        self._files = IndexFiles(
            settings.index_dir, settings.max_hash_slot_num, settings.max_index_num, clock
        )
        self._progress = IndexProgressFile(settings.store_path_root_dir / "rmq_index.json")
        self._catch_up = IndexCatchUp(log_records, self._enter)
        self._deferred = DeferredCalls(call_soon)
        self._hasher = KeyHasher()
        self._unique_key_hash = self._hasher.unique_key
        self._state = IndexState.CATCHING_UP if settings.message_index_enable else IndexState.OFF
        self._file: IndexFile | None = None  # what `put` writes to, while LIVE
        self._live_from = 0
        self._wanted = asyncio.Event()
        # A stop cancels `run`, but not what it has begun in a thread.
        self._thread_lock = threading.Lock()
        self._flush_failure: OSError | None = None  # after which not all files could be removed
        # Why nothing can be written now, or None.
        self.failure: str | None = None

    # --- life ---

    def open(self, *, after_clean_stop: bool, same_boot: bool, checkpoint_index_ms: int) -> None:
        """Load the files, mend what an unclean stop left. Raises OSError where they cannot be read; blocks.

        The log is open and recovered. `same_boot`: the machine has not stopped since the files were written,
        so that all that was written is in them. `checkpoint_index_ms`: the checkpoint's time of the index.
        """
        self._files.load(
            flushed_ms=None if after_clean_stop else checkpoint_index_ms,
            drop_newer=not after_clean_stop and not same_boot,
        )
        self._progress.load()
        complete_to = self._progress.complete_to
        missing = self._progress.first_missing(self._files.files, self._log.min_offset)
        if missing is not None:
            self._files.drop_from(missing, f"{missing} is gone or lacks entries")
            complete_to = 0
        # Of the last message before a lost file not all entries may be there.
        if after_clean_stop and missing is None:
            self._resume(complete_to)
        else:
            self._take_back_and_resume(complete_to)
        if self._catch_up.position < self._progress.complete_to:
            self._save_progress_or_forget()  # what comes behind it now has not been looked at
        self._make_ready()
        log.info(
            "index: %d files, %s, complete up to %d of %d",
            len(self._files.files),
            self._state.value,
            self.end_offset,
            self._log.max_offset,
        )

    def _take_back_and_resume(self, complete_to: int) -> None:
        """Go on after an unclean stop: of the last message not all entries may be there."""
        self._files.cut(max(self._files.end_offset, complete_to))
        self._resume(complete_to)

    def _resume(self, complete_to: int) -> None:
        """Go on where the files end, or at `complete_to`, if that is later; never behind the log's end."""
        log_begin, log_end = self._log.min_offset, self._log.max_offset
        if self._files.end_offset >= log_end:
            self._files.cut(log_end)
        entered = self._files.end_offset
        position = min(max(entered, complete_to, log_begin), log_end)
        self._catch_up.start_at(position, entered)

    def _make_ready(self) -> None:
        if self._state is IndexState.OFF:
            return
        try:
            self._files.reopen_last()
        except OSError as error:
            self._failed(error)
        if not self._catch_up.behind_bytes:
            self._go_live()

    async def run(self) -> None:
        """Catch up, make files ahead, flush full ones; until cancelled."""
        while True:
            await self._wait(await self._run_once())

    async def _run_once(self) -> float:
        """One round; returns how long to wait before the next, in seconds."""
        if self._state is IndexState.OFF:
            return _IDLE_S
        try:
            await self._keep_house()
            if self._state is IndexState.CATCHING_UP:
                await self._catch_up.warm()
                self._run_slice(_SLICE_S)
            elif self.failure is not None:
                self._works_again()
        except OSError as error:
            self._failed(error)
            return _RETRY_S
        return self._catch_up.pause_s if self._state is IndexState.CATCHING_UP else _IDLE_S

    async def _wait(self, seconds: float) -> None:
        if seconds <= MAX_PAUSE_S:
            began = time.thread_time()
            await asyncio.sleep(seconds)
            self._catch_up.paused(time.thread_time() - began)
            return
        # Not `wait_for`, which in Python 3.11 swallows a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        self._wanted.clear()

    async def _keep_house(self) -> None:
        if self._flush_failure is not None:
            self._start_again_after(self._flush_failure)
        if self._files.needs_file:
            await self._in_thread(self._files.prepare)
        if self._files.needs_flush:
            try:
                await self._in_thread(self._files.flush_full)
            except OSError as error:
                self._start_again_after(error)
                raise
            self._files.seal_full()
            await self._save_progress()
        elif self.end_offset - self._progress.complete_to >= _MARK_EVERY_BYTES:
            await self._save_progress()

    async def _save_progress(self) -> None:
        self._note_progress()
        await self._in_thread(self._progress.save)

    def _note_progress(self) -> None:
        self._deferred.run()  # the mark counts them
        self._files.write_header()
        self._progress.set(self._files.files, self.end_offset)

    def _save_progress_or_forget(self) -> None:
        try:
            self._note_progress()
            self._progress.save()
        except OSError as error:
            log.warning("how far the index goes cannot be written down: %s", error)
            self._progress.forget()

    async def _in_thread(self, function: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._locked, function)

    def _locked(self, function: Callable[[], None]) -> None:
        with self._thread_lock:
            function()

    def _run_slice(self, budget_s: float) -> bool:
        """Catch up for so long; True where the log's end is reached. Raises OSError (disk full)."""
        reached_end = self._catch_up.run_slice(budget_s)
        if self.failure is not None and self._files.current is not None:
            self._works_again()
        if reached_end:
            self._go_live()
        return reached_end

    def flush(self) -> None:
        """At a clean stop, when nothing is put any more and `run` has ended: bring everything onto the disk.

        Failures are logged: what is missing is built again from the log. Blocks, also to catch up a little.
        """
        with self._thread_lock:
            try:
                if self._state is IndexState.CATCHING_UP:
                    self.catch_up(_STOP_CATCH_UP_S)
            except OSError as error:
                self._failed(error)
            try:
                if self._flush_failure is not None:
                    raise self._flush_failure
                self._files.flush_all()
            except OSError as error:
                self._start_again_after(error)
            self._save_progress_or_forget()

    def catch_up(self, budget_s: float = math.inf) -> bool:
        """Catch up in one go, where there is no loop to be kept free; True once the log's end is reached.

        Raises OSError where the disk is full.
        """
        until = time.monotonic() + budget_s
        while self._state is IndexState.CATCHING_UP and time.monotonic() < until:
            if self._files.needs_file:
                self._files.prepare()
            self._run_slice(min(budget_s, _LONG_SLICE_S))
        return self._state is IndexState.LIVE

    def close(self) -> None:
        """Let the files go."""
        with self._thread_lock:
            self._state = IndexState.OFF
            self._file = None
            self._files.close()

    def delete_all(self) -> None:
        """Remove all files, and begin again at the log's first message. Raises OSError."""
        self._files.delete_all()
        self._progress.forget()
        self._resume(0)
        if self._state is not IndexState.OFF:
            self._state = IndexState.CATCHING_UP
            self._file = None
            self._wanted.set()

    # --- states ---

    def _go_live(self) -> None:
        self._state = IndexState.LIVE
        self._live_from = self._catch_up.position
        self._file = self._files.current

    def _fall_behind(self, physical_offset: int) -> None:
        """The message at `physical_offset` and what follows will be entered from the log."""
        self._state = IndexState.CATCHING_UP
        self._file = None
        self._catch_up.start_at(physical_offset)
        self._wanted.set()

    def _failed(self, error: OSError) -> None:
        if self.failure is None:
            log.error("the index cannot be written; messages are stored, and entered later: %s", error)
        self.failure = str(error)

    def _works_again(self) -> None:
        log.info("the index can be written again, from %d on", self.end_offset)
        self.failure = None

    def _start_again_after(self, error: OSError) -> None:
        """A flush failed: nobody knows what is on the disk, and a second try would not tell.

        Raises OSError where the files cannot be removed: that is tried again before anything else.
        """
        self._flush_failure = error
        self._files.drop_unflushed(f"flushing failed: {error}")
        self._progress.forget()
        self._flush_failure = None
        self._take_back_and_resume(0)
        if self._state is IndexState.LIVE:
            self._state = IndexState.CATCHING_UP
            self._file = None

    # --- putting ---

    def put_deferred(self) -> None:
        """Make the entries that were put and are not made yet."""
        self._deferred.run()

    def put(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Enter a message that was appended: under its unique key, and under its keys, split by spaces.

        Both are as in the properties; empty where there is none. Messages come in the order of the log.
        """
        self._deferred.add(self._put_now, topic, unique_key, keys, physical_offset, store_timestamp_ms)

    def _put_now(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        file = self._file
        if file is not None and not keys and unique_key and physical_offset >= self._live_from:
            key_hash = self._unique_key_hash(topic, unique_key)
            if file.put(key_hash, physical_offset, store_timestamp_ms):
                return
        self._put_all(topic, unique_key, keys, physical_offset, store_timestamp_ms)

    def put_batch(self, topic: str, unique_key: bytes, places: bytes, store_timestamp_ms: int) -> None:
        """Enter the messages of one client batch, which have one unique key and no other.

        `places`: their consume queue entries, 20 bytes each, which begin with the physical offset.
        """
        self._deferred.add(self._put_batch_now, topic, unique_key, places, store_timestamp_ms)

    def _put_batch_now(self, topic: str, unique_key: bytes, places: bytes, store_timestamp_ms: int) -> None:
        if self._state is not IndexState.LIVE or offset_of(places, 0) < self._live_from:
            return
        key_hash = self._unique_key_hash(topic, unique_key)
        file = self._file
        added = 0 if file is None else file.put_block(key_hash, places, store_timestamp_ms)
        for position in range(added * PLACE_BYTES, len(places), PLACE_BYTES):
            if self._state is IndexState.LIVE:
                self._put_hashes([key_hash], offset_of(places, position), store_timestamp_ms)

    def _put_all(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        if self._state is not IndexState.LIVE or physical_offset < self._live_from:
            return
        self._put_hashes(self._hasher.all_keys(topic, unique_key, keys), physical_offset, store_timestamp_ms)

    def _put_hashes(self, hashes: Sequence[int], physical_offset: int, store_timestamp_ms: int) -> None:
        """As `_enter`, but what fails is left to the catch-up."""
        try:
            entered = self._files.put(hashes, physical_offset, store_timestamp_ms)
        except OSError as error:
            self._failed(error)
            entered = False
        if not entered:
            self._fall_behind(physical_offset)
            return
        if self._files.grew:
            self._files.grew = False
            self._file = self._files.current
            if self._files.needs_file:
                self._wanted.set()

    def _enter(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> bool:
        """Enter a message; False where no file can take it yet. Raises OSError where the disk is full."""
        return self._files.put(
            self._hasher.all_keys(topic, unique_key, keys), physical_offset, store_timestamp_ms
        )

    # --- reading ---

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> KeyQueryResult:
        """Messages by key or unique key, newest first, `maxMsgsNumBatch` at most; from any thread.

        Keys with the same hash are found too: whoever reads the messages compares their keys.
        """
        limit = min(max_count, self._query_settings.max_msgs_num_batch)
        return self._files.look_up(topic, key, limit, begin_ms, end_ms)

    def delete_before(self, log_begin: int) -> int:
        """Remove files whose messages are gone from the log; how many. From any thread. Raises OSError."""
        return self._files.delete_before(log_begin)

    @property
    def end_offset(self) -> int:
        """Up to here every message of the log is in the index."""
        return self._log.max_offset if self._state is IndexState.LIVE else self._catch_up.position

    @property
    def flushed_timestamp_ms(self) -> int:
        """What the checkpoint is to hold as the index's time."""
        return self._files.flushed_timestamp_ms

    def statistics(self) -> IndexStatistics:
        """The present state, for metrics and runtime information."""
        return IndexStatistics(
            self._state,
            self.end_offset,
            max(0, self._log.max_offset - self.end_offset),
            len(self._files.files),
            self._files.entry_count,
            self._files.size_bytes,
            self.failure,
        )
