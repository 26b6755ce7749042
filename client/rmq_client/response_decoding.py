"""Decoding of the messages of responses: on the event loop while that is fast, otherwise in a thread.

A response has a limit for the decompressed bodies of all its messages (MAX_RESPONSE_BYTES), because a frame
of 16 MiB could decompress to many gigabytes. The messages beyond the limit stay undecoded, and the caller
asks the broker for them again. The first message of a response is always within the limit. A consumer
therefore continues with fewer messages per response, and loses none.
"""

from __future__ import annotations

from rmq_remoting.compression import DecompressionBudget
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_stored_message, decode_until_damage
from rmq_remoting.message_errors import DecompressionBudgetError, DecompressionError, MessageDecodeError

from .compression_threads import run_in_compression_thread

# A response whose compressed bodies take at most this size together is decompressed on the event loop.
# 64 KiB of compressed text or JSON take up to 1 ms. A decompression bomb takes up to 50 ms, because the
# budget ends at 8 MiB, decompressed.
_INLINE_BYTES = 64 * 1024


class ResponseDecoding:
    """Decodes the messages of a response; begins at once, and leaves large bodies to `finish_in_thread`.

    `messages`: the decoded messages. `skipped`: messages whose bodies cannot be decompressed, with the error.
    `error`: why the following records are not decoded, None if there are none. A DecompressionBudgetError
    stands for the limit of the response, and any other error for a damaged record.
    """

    __slots__ = ("_budget", "_is_inline", "_position", "_records", "error", "messages", "skipped")

    def __init__(self, records: bytes, max_body_bytes: int) -> None:
        """`max_body_bytes`: limit of one decompressed body."""
        self.messages: list[MessageExt] = []
        self.skipped: list[tuple[MessageExt, DecompressionError]] = []
        self.error: MessageDecodeError | None = None
        self._records = records
        self._position = 0
        self._budget = DecompressionBudget(max_body_bytes, _INLINE_BYTES)
        self._is_inline = True
        self._decode()

    @property
    def needs_thread(self) -> bool:
        """Whether large bodies are left: `finish_in_thread` must follow."""
        return self._is_inline and isinstance(self.error, DecompressionBudgetError)

    async def finish_in_thread(self) -> None:
        """Decode the rest."""
        self._is_inline = False
        self._budget.lift_inline_limit()
        await run_in_compression_thread(self._decode)

    def undecoded(self) -> list[MessageExt]:
        """Return the messages beyond the limit of the response. Their bodies stay compressed."""
        if not isinstance(self.error, DecompressionBudgetError):
            return []
        return decode_until_damage(self._records, self._position, decompress_bodies=False)[0]

    def _decode(self) -> None:
        records = self._records
        while True:
            messages, error = decode_until_damage(records, self._position, budget=self._budget)
            self.messages += messages
            self.error = error
            if error is None:
                return
            assert error.position is not None, "the decoder sets it"
            self._position = error.position
            if not isinstance(error, DecompressionError):
                return
            try:
                message = decode_stored_message(records, self._position, decompress_body=False)
            except MessageDecodeError as damage:
                self.error = damage
                return
            self.skipped.append((message, error))
            self._position += message.store_size


async def decode_all(records: bytes, max_body_bytes: int) -> list[MessageExt]:
    """Return the messages of a response. Raises MessageDecodeError if one of them cannot be read."""
    decoding = ResponseDecoding(records, max_body_bytes)
    if decoding.needs_thread:
        await decoding.finish_in_thread()
    if decoding.skipped:
        raise decoding.skipped[0][1]
    if decoding.error is not None:
        raise decoding.error
    return decoding.messages


async def decompress_body(body: bytes, sys_flag: int, max_body_bytes: int) -> bytes:
    """Decompress one body according to the system flag of its message.

    Raises DecompressionError, also above `max_body_bytes`, and CompressionUnavailableError.
    """
    budget = DecompressionBudget(max_body_bytes, _INLINE_BYTES)
    try:
        return budget.decompress(body, sys_flag)
    except DecompressionBudgetError:
        budget.lift_inline_limit()
    return await run_in_compression_thread(budget.decompress, body, sys_flag)
