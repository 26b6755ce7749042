"""Options of reading, in batches and as a stream.

Names and rules are those of Spark's Kafka source (Apache Spark 4, KafkaSourceProvider) where it has
the thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from ..errors import OptionError, listed
from ..offsets import LATEST, QueueKey
from ..retries import WaitTimeouts
from .checks import by_queue, reject_alternatives, reject_anchor, reject_end_before_start
from .limits import DEFAULT_MAX_DELAY_MS, DEFAULT_PACK_RECORDS, MAX_TASKS, PlanLimits, TriggerLimits
from .option_types import (
    DurationMs,
    ExpressionTypeOption,
    Flag,
    MaybeCount,
    MaybeEnd,
    MaybeGroupName,
    MaybePattern,
    MaybeQueues,
    MaybeStart,
    MaybeText,
    MaybeTimes,
    MaybeTimestampMs,
    MaybeTopics,
    PropertiesModeOption,
    whole_number,
)
from .parsing import Mode, OptionGroup, OtherMode, option
from .positions import Anchor, AtTime, Position
from .sdk_options import SdkOptions

# One name for all: brokers keep what they know of a group for good, so a name for each query would fill them.
DEFAULT_GROUP: Final = "spark-rocketmq-source"


class TopicOptions(OptionGroup):
    """Which queues are read (exactly one of these)"""

    subscribe: MaybeTopics = option("subscribe", "Topics, all queues of each.", None)
    subscribe_pattern: MaybePattern = option(
        "subscribePattern",
        "All topics whose whole name the expression matches, also those that appear later.",
        None,
    )
    assign: MaybeQueues = option("assign", "These queues and no others.", None)

    def check(self, mode: Mode) -> None:
        """Refuse none and more than one."""
        super().check(mode)
        if self.subscribe is None and self.subscribe_pattern is None and self.assign is None:
            raise OptionError("subscribe", None, "given, or one of subscribePattern and assign in its place")
        reject_alternatives(self, "subscribe", "subscribe_pattern", "assign")

    def wants(self, key: QueueKey) -> bool:
        """Whether the queue is one of those to read."""
        if self.assign is not None:
            return key in self.assign
        if self.subscribe is not None:
            return key.topic in self.subscribe
        return self.subscribe_pattern is not None and self.subscribe_pattern.fullmatch(key.topic) is not None


class PositionOptions(OptionGroup):
    """From where and up to where (at most one of each)"""

    starting_offsets: MaybeStart = option(
        "startingOffsets",
        "Where a batch read, or a query without a checkpoint, begins in each queue. `group`: at what "
        "`groupId` has committed.",
        None,
        default_text="batch: earliest, stream: latest",
    )
    starting_timestamp_ms: MaybeTimestampMs = option(
        "startingTimestamp", "Begin with the first message stored at that time or later, in each queue.", None
    )
    starting_timestamps: MaybeTimes = option(
        "startingOffsetsByTimestamp", "The same with a time for each queue.", None
    )
    ending_offsets: MaybeEnd = option(
        "endingOffsets",
        "Where a batch read ends in each queue; the offset itself is not read.",
        None,
        default_text="latest",
        only=Mode.BATCH,
    )
    ending_timestamp_ms: MaybeTimestampMs = option(
        "endingTimestamp", "End before the first message stored at that time or later.", None, only=Mode.BATCH
    )
    ending_timestamps: MaybeTimes = option(
        "endingOffsetsByTimestamp", "The same with a time for each queue.", None, only=Mode.BATCH
    )

    @property
    def ending(self) -> Position:
        """Where a batch read ends."""
        if self.ending_timestamp_ms is not None:
            return AtTime(self.ending_timestamp_ms)
        return self.ending_timestamps or self.ending_offsets or Anchor.LATEST

    def starting(self, mode: Mode) -> Position:
        """Where reading begins, without a checkpoint."""
        if self.starting_timestamp_ms is not None:
            return AtTime(self.starting_timestamp_ms)
        default = Anchor.EARLIEST if mode is Mode.BATCH else Anchor.LATEST
        return self.starting_timestamps or self.starting_offsets or default

    def check(self, mode: Mode) -> None:
        """Refuse two ways to say one thing, a batch without a fixed place, and an end before the start."""
        super().check(mode)
        reject_alternatives(self, "starting_offsets", "starting_timestamp_ms", "starting_timestamps")
        reject_alternatives(self, "ending_offsets", "ending_timestamp_ms", "ending_timestamps")
        if mode is Mode.BATCH:
            reject_anchor("startingOffsets", self.starting_offsets, Anchor.LATEST, LATEST)
        reject_end_before_start("endingOffsets", self.starting_offsets, self.ending_offsets)
        reject_end_before_start("endingOffsetsByTimestamp", self.starting_timestamps, self.ending_timestamps)
        start_ms, end_ms = self.starting_timestamp_ms, self.ending_timestamp_ms
        if start_ms is not None and end_ms is not None and start_ms > end_ms:
            raise OptionError("endingTimestamp", None, "the time of startingTimestamp, or later")


class AmountOptions(OptionGroup):
    """How much at once"""

    max_offsets_per_trigger: MaybeCount = option(
        "maxOffsetsPerTrigger",
        "At most so many offsets in one micro-batch, spread over the queues in proportion to their backlog; "
        "each queue with a backlog gets at least one.",
        None,
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    min_offsets_per_trigger: MaybeCount = option(
        "minOffsetsPerTrigger",
        "No micro-batch while there are fewer, up to `maxTriggerDelay`. `availableNow` does not wait.",
        None,
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    max_trigger_delay_ms: DurationMs = option(
        "maxTriggerDelay",
        "The longest that `minOffsetsPerTrigger` may hold back what is there.",
        DEFAULT_MAX_DELAY_MS,
        default_text="15m",
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    min_partitions: Annotated[int | None, whole_number(1, MAX_TASKS)] = option(
        "minPartitions", "At least so many tasks: large queues are split. Without it, a task for each.", None
    )
    max_records_per_partition: MaybeCount = option(
        "maxRecordsPerPartition", "At most so many offsets in one task: larger queues are split.", None
    )
    pack_below_records: Annotated[int, whole_number(0)] = option(
        "packBelowRecords",
        "Queues with less to read share a task, up to that many offsets; 0 gives each its own.",
        DEFAULT_PACK_RECORDS,
    )

    @property
    def trigger_limits(self) -> TriggerLimits:
        """What one micro-batch may take."""
        return TriggerLimits(
            self.max_offsets_per_trigger, self.min_offsets_per_trigger, self.max_trigger_delay_ms
        )

    @property
    def plan_limits(self) -> PlanLimits:
        """How ranges become tasks."""
        return PlanLimits(self.min_partitions, self.max_records_per_partition, self.pack_below_records)

    def check(self, mode: Mode) -> None:
        """Refuse a least that is more than the most."""
        super().check(mode)
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise OptionError("minOffsetsPerTrigger", None, f"at most maxOffsetsPerTrigger ({most})")


class MessageOptions(OptionGroup):
    """Which messages, and what of them"""

    sub_expression: MaybeText = option(
        "subExpression",
        "Brokers leave out what does not match: tags, `a || b`, or an expression of SQL92.",
        None,
        default_text="*",
    )
    sub_expression_type: ExpressionTypeOption = option("subExpressionType", "What `subExpression` is.", "TAG")
    push_down_filters: Flag = option(
        "pushDownFilters",
        "Filters of the query on time, queue, offset and tags narrow what is read. Needs the Spark setting "
        "spark.sql.python.filterPushdown.enabled.",
        False,
        only=Mode.BATCH,
    )
    properties_mode: PropertiesModeOption = option(
        "propertiesMode",
        "The column `properties`: a map, the text as stored, or left out, which is faster in this order.",
        "map",
    )
    check_crc: Flag = option("checkCrc", "Compare each body with its checksum; damage is an error.", False)
    include_decompressed: Flag = option(
        "includeDecompressed", "Give compressed bodies decompressed; if not, as they are stored.", True
    )

    def check(self, mode: Mode) -> None:
        """Refuse an expression that says nothing."""
        super().check(mode)
        text = self.sub_expression
        if self.sub_expression_type == "SQL92":
            if text is None:
                raise OptionError("subExpression", None, "given, as subExpressionType is SQL92")
        elif text is not None and not any(tag.strip() for tag in text.split("||")):
            raise OptionError("subExpression", None, "tags separated by ||, or *", "there is no tag in it")

    @property
    def expression(self) -> str:
        """The expression that brokers get."""
        return self.sub_expression or "*"


class GroupOptions(OptionGroup):
    """Consumer group"""

    group_id: MaybeGroupName = option(
        "groupId",
        "The consumer group in whose name messages are read; no member of it.",
        None,
        default_text=DEFAULT_GROUP,
    )
    commit_offsets_to_group: Flag = option(
        "commitOffsetsToGroup",
        "Tell the brokers the query's offsets as those of `groupId`, for tools that show lag. The checkpoint "
        "counts nevertheless.",
        False,
        only=Mode.STREAM,
    )

    @property
    def group(self) -> str:
        """The group in whose name messages are read."""
        return self.group_id or DEFAULT_GROUP


class FailureOptions(OptionGroup):
    """When something is amiss"""

    fail_on_data_loss: Flag = option(
        "failOnDataLoss",
        "Whether messages that are gone before they were read are an error; if not, a warning.",
        True,
    )
    broker_timeout_ms: DurationMs = option(
        "brokerTimeout",
        "How long a broker or the name servers may be away before the query fails. With `failOnDataLoss` set "
        "to false, a stream goes on without a broker that the name servers do not tell of any more.",
        120_000,
        default_text="2m",
    )
    topic_timeout_ms: DurationMs = option(
        "topicTimeout",
        "How long a topic that is named may be unknown while brokers are there, as one that is just being "
        "made, or whose brokers are just being started, before that is an error. A stream that runs waits "
        "for `brokerTimeout`.",
        10_000,
        default_text="10s",
    )

    @property
    def wait_timeouts(self) -> WaitTimeouts:
        """How long the driver waits for what is missing."""
        return WaitTimeouts(self.broker_timeout_ms / 1000, self.topic_timeout_ms / 1000)


class PullOptions(OptionGroup):
    """Pulling"""

    pull_batch_size: Annotated[int, whole_number(1, 65_536, "messages")] = option(
        "pullBatchSize", "How many messages one pull asks for; brokers have limits of their own.", 1024
    )
    pull_max_bytes: Annotated[int, whole_number(1024, 8 * 1024 * 1024, "bytes")] = option(
        "pullMaxBytes", "How many bytes one pull asks for.", 4 * 1024 * 1024
    )
    pulls_in_flight: Annotated[int, whole_number(1, 256)] = option(
        "pullsInFlight", "How many pulls a task has under way.", 16
    )
    batch_messages: Annotated[int, whole_number(1, 1_000_000, "messages")] = option(
        "batchMessages", "How many messages are decoded at once, into one Arrow batch.", 8192
    )
    batch_bytes: Annotated[int, whole_number(64 * 1024, 48 * 1024 * 1024, "bytes")] = option(
        "batchBytes", "The same in bytes as stored; what comes first counts.", 8 * 1024 * 1024
    )


class ReadOptions(
    # Bases come last to first in the check, first to last in the reference page.
    SdkOptions,
    TopicOptions,
    PositionOptions,
    AmountOptions,
    MessageOptions,
    GroupOptions,
    FailureOptions,
    PullOptions,
):
    """Options of reading"""

    # Of Spark's Kafka source, and of rocketmq-spark for Spark 2.
    foreign_names: ClassVar[Mapping[str, str]] = {
        "kafka.bootstrap.servers": "rocketmq.namesrv.addr",
        "kafka.group.id": "groupId",
        "nameserver": "rocketmq.namesrv.addr",
        "topic": "subscribe",
        "topics": "subscribe",
        "pulltimeoutms": "brokerTimeout",
        "kafkaconsumer.polltimeoutms": "brokerTimeout",
    }

    @classmethod
    def purpose(cls) -> str:
        """For messages."""
        return "reading"

    def check(self, mode: Mode) -> None:
        """Refuse what needs a group without one, and places in queues that are not read."""
        super().check(mode)
        if self.group_id is None:
            for name, value in (
                ("commitOffsetsToGroup", self.commit_offsets_to_group),
                ("startingOffsets", self.starting_offsets is Anchor.GROUP),
                ("endingOffsets", self.ending_offsets is Anchor.GROUP),
            ):
                if value:
                    raise OptionError("groupId", None, f"given, as {name} needs a group")
        for name, place in (
            ("startingOffsets", self.starting_offsets),
            ("startingOffsetsByTimestamp", self.starting_timestamps),
            ("endingOffsets", self.ending_offsets),
            ("endingOffsetsByTimestamp", self.ending_timestamps),
        ):
            strange = [key for key in by_queue(place) if not self.wants(key)]
            if strange:
                raise OptionError(name, None, "for queues that are read", listed(strange))
