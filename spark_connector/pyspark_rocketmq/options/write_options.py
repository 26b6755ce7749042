"""Options of writing, in batches and as a stream, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from ..errors import OptionError
from .option_types import (
    DurationMs,
    GroupName,
    MaybeCompression,
    MaybeText,
    MaybeTopicToSend,
    MaybeWriteId,
    whole_number,
)
from .parsing import Mode, OptionGroup, option
from .sdk_options import SdkOptions
from .worker_options import WorkerOptions

DEFAULT_GROUP: Final = "spark-rocketmq-sink"

_MAX_INT: Final = 2**31 - 1


class TargetOptions(OptionGroup):
    """Target"""

    topic: MaybeTopicToSend = option(
        "topic", "Topic of all rows. Without it, the column `topic` is required.", None
    )
    group: GroupName = option("groupId", "Producer group.", DEFAULT_GROUP)
    write_id: MaybeWriteId = option(
        "writeId",
        "Name of this write in its row ids. A write repeated under the same name gives its rows the same "
        "ids. Without it, each write has a unique name.",
        None,
        only=Mode.BATCH,
    )


class SendOptions(OptionGroup):
    """Sending"""

    send_batch_size: Annotated[int, whole_number(1, 10_000, "rows")] = option(
        "sendBatchSize", "Maximum rows per request. All rows of a request have one topic and queue.", 500
    )
    send_batch_bytes: Annotated[int, whole_number(1024, 4 * 1024 * 1024, "bytes")] = option(
        "sendBatchBytes",
        "Maximum bytes per request. Brokers accept up to their `maxMessageSize`, 4 MiB by default.",
        1024 * 1024,
    )
    max_in_flight: Annotated[int, whole_number(1, 1024, "requests")] = option(
        "maxInFlight",
        "Maximum requests in flight per task. Requests to a queue selected by rows are sent one at a time.",
        8,
    )
    compression: MaybeCompression = option(
        "compression",
        "Compression of bodies. Every client can read zlib.",
        None,
        default_text="none",
    )
    compress_from_bytes: Annotated[int, whole_number(0, _MAX_INT, "bytes")] = option(
        "compressFromBytes", "Minimum size of bodies that are compressed.", 4096
    )


class WaitOptions(OptionGroup):
    """Failures and timeouts"""

    send_timeout_ms: DurationMs = option(
        "sendTimeout", "Timeout of one attempt, until the broker's acknowledgement.", 3000, default_text="3s"
    )
    broker_timeout_ms: DurationMs = option(
        "brokerTimeout",
        "Time after which the task fails if a broker or the name servers do not answer.",
        120_000,
        default_text="2m",
    )
    topic_timeout_ms: DurationMs = option(
        "topicTimeout",
        "Time after which rows of an unknown topic are rejected. A new topic may be unknown for a moment.",
        5000,
        default_text="5s",
    )
    dead_letter_topic: MaybeTopicToSend = option(
        "deadLetterTopic",
        "Topic for rejected rows, with the reason. Without it and `deadLetterPath`, a rejected row fails the "
        "task.",
        None,
    )
    dead_letter_path: MaybeText = option(
        "deadLetterPath", "Folder for rejected rows, including those too large for any topic.", None
    )


class WriteOptions(SdkOptions, TargetOptions, SendOptions, WaitOptions, WorkerOptions):
    """Options of writing"""

    # Names in Spark's Kafka sink, and in rocketmq-spark for Spark 2.
    foreign_names: ClassVar[Mapping[str, str]] = {
        "kafka.bootstrap.servers": "rocketmq.namesrv.addr",
        "nameserver": "rocketmq.namesrv.addr",
        "kafka.compression.type": "compression",
        "kafka.delivery.timeout.ms": "brokerTimeout",
    }

    @classmethod
    def purpose(cls) -> str:
        """Return the purpose for messages."""
        return "writing"

    def check(self, mode: Mode) -> None:
        """Reject a dead-letter topic that is the target of the rows."""
        super().check(mode)
        if self.topic is not None and self.dead_letter_topic == self.topic:
            raise OptionError("deadLetterTopic", self.dead_letter_topic, "another topic than topic")
