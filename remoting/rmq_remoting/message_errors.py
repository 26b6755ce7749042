"""Errors of the message codec.

MessageCodecError
├── MessageEncodeError             a value that the format cannot hold
│   └── InvalidPropertyError       a property that could not be read back as it was written
└── MessageDecodeError             bytes that are not what they should be
    ├── BodyChecksumError          the body is not the one that was written
    ├── DecompressionError         the compressed body is damaged
    │   ├── UnknownCompressionError    no such compression
    │   └── DecompressedTooLargeError  the body grows beyond the limit (a decompression bomb)
    └── MessageIdError             a text that is no message id
"""

from __future__ import annotations

from .errors import RemotingError


class MessageCodecError(RemotingError):
    """Root of everything that can go wrong between messages and their bytes."""


class MessageEncodeError(MessageCodecError):
    """A value of a message that its field in the format cannot hold."""


class InvalidPropertyError(MessageEncodeError):
    """A property that cannot be stored, or that would not be read back as it was written."""


class MessageDecodeError(MessageCodecError):
    """Bytes that are no message, or a damaged one.

    `position` is the offset of the damaged record in the bytes that were decoded, None if it is not known.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        return self.reason if self.position is None else f"{self.reason} (record at byte {self.position})"


class BodyChecksumError(MessageDecodeError):
    """The CRC of the body is not the one in the record."""


class DecompressionError(MessageDecodeError):
    """A compressed body that cannot be decompressed."""


class UnknownCompressionError(DecompressionError):
    """The compression bits of the system flag name no compression that exists."""


class DecompressedTooLargeError(DecompressionError):
    """A compressed body that grows beyond the limit."""


class MessageIdError(MessageDecodeError):
    """A text that is neither an offset message id nor a client's unique key."""
