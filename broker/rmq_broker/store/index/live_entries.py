"""Index entries of messages that are being appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .batch_keys import BatchKeys, hashes_of_batch
from .deferred_calls import CallSoon, DeferredCalls
from .index_file import PLACE_BYTES, IndexFile, offset_of
from .index_files import IndexFiles
from .keys import KeyHasher
from .plain_entries import PlainEntries

# Called with a message's log offset, and with the error if the disk is full.
OnStalled = Callable[[int, OSError | None], None]


class LiveEntries:
    """Makes entries while it is live; belongs to the event loop's thread.

    It stops being live as soon as no file can take the next entries.
    """

    __slots__ = (
        "_deferred",
        "_file",
        "_files",
        "_from",
        "_hasher",
        "_on_file_used_up",
        "_on_stalled",
        "_plain",
        "_unique_key_hash",
        "is_live",
    )

    def __init__(
        self,
        files: IndexFiles,
        hasher: KeyHasher,
        call_soon: CallSoon | None,
        *,
        on_stalled: OnStalled,
        on_file_used_up: Callable[[], None],
    ) -> None:
        """`on_stalled` is called with the first message that got no entries.

        `on_file_used_up`: with the last entries a file was begun, or is nearly full. `call_soon` defers
        entries; None: they are made within `put`.
        """
        self._files = files
        self._hasher = hasher
        self._unique_key_hash = hasher.unique_key
        self._deferred = DeferredCalls(call_soon)
        self._plain = PlainEntries(hasher)
        self._on_stalled = on_stalled
        self._on_file_used_up = on_file_used_up
        self._file: IndexFile | None = None  # the file to write to
        self._from = 0
        self.is_live = False

    def start(self, offset: int) -> None:
        """Make entries of messages from this log offset on."""
        self.is_live = True
        self._from = offset
        self._file = self._files.current

    def stop(self) -> None:
        """Make no entries, until `start`."""
        self.is_live = False
        self._file = None

    def run_deferred(self) -> None:
        """Make the entries that are deferred now."""
        self._deferred.run()

    # --- putting ---

    def enter(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> bool:
        """Enter a message of the log now, while it is not live; False if no file can take it yet.

        Raises OSError if the disk is full.
        """
        self._plain.allow(topic)
        if unique_key and not keys:
            return self._files.put_one(
                self._unique_key_hash(topic, unique_key), physical_offset, store_timestamp_ms
            )
        return self._files.put(
            self._hasher.all_keys(topic, unique_key, keys), physical_offset, store_timestamp_ms
        )

    def enter_plain(self, data: bytes, begin: int, offset: int) -> int:
        """Enter some messages of the log from position `begin` of `data` on, as `enter` does one by one.

        `offset` is where `data` begins in the log. Returns the position behind the last of these messages;
        `begin` if the next one has to be entered by `enter`.
        """
        file = self._files.current
        return begin if file is None else self._plain.enter(file, data, begin, offset)

    def put(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Enter an appended message under its unique key and under its keys, which spaces separate.

        Both are as in the properties, empty if there is none. Messages come in the order of the log.
        """
        self._deferred.add(self._put_now, topic, unique_key, keys, physical_offset, store_timestamp_ms)

    def _put_now(
        self, topic: str, unique_key: bytes, keys: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        file = self._file
        if file is not None and not keys and unique_key and physical_offset >= self._from:
            key_hash = self._unique_key_hash(topic, unique_key)
            if file.put(key_hash, physical_offset, store_timestamp_ms):
                return
        if self.is_live and physical_offset >= self._from:
            hashes = self._hasher.all_keys(topic, unique_key, keys)
            self._put_hashes(hashes, physical_offset, store_timestamp_ms)

    def put_batch(self, topic: str, unique_key: bytes, places: bytes, store_timestamp_ms: int) -> None:
        """Enter the messages of one client batch, which have one unique key and no other.

        `places`: their consume queue entries, 20 bytes each, which begin with the physical offset.
        """
        self._deferred.add(self._put_batch_now, topic, unique_key, places, store_timestamp_ms)

    def _put_batch_now(self, topic: str, unique_key: bytes, places: bytes, store_timestamp_ms: int) -> None:
        if not self.is_live or offset_of(places, 0) < self._from:
            return
        key_hash = self._unique_key_hash(topic, unique_key)
        file = self._file
        added = 0 if file is None else file.put_block(key_hash, places, store_timestamp_ms)
        for position in range(added * PLACE_BYTES, len(places), PLACE_BYTES):
            if self.is_live:
                self._put_hashes([key_hash], offset_of(places, position), store_timestamp_ms)

    def put_messages(
        self, topic: str, batch: BatchKeys, offsets: Sequence[int], store_timestamp_ms: int
    ) -> None:
        """Enter the messages of one client batch under the keys of each; `offsets` are those in the log."""
        self._deferred.add(self._put_messages_now, topic, batch, offsets, store_timestamp_ms)

    def _put_messages_now(
        self, topic: str, batch: BatchKeys, offsets: Sequence[int], store_timestamp_ms: int
    ) -> None:
        if not self.is_live:
            return
        hashes, for_each_message = hashes_of_batch(self._hasher, topic, batch)
        if not hashes:
            return
        if isinstance(for_each_message, int):
            for_each_message = [for_each_message] * len(offsets)
        file = self._file
        if file is not None and file.space >= len(hashes) and offsets[0] >= self._from:
            if len(hashes) != len(offsets) or for_each_message.count(1) != len(offsets):
                pairs = zip(offsets, for_each_message, strict=True)
                offsets = [offset for offset, times in pairs for _ in range(times)]
            file.put_many(hashes, offsets, store_timestamp_ms)
            return
        position = 0
        for offset, times in zip(offsets, for_each_message, strict=True):
            if self.is_live and offset >= self._from:
                self._put_hashes(hashes[position : position + times], offset, store_timestamp_ms)
            position += times

    def _put_hashes(self, hashes: Sequence[int], physical_offset: int, store_timestamp_ms: int) -> None:
        failure: OSError | None = None
        try:
            is_entered = self._files.put(hashes, physical_offset, store_timestamp_ms)
        except OSError as error:
            failure, is_entered = error, False
        if not is_entered:
            self.stop()
            self._on_stalled(physical_offset, failure)
        elif self._files.grew:
            self._files.grew = False
            self._file = self._files.current
            if self._files.needs_file:
                self._on_file_used_up()
