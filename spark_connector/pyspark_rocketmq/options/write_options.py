"""Options of writing, in batches and as a stream."""

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

DEFAULT_GROUP: Final = "spark-rocketmq-sink"

_MAX_INT: Final = 2**31 - 1


class TargetOptions(OptionGroup):
    """Where to"""

    topic: MaybeTopicToSend = option(
        "topic", "The topic of all rows; without it, each row's column `topic` says it.", None
    )
    group: GroupName = option("groupId", "The producer group.", DEFAULT_GROUP)
    write_id: MaybeWriteId = option(
        "writeId",
        "What this write is called in the ids of its rows: one that is repeated under the same name gives "
        "the same rows the same ids. Without it each write has a name of its own.",
        None,
        only=Mode.BATCH,
    )


class SendOptions(OptionGroup):
    """Sending"""

    send_batch_size: Annotated[int, whole_number(1, 10_000, "rows")] = option(
        "sendBatchSize", "How many rows go in one request; all of one topic and queue.", 500
    )
    send_batch_bytes: Annotated[int, whole_number(1024, 4 * 1024 * 1024, "bytes")] = option(
        "sendBatchBytes",
        "The same in bytes. Brokers take up to their `maxMessageSize`, 4 MiB unless set.",
        1024 * 1024,
    )
    max_in_flight: Annotated[int, whole_number(1, 1024, "requests")] = option(
        "maxInFlight",
        "How many requests a task has under way; those to a queue that rows choose go one by one.",
        8,
    )
    compression: MaybeCompression = option(
        "compression",
        "How bodies are compressed; zlib is what every client can read.",
        None,
        default_text="none",
    )
    compress_from_bytes: Annotated[int, whole_number(0, _MAX_INT, "bytes")] = option(
        "compressFromBytes", "Smaller bodies are sent as they are.", 4096
    )


class WaitOptions(OptionGroup):
    """When something is amiss"""

    send_timeout_ms: DurationMs = option(
        "sendTimeout", "How long one attempt waits for the broker's acknowledgement.", 3000, default_text="3s"
    )
    broker_timeout_ms: DurationMs = option(
        "brokerTimeout",
        "How long a broker or the name servers may be away before the task fails.",
        120_000,
        default_text="2m",
    )
    topic_timeout_ms: DurationMs = option(
        "topicTimeout",
        "How long a topic may be unknown, as one that is just being made, before its rows are refused.",
        5000,
        default_text="5s",
    )
    dead_letter_topic: MaybeTopicToSend = option(
        "deadLetterTopic",
        "Rows that the brokers refuse go there, with the reason; without it and `deadLetterPath` the task "
        "fails.",
        None,
    )
    dead_letter_path: MaybeText = option(
        "deadLetterPath", "A folder for refused rows, also for those too large for any topic.", None
    )


class WriteOptions(SdkOptions, TargetOptions, SendOptions, WaitOptions):
    """Options of writing"""

    # Of Spark's Kafka sink, and of rocketmq-spark for Spark 2.
    foreign_names: ClassVar[Mapping[str, str]] = {
        "kafka.bootstrap.servers": "rocketmq.namesrv.addr",
        "nameserver": "rocketmq.namesrv.addr",
        "kafka.compression.type": "compression",
        "kafka.delivery.timeout.ms": "brokerTimeout",
    }

    @classmethod
    def purpose(cls) -> str:
        """For messages."""
        return "writing"

    def check(self, mode: Mode) -> None:
        """Refuse dead letters among the rows that they come from."""
        super().check(mode)
        if self.topic is not None and self.dead_letter_topic == self.topic:
            raise OptionError("deadLetterTopic", self.dead_letter_topic, "another topic than topic")
