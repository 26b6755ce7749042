"""Errors of the message codec.

MessageCodecError
├── MessageEncodeError             a value that does not fit the format; also a ClientError of the SDK
│   └── InvalidPropertyError       a property that would not be read back as it was written
└── MessageDecodeError             bytes that are no message, or a damaged one
    ├── BodyChecksumError          the body does not have the recorded CRC
    ├── DecompressionError         the compressed body is damaged
    │   ├── UnknownCompressionError    an unknown number of a compression
    │   └── DecompressedTooLargeError  the body exceeds the limit (a decompression bomb)
    ├── DecompressionBudgetError   the bodies of the response exceed their limit together
    ├── CompressionUnavailableError  the package for this compression is not installed
    └── MessageIdError             a text that is no message id
"""

from __future__ import annotations

from .client_error import ClientError
from .errors import RemotingError


class MessageCodecError(RemotingError):
    """Root of the errors of encoding and decoding messages."""


class MessageEncodeError(MessageCodecError, ClientError, ValueError):
    """A value of a message that does not fit its field in the format."""


class InvalidPropertyError(MessageEncodeError):
    """A property that cannot be stored, or would not be read back as it was written."""


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
    """The CRC of the body differs from the one in the record."""


class DecompressionError(MessageDecodeError):
    """A compressed body that cannot be decompressed."""


class UnknownCompressionError(DecompressionError):
    """The compression bits of the system flag have an unknown value."""


class DecompressedTooLargeError(DecompressionError):
    """A compressed body that exceeds the limit when it is decompressed."""


class DecompressionBudgetError(MessageDecodeError):
    """The budget of a response is used up: the record at `position` and those after it are not decoded."""


class CompressionUnavailableError(MessageDecodeError):
    """The package for a compression is not installed. The message may be intact, so it is not skipped."""


class MessageIdError(MessageDecodeError):
    """A text that is neither an offset message id nor a client's unique key."""
