"""What a producer can be asked for, apart from batching and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.compression import DEFAULT_LEVEL, CompressionType


@dataclass(frozen=True, slots=True)
class Compression:
    """Bodies of at least `threshold_bytes` are compressed. zlib is what every client can read."""

    threshold_bytes: int = 4096
    type: CompressionType = CompressionType.ZLIB
    level: int = DEFAULT_LEVEL


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a send is tried again, on another broker where there is one, within the send's timeout.

    `unless_stored_safely`: also when the broker has the message, but is not sure of its disk or its slave.
    """

    retries: int = 2
    unless_stored_safely: bool = False
