"""Errors of the connector. Whoever catches ConnectorError catches all of them; the messages say what to do.

ConnectorError
├── OptionError            an option cannot be used: names it, its value, and what is allowed
│   └── UnknownOption      there is no such option (here)
├── BadOffsets             offsets by queue, of a checkpoint or an option, cannot be read
├── DataLoss               messages that the query has to read are no longer there
├── SchemaError            a schema has columns that cannot be read, or cannot be written, like this
├── RecordDamaged          a stored message cannot be decoded: says where it is
├── BatchTooLarge          messages take too much room, decompressed, to be decoded in one go
├── SourceUnavailable      name servers or brokers did not answer for longer than the query may wait
├── TopicMissing           name servers and brokers are there, and none of them knows the topic
└── RowRefused             a row that no topic takes, and nothing else was asked to keep

All of them survive pickling: Spark carries them from its workers to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_SHOWN: Final = 200


class ConnectorError(Exception):
    """Root of all errors of this package."""


class OptionError(ConnectorError, ValueError):
    """An option that cannot be used. `value` is None where it was not given.

    `allowed` follows 'must be'; `reason` says what exactly is wrong, where that is not plain from the two.
    """

    def __init__(self, option: str, value: object, allowed: str, reason: str = "") -> None:
        super().__init__(option, value, allowed, reason)
        self.option = option
        self.value = value
        self.allowed = allowed
        self.reason = reason

    def __str__(self) -> str:
        """One line for people."""
        what = "not given" if self.value is None else repr(shortened(str(self.value)))
        why = f" ({shortened(self.reason)})" if self.reason else ""
        return f"option {self.option} is {what}: it must be {self.allowed}{why}"


class UnknownOption(OptionError):
    """There is no such option. The value is left out: it may be a secret under a mistyped name."""

    def __init__(self, option: str, advice: str) -> None:
        super().__init__(option, None, advice)
        self.args = (option, advice)

    def __str__(self) -> str:
        """One line for people."""
        return f"option {shortened(self.option)} is unknown here: {self.allowed}"


class BadOffsets(ConnectorError, ValueError):
    """Offsets by queue that cannot be read, or that do not fit together."""


class DataLoss(ConnectorError):
    """Messages that the query has to read are no longer there."""


class SourceUnavailable(ConnectorError):
    """Name servers or brokers did not answer for longer than the query may wait."""


class TopicMissing(ConnectorError):
    """Name servers and brokers are there, and none of them knows the topic."""


class SchemaError(ConnectorError, ValueError):
    """A schema with columns that cannot be read, or cannot be written, like this."""


class RowRefused(ConnectorError):
    """A row that no topic takes, and that no dead-letter option was there for."""


class RecordDamaged(ConnectorError):
    """A stored message that cannot be decoded; `offset` is None where not even that can be read."""

    def __init__(self, topic: str, broker_name: str, queue_id: int, offset: int | None, reason: str) -> None:
        super().__init__(topic, broker_name, queue_id, offset, reason)
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        """One line for people."""
        where = f"topic {self.topic}, broker {self.broker_name}, queue {self.queue_id}"
        offset = "unknown" if self.offset is None else self.offset
        return f"{where}, offset {offset}: the message cannot be decoded: {self.reason}"


class BatchTooLarge(ConnectorError):
    """Messages that take too much room to be decoded in one go: decode fewer of them."""


def shortened(text: str) -> str:
    """Text that fits into a message, however long it was."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"


def listed(names: Iterable[object], most: int = 10) -> str:
    """Names for a message, at most so many of them."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return shortened(", ".join(texts[:most])) + more
