"""What a producer can be asked for, apart from batching and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmq_remoting.compression import DEFAULT_LEVEL, CompressionType

from ..errors import BrokerError, ClientError, UsageError

# Time-outs are looked for ten times a second: a smaller share of the time would be none.
_LEAST_SHARE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Compression:
    """Bodies of at least `threshold_bytes` are compressed. zlib is what every client can read."""

    threshold_bytes: int = 4096
    type: CompressionType = CompressionType.ZLIB
    level: int = DEFAULT_LEVEL


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a send is tried again, on another broker where there is one, within the send's timeout.

    `unless_stored_safely`: also when the broker has the message, but is not sure of its disk or its slave
    (Apache's retryAnotherBrokerWhenNotStoreOK).
    `attempt_timeout_seconds`: how long one attempt may take that is not the last; None: where there is
    another broker, its share of the time that is left, so that a broker which hangs does not use it all up.
    `further_codes`: refusals that are worth another attempt besides those whose error is `retryable`.
    """

    retries: int = 2
    unless_stored_safely: bool = False
    attempt_timeout_seconds: float | None = None
    further_codes: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.retries < 0:
            raise UsageError(f"retries is {self.retries}: it must not be below 0")
        if self.attempt_timeout_seconds is not None and self.attempt_timeout_seconds <= 0:
            raise UsageError(
                f"attempt_timeout_seconds is {self.attempt_timeout_seconds}: it must be above 0, or None"
            )

    def is_worthwhile(self, error: ClientError) -> bool:
        """Whether a send that failed like this may succeed when it is tried again."""
        return not isinstance(error, BrokerError) or error.retryable or error.code in self.further_codes

    def attempt_seconds(self, remaining_seconds: float, attempts: int, *, has_other: bool) -> float:
        """How long the next attempt may take, of `attempts` that are left, with another broker or without."""
        if attempts <= 1:
            return remaining_seconds
        if self.attempt_timeout_seconds is not None:
            return min(remaining_seconds, self.attempt_timeout_seconds)
        if not has_other:
            return remaining_seconds
        return min(remaining_seconds, max(remaining_seconds / attempts, _LEAST_SHARE_SECONDS))
