"""Requests the store times of messages from brokers, in the background."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from rmq_client import ClientError, MessageQueue, PullWish
from rmq_client.blocking import RawPuller
from rmq_remoting.message_codec import decode_stored_message

from ..offsets import QueueKey
from ..options import ReadOptions

log = logging.getLogger(__name__)

# A broker returns at least one message, whatever its size.
_ONE_MESSAGE: Final = PullWish(max_messages=1, max_bytes=1024)
_MAX_IN_FLIGHT: Final = 8
_TIMEOUT_SECONDS: Final = 5.0

OnStoreTime = Callable[[QueueKey, int, float], None]


class StoreTimes:
    """Store times of messages of one cluster. One round of requests at a time; usable from any thread."""

    def __init__(self, options: ReadOptions) -> None:
        """Connect on the first request. Raises ClientError."""
        self._puller = RawPuller(
            options.name_servers,
            group=options.group,
            settings=options.client_settings,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        self._puller.start()
        self._in_flight = threading.Lock()
        self._failing = False

    def request(self, messages: Sequence[tuple[QueueKey, int]], on_store_time: OnStoreTime) -> bool:
        """Request the store times of messages, given by queue and offset, without blocking.

        Return False and do nothing while another round is in flight. `on_store_time` is called on another
        thread with queue, offset and store time in seconds since 1970 UTC. It is not called for messages that
        no longer exist, or whose broker does not answer. Raises NotRunning.
        """
        if not self._in_flight.acquire(blocking=False):
            return False
        try:
            future = self._puller.submit(self._request(messages, on_store_time))
        except BaseException:
            self._in_flight.release()
            raise
        future.add_done_callback(self._ended)
        return True

    def close(self) -> None:
        """Close the connections."""
        self._puller.stop()

    def _ended(self, future: Future[None]) -> None:
        self._in_flight.release()
        if not future.cancelled() and (error := future.exception()) is not None:
            log.error("requests for store times failed", exc_info=error)

    async def _request(self, messages: Sequence[tuple[QueueKey, int]], on_store_time: OnStoreTime) -> None:
        room = asyncio.Semaphore(_MAX_IN_FLIGHT)

        async def one(queue: QueueKey, offset: int) -> ClientError | None:
            try:
                async with room:
                    at = await self._stored_at(queue, offset)
            except ClientError as error:
                return error
            if at is not None:
                on_store_time(queue, offset, at)
            return None

        errors = await asyncio.gather(*(one(queue, offset) for queue, offset in messages))
        error = next((error for error in errors if error is not None), None)
        if error is not None and not self._failing:
            log.warning("store times of some messages unavailable, retrying cause=%s", error)
        self._failing = error is not None

    async def _stored_at(self, queue: QueueKey, offset: int) -> float | None:
        """Return seconds since 1970 UTC; None if the message no longer exists. Raises ClientError."""
        where = MessageQueue(queue.topic, queue.broker, queue.queue_id)
        pull = await self._puller.pulls.pull(where, offset, _ONE_MESSAGE)
        return store_time(pull.body) if pull.body else None


def store_time(record: bytes) -> float:
    """Return the store time of the first of some stored messages, in seconds since 1970 UTC."""
    return decode_stored_message(record, decompress_body=False).store_timestamp / 1000
