"""Policies of a producer: compression and retries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.compression import DEFAULT_LEVEL, CompressionType, check_available
from rmq_remoting.message_errors import CompressionUnavailableError

from ..checks import (
    Seconds,
    check_each,
    check_flag,
    check_instance,
    check_int,
    check_seconds,
    set_fields,
    short_repr,
)
from ..errors import BrokerError, ClientError, UsageError

# Connections look for expired requests ten times a second: a shorter timeout would expire at once.
_LEAST_SHARE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, repr=False)
class Compression:
    """Bodies of at least `threshold_bytes` are compressed. Every RocketMQ client can read zlib.

    LZ4 and ZSTD need the extra `rmq[compression]`, also where the messages are consumed. Without it, Python
    3.14 and newer have ZSTD.
    """

    threshold_bytes: int = 4096
    type: CompressionType = CompressionType.ZLIB
    level: int = DEFAULT_LEVEL

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check the values, and that the package for `type` is installed. Raises UsageError."""
        check_int("threshold_bytes", self.threshold_bytes, least=0)
        check_instance("type", self.type, CompressionType, "for example CompressionType.ZSTD")
        check_int("level", self.level, least=0, most=22)
        try:
            check_available(self.type)
        except CompressionUnavailableError as error:
            raise UsageError(str(error)) from None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RetryPolicy:
    """Retries of a send within its timeout, on another broker if there is one.

    `unless_stored_safely`: also retry if the broker has the message, but its disk or its slave did not
    confirm (Apache's retryAnotherBrokerWhenNotStoreOK). `attempt_timeout_seconds`: timeout of all attempts
    but the last; None: their share of the remaining time if there is another broker, so that a broker that
    hangs does not use up all of it. `further_codes`: response codes that are worth a retry besides those of
    `retryable` errors.
    """

    retries: int
    unless_stored_safely: bool
    attempt_timeout_seconds: float | None
    further_codes: frozenset[int]

    __repr__ = short_repr

    def __init__(
        self,
        retries: int = 2,
        unless_stored_safely: bool = False,
        attempt_timeout_seconds: Seconds | None = None,
        further_codes: Iterable[int] = (),
    ) -> None:
        """Raises InvalidArgumentError."""
        if attempt_timeout_seconds is not None:
            attempt_timeout_seconds = check_seconds(
                "attempt_timeout_seconds", attempt_timeout_seconds, above=0
            )
        set_fields(
            self,
            retries=check_int("retries", retries, least=0),
            unless_stored_safely=check_flag("unless_stored_safely", unless_stored_safely),
            attempt_timeout_seconds=attempt_timeout_seconds,
            further_codes=frozenset(check_each("further_codes", further_codes, int, "give response codes")),
        )

    def is_worthwhile(self, error: ClientError) -> bool:
        """Whether a send that failed with this error may succeed in another attempt."""
        return not isinstance(error, BrokerError) or error.retryable or error.code in self.further_codes

    def attempt_seconds(self, remaining_seconds: float, attempts: int, *, has_other: bool) -> float:
        """Return the timeout of the next attempt of `attempts`; `has_other`: there is another broker."""
        if attempts <= 1:
            return remaining_seconds
        if self.attempt_timeout_seconds is not None:
            return min(remaining_seconds, self.attempt_timeout_seconds)
        if not has_other:
            return remaining_seconds
        return min(remaining_seconds, max(remaining_seconds / attempts, _LEAST_SHARE_SECONDS))
