"""The index of messages by key, as the rest of the store sees it.

Apache's index is fed by the dispatcher only (RocketMQ 5.3.3, IndexService). Here a message's entries are made
as it is appended, and entries that could not be made then are made from the log later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rmq_remoting.bounded_cache import BoundedCache

from ..settings import QuerySettings, StoreSettings
from .catch_up import MAX_PAUSE_S, IndexCatchUp, LogRecords
from .deferred_calls import CallSoon
from .index_files import IndexFiles, KeyQueryResult
from .keys import KeyHasher
from .live_entries import LiveEntries
from .progress_file import IndexProgressFile
from .state import IndexState, IndexStatistics

log = logging.getLogger("rmq.store")

# How long a graceful stop may catch up.
_STOP_CATCH_UP_S: Final = 2.0
_LONG_SLICE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class IndexPace:
    """How often the index works in the background.

    retry_seconds     pause after a failure
    idle_seconds      pause while there is nothing to do
    save_every_bytes  bound of how much of the log is examined again after a crash if messages have no keys
    """

    retry_seconds: float = 5.0
    idle_seconds: float = 10.0
    save_every_bytes: int = 64 << 20


class MessageIndex:
    """Makes entries, and finds messages by them.

    The index never keeps a message from being stored: if it cannot be written, it lags. All belongs to the
    event loop's thread but `query` and `delete_before`. `run` is to run as long as the store is open.
    """

    __slots__ = (
        "_catch_up",
        "_files",
        "_flush_failure",
        "_hasher",
        "_live",
        "_log",
        "_progress",
        "_query_settings",
        "_state",
        "_thread_lock",
        "_wanted",
        "caches",
        "failure",
        "pace",
        "put",
        "put_batch",
        "put_messages",
    )

    def __init__(
        self,
        settings: StoreSettings,
        query_settings: QuerySettings,
        log_records: LogRecords,
        clock: Callable[[], float] = time.time,
        call_soon: CallSoon | None = None,
        *,
        may_wait: bool = True,
    ) -> None:
        """`call_soon`, an event loop's: entries are made after the answers that the loop is writing.

        No producer waits for them then. None: they are made within `put`. `may_wait`: `put` may wait for the
        disk. Otherwise the index lags while the disk is slow.
        """
        self.pace = IndexPace()
        self._query_settings = query_settings
        self._log = log_records
        self._files = IndexFiles(
            settings.index_dir,
            settings.max_hash_slot_num,
            settings.max_index_num,
            clock,
            may_wait=may_wait,
        )
        self._progress = IndexProgressFile(settings.store_path_root_dir / "rmq_index.json")
        self._wanted = asyncio.Event()
        self._hasher = KeyHasher()
        self.caches: tuple[BoundedCache[Any, Any], ...] = self._hasher.caches
        self._live = LiveEntries(
            self._files,
            self._hasher,
            call_soon,
            on_stalled=self._fall_behind,
            on_file_used_up=self._wanted.set,
        )
        self._catch_up = IndexCatchUp(log_records, self._live.enter, enter_plain=self._live.enter_plain)
        self.put = self._live.put
        self.put_batch = self._live.put_batch
        self.put_messages = self._live.put_messages
        self._state = IndexState.CATCHING_UP if settings.message_index_enable else IndexState.OFF
        # A stop cancels `run`, but not the work that `run` has begun in a thread.
        self._thread_lock = threading.Lock()
        self._flush_failure: OSError | None = None  # a failure whose files could not all be removed yet
        # Why the index cannot be written now; None if it can.
        self.failure: str | None = None

    # --- life ---

    def open(self, *, after_clean_stop: bool, same_boot: bool, checkpoint_index_ms: int) -> None:
        """Load the files, repaired after an unclean stop. Raises OSError if they cannot be read; blocks.

        The log has been opened and recovered. `same_boot`: the machine has not stopped since the files were
        written, so that they hold everything that was written. `checkpoint_index_ms`: the checkpoint's time
        of the index.
        """
        self._files.load(
            flushed_ms=None if after_clean_stop else checkpoint_index_ms,
            drop_newer=not after_clean_stop and not same_boot,
        )
        self._progress.load()
        complete_to = self._progress.complete_to
        missing = self._progress.first_missing(self._files.files, self._log.min_offset)
        if missing is not None:
            self._files.drop_from(missing, f"{missing} is missing or lacks entries")
            complete_to = 0
        if not after_clean_stop or missing is not None:
            self._files.flush_names()  # before the progress file says that the files are gone
        # The last message before a lost file may lack entries.
        if after_clean_stop and missing is None:
            self._resume(complete_to)
        else:
            self._take_back_and_resume(complete_to)
        if self._catch_up.position < self._progress.complete_to:
            self._save_progress_or_forget()  # the records behind the position have not been examined
        self._make_ready()
        log.info(
            "index opened files=%d state=%r complete_to=%d log_end=%d",
            len(self._files.files),
            self._state.value,
            self.end_offset,
            self._log.max_offset,
        )

    def _take_back_and_resume(self, complete_to: int) -> None:
        """Continue after an unclean stop, from the last message on, which may lack entries."""
        self._files.cut(max(self._files.end_offset, complete_to))
        self._resume(complete_to)

    def _resume(self, complete_to: int) -> None:
        """Continue where the files end or, if later, at `complete_to`, but not behind the log's end."""
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
        """Catch up, create files in advance, flush full files; until cancelled."""
        while True:
            await self._wait(await self.run_once())

    async def run_once(self) -> float:
        """Run one round; return how long to wait before the next, in seconds."""
        if self._state is IndexState.OFF:
            return self.pace.idle_seconds
        try:
            await self._maintain_files()
            if self._state is IndexState.CATCHING_UP:
                await self._warm()
                self._run_slice(self._catch_up.slice_s)
            elif self.failure is not None:
                self._recovered()
        except OSError as error:
            self._failed(error)
            return self.pace.retry_seconds
        if self._state is IndexState.CATCHING_UP:
            return self._catch_up.pause_s
        return 0.0 if self.needs_file else self.pace.idle_seconds

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

    async def _maintain_files(self) -> None:
        if self._flush_failure is not None:
            await self._rebuild_in_thread(self._flush_failure)
        while self.needs_file:
            await self._in_thread(self._files.prepare)
        if self._files.needs_flush:
            try:
                await self._in_thread(self._files.flush_full)
            except OSError as error:
                await self._rebuild_in_thread(error)
                raise
            self._files.seal_full()
            await self._save_progress()
        elif self.end_offset - self._progress.complete_to >= self.pace.save_every_bytes:
            await self._save_progress()

    async def _warm(self) -> None:
        """Read the log of the next slices into memory."""
        cold = self._catch_up.next_to_warm()
        if cold is not None:
            offset, size = cold
            await asyncio.get_running_loop().run_in_executor(None, self._log.warm, offset, size)
            self._catch_up.warmed_to = offset + size

    async def _save_progress(self) -> None:
        if self._files.has_unnamed:
            return  # the next round names the file first
        self._note_progress()
        await self._in_thread(self._progress.save)

    def _note_progress(self) -> None:
        self._live.run_deferred()  # they are part of the progress
        self._files.write_header()
        self._progress.set(self._files.files, self.end_offset)

    def _save_progress_or_forget(self) -> None:
        try:
            self._note_progress()
            self._progress.save()
        except OSError as error:
            log.warning("index progress not written cause=%s; a restart would examine more of the log", error)
            self._progress.forget()

    async def _in_thread(self, function: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._locked, function)

    def _locked(self, function: Callable[[], None]) -> None:
        with self._thread_lock:
            function()

    def _run_slice(self, budget_s: float) -> bool:
        """Catch up for `budget_s` seconds; True if the log's end was reached. Raises OSError (disk full)."""
        reached_end = self._catch_up.run_slice(budget_s)
        if self.failure is not None and self._files.current is not None:
            self._recovered()
        if reached_end:
            self._go_live()
        return reached_end

    def flush(self) -> None:
        """Flush everything at a clean stop, when nothing is put any more and `run` has ended.

        Failures are logged: missing entries are rebuilt from the log. Blocks, also to catch up for a while.
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
                self._rebuild_after(error)
            self._save_progress_or_forget()

    def catch_up(self, budget_s: float = math.inf) -> bool:
        """Catch up without an event loop; True once the log's end is reached.

        Raises OSError if the disk is full.
        """
        until = time.monotonic() + budget_s
        while self._state is IndexState.CATCHING_UP and time.monotonic() < until:
            if self.needs_file:
                self._files.prepare()
            self._run_slice(min(budget_s, _LONG_SLICE_S))
        return self._state is IndexState.LIVE

    def close(self) -> None:
        """Close the files."""
        with self._thread_lock:
            self._state = IndexState.OFF
            self._live.stop()
            self._files.close()

    def delete_all(self) -> None:
        """Remove all files, and rebuild the index from the log's first message. Raises OSError."""
        self._files.delete_all()
        self._progress.forget()
        self._resume(0)
        if self._state is not IndexState.OFF:
            self._state = IndexState.CATCHING_UP
            self._live.stop()
            self._wanted.set()

    # --- states ---

    def _go_live(self) -> None:
        self._state = IndexState.LIVE
        self._live.start(self._catch_up.position)

    def _fall_behind(self, physical_offset: int, error: OSError | None) -> None:
        """Enter the message at `physical_offset` and all later ones from the log."""
        if error is not None:
            self._failed(error)
        self._state = IndexState.CATCHING_UP
        self._catch_up.start_at(physical_offset)
        self._wanted.set()

    def _failed(self, error: OSError) -> None:
        if self.failure is None:
            log.error("index not written cause=%s; messages are stored, and entered later", error)
        self.failure = str(error)

    def _recovered(self) -> None:
        log.info("index written again log_offset=%d", self.end_offset)
        self.failure = None

    def _rebuild_after(self, error: OSError) -> None:
        """Remove all unflushed files after a failed flush: it is unknown which of their pages are on disk.

        Raises OSError if the files cannot be removed, which is tried again before anything else.
        """
        self._stop_live()
        self._flush_failure = error
        self._files.drop_unflushed(f"flushing failed: {error}")
        self._progress.forget()
        self._flush_failure = None
        self._take_back_and_resume(0)

    async def _rebuild_in_thread(self, error: OSError) -> None:
        """As `_rebuild_after`, on the loop: nothing is put meanwhile. Raises OSError."""
        self._stop_live()
        await self._in_thread(partial(self._rebuild_after, error))

    def _stop_live(self) -> None:
        if self._state is IndexState.LIVE:
            self._state = IndexState.CATCHING_UP
            self._live.stop()

    def put_deferred(self) -> None:
        """Make the entries that were put and are deferred."""
        self._live.run_deferred()

    # --- reading ---

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> KeyQueryResult:
        """Look up messages by key or unique key, newest first, at most `maxMsgsNumBatch`; for any thread.

        Messages whose keys have the same hash are found, too: the caller compares the keys.
        """
        limit = min(max_count, self._query_settings.max_msgs_num_batch)
        return self._files.look_up(topic, key, limit, begin_ms, end_ms)

    def delete_before(self, log_begin: int) -> int:
        """Remove files whose messages were all deleted; return how many. For any thread. Raises OSError."""
        return self._files.delete_before(log_begin)

    @property
    def end_offset(self) -> int:
        """The log offset up to which every message is in the index."""
        return self._log.max_offset if self._state is IndexState.LIVE else self._catch_up.position

    @property
    def needs_file(self) -> bool:
        """Whether `run` has a file to create, or space to reserve."""
        return self._files.needs_file

    @property
    def flushed_timestamp_ms(self) -> int:
        """The index's time for the checkpoint."""
        return self._files.flushed_timestamp_ms

    def statistics(self) -> IndexStatistics:
        """Return the present state, for metrics and runtime information."""
        return IndexStatistics(
            self._state,
            self.end_offset,
            max(0, self._log.max_offset - self.end_offset),
            len(self._files.files),
            self._files.entry_count,
            self._files.size_bytes,
            self.failure,
        )
