"""Errors of the connector. Catch ConnectorError to catch all of them. Each message says what to do.

ConnectorError
├── OptionError            an option has a value that is not allowed, or is missing
│   └── UnknownOption      an option does not exist here
├── BadOffsets             offsets by queue, from a checkpoint or an option, cannot be parsed
├── DataLoss               messages that the query has to read no longer exist
├── SchemaError            a schema has columns that this connector cannot read or write
├── RecordDamaged          a stored message cannot be decoded; the error names its offset
├── BatchTooLarge          messages are too large, decompressed, to be decoded together
├── SourceUnavailable      name servers or brokers did not answer within the timeout of the query
├── StaticTopic            the read includes a static topic
├── TopicMissing           name servers and brokers answer, and none of them knows the topic
└── RowRefused             a row was rejected, and no dead-letter option applies to it

Spark carries errors from its workers to the driver; all of these survive pickling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_SHOWN: Final = 200


class ConnectorError(Exception):
    """Root of all errors of this package."""


class OptionError(ConnectorError, ValueError):
    """An option is missing or has a value that is not allowed. `value` is None for a missing option.

    `allowed` completes the sentence 'it must be …'. `reason` adds the exact error, if the value and
    `allowed` do not show it.
    """

    def __init__(self, option: str, value: object, allowed: str, reason: str = "") -> None:
        super().__init__(option, value, allowed, reason)
        self.option = option
        self.value = value
        self.allowed = allowed
        self.reason = reason

    def __str__(self) -> str:
        """Return the message on one line."""
        what = "not given" if self.value is None else repr(shortened(str(self.value)))
        why = f" ({shortened(self.reason)})" if self.reason else ""
        return f"option {self.option} is {what}: it must be {self.allowed}{why}"


class UnknownOption(OptionError):
    """An option does not exist. The value is not kept: it may be a secret under a mistyped name."""

    def __init__(self, option: str, advice: str) -> None:
        super().__init__(option, None, advice)
        self.args = (option, advice)

    def __str__(self) -> str:
        """Return the message on one line."""
        return f"option {shortened(self.option)} is unknown here: {self.allowed}"


class BadOffsets(ConnectorError, ValueError):
    """Offsets by queue cannot be parsed, or contradict each other."""


class DataLoss(ConnectorError):
    """Messages that the query has to read no longer exist."""


class SourceUnavailable(ConnectorError):
    """Name servers or brokers did not answer within the timeout of the query."""


class TopicMissing(ConnectorError):
    """Name servers and brokers answer, and none of them knows the topic."""


class StaticTopic(ConnectorError):
    """The read includes a static topic. This connector reads the queues of brokers, not logical queues."""


class SchemaError(ConnectorError, ValueError):
    """A schema has columns that this connector cannot read or write."""


class RowRefused(ConnectorError):
    """A row was rejected, and no dead-letter option applies to it."""


class RecordDamaged(ConnectorError):
    """A stored message cannot be decoded. `offset` is None if even the offset is unreadable."""

    def __init__(self, topic: str, broker_name: str, queue_id: int, offset: int | None, reason: str) -> None:
        super().__init__(topic, broker_name, queue_id, offset, reason)
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        """Return the message on one line."""
        where = f"topic {self.topic}, broker {self.broker_name}, queue {self.queue_id}"
        offset = "unknown" if self.offset is None else self.offset
        return f"{where}, offset {offset}: the message cannot be decoded: {self.reason}"


class BatchTooLarge(ConnectorError):
    """Messages are too large, decompressed, to be decoded together: decode fewer of them at a time."""


def shortened(text: str) -> str:
    """Return the text cut to 200 characters, with its full length."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"


def listed(names: Iterable[object], most: int = 10) -> str:
    """Return names separated by commas; at most `most` of them, followed by the number of the others."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return shortened(", ".join(texts[:most])) + more
