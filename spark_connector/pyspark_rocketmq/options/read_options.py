"""Options of reading, in batches and as a stream, and their checks.

Names and rules are those of Spark's Kafka source (Apache Spark 4, KafkaSourceProvider), if it has the option.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from ..errors import OptionError, listed
from ..offsets import LATEST, QueueKey
from ..retries import WaitTimeouts
from .checks import by_queue, reject_alternatives, reject_anchor, reject_end_before_start
from .limits import DEFAULT_MAX_DELAY_MS, DEFAULT_PACK_RECORDS, MAX_TASKS, PlanLimits, TriggerLimits
from .option_types import (
    OWN_ADDRESS,
    ColumnsPresetOption,
    DurationMs,
    ExpressionTypeOption,
    Flag,
    LossReportsOption,
    MaybeCount,
    MaybeEnd,
    MaybeGroupName,
    MaybeGroupPrefix,
    MaybePattern,
    MaybeQueues,
    MaybeStart,
    MaybeText,
    MaybeTimes,
    MaybeTimestampMs,
    MaybeTopics,
    PropertiesModeOption,
    RetiredQueuesOption,
    TimestampStrategyOption,
    whole_number,
)
from .parsing import Mode, OptionGroup, OtherMode, option
from .positions import Anchor, AtTime, AtTimes, Position
from .sdk_options import SdkOptions
from .worker_options import WorkerOptions

DEFAULT_GROUP_PREFIX: Final = "spark-rocketmq-source"
_MAX_TOPICS_IN_GROUP: Final = 100


class TopicOptions(OptionGroup):
    """Topics and queues (exactly one of these)"""

    subscribe: MaybeTopics = option("subscribe", "Topics to read, with all their queues.", None)
    subscribe_pattern: MaybePattern = option(
        "subscribePattern",
        "Topics whose whole name matches, including topics created later.",
        None,
    )
    assign: MaybeQueues = option("assign", "Queues to read.", None)

    def check(self, mode: Mode) -> None:
        """Reject none and more than one of them."""
        super().check(mode)
        if self.subscribe is None and self.subscribe_pattern is None and self.assign is None:
            raise OptionError("subscribe", None, "given, or one of subscribePattern and assign instead")
        reject_alternatives(self, "subscribe", "subscribe_pattern", "assign")

    def wants(self, key: QueueKey) -> bool:
        """Return whether the queue is one of those to read."""
        if self.assign is not None:
            return key in self.assign
        if self.subscribe is not None:
            return key.topic in self.subscribe
        return self.subscribe_pattern is not None and self.subscribe_pattern.fullmatch(key.topic) is not None


class PositionOptions(OptionGroup):
    """Start and end (at most one of each)"""

    starting_offsets: MaybeStart = option(
        "startingOffsets",
        "Where a batch read, or a query without a checkpoint, begins in each queue. `group`: at the "
        "committed offset of `groupId`.",
        None,
        default_text="batch: earliest, stream: latest",
    )
    starting_timestamp_ms: MaybeTimestampMs = option(
        "startingTimestamp", "Begin each queue with the first message stored at this time or later.", None
    )
    starting_timestamps: MaybeTimes = option(
        "startingOffsetsByTimestamp", "As `startingTimestamp`, with a time for each queue.", None
    )
    timestamp_strategy: TimestampStrategyOption = option(
        "startingOffsetsByTimestampStrategy",
        "Where a queue without a message at its starting time or later begins. `latest`: at the end of the "
        "queue. `error`: the query fails. For `startingTimestamp`, too.",
        "latest",
    )
    ending_offsets: MaybeEnd = option(
        "endingOffsets",
        "Where a batch read ends in each queue. The end offset itself is excluded.",
        None,
        default_text="latest",
        only=Mode.BATCH,
    )
    ending_timestamp_ms: MaybeTimestampMs = option(
        "endingTimestamp",
        "End each queue before the first message stored at this time or later.",
        None,
        only=Mode.BATCH,
    )
    ending_timestamps: MaybeTimes = option(
        "endingOffsetsByTimestamp", "As `endingTimestamp`, with a time for each queue.", None, only=Mode.BATCH
    )

    @property
    def ending(self) -> Position:
        """The end of a batch read."""
        if self.ending_timestamp_ms is not None:
            return AtTime(self.ending_timestamp_ms)
        return self.ending_timestamps or self.ending_offsets or Anchor.LATEST

    def starting(self, mode: Mode) -> Position:
        """Return where reading begins without a checkpoint."""
        must_exist = self.timestamp_strategy == "error"
        if self.starting_timestamp_ms is not None:
            return AtTime(self.starting_timestamp_ms, must_exist)
        if self.starting_timestamps is not None:
            return AtTimes(self.starting_timestamps.timestamps_ms, must_exist)
        return self.starting_offsets or (Anchor.EARLIEST if mode is Mode.BATCH else Anchor.LATEST)

    def check(self, mode: Mode) -> None:
        """Reject alternatives given together, a batch that starts at the end, and an end before the start."""
        super().check(mode)
        reject_alternatives(self, "starting_offsets", "starting_timestamp_ms", "starting_timestamps")
        reject_alternatives(self, "ending_offsets", "ending_timestamp_ms", "ending_timestamps")
        if mode is Mode.BATCH:
            reject_anchor("startingOffsets", self.starting_offsets, Anchor.LATEST, LATEST)
        reject_end_before_start("endingOffsets", self.starting_offsets, self.ending_offsets)
        reject_end_before_start("endingOffsetsByTimestamp", self.starting_timestamps, self.ending_timestamps)
        start_ms, end_ms = self.starting_timestamp_ms, self.ending_timestamp_ms
        if start_ms is not None and end_ms is not None and start_ms > end_ms:
            raise OptionError("endingTimestamp", None, "at or after startingTimestamp")


class AmountOptions(OptionGroup):
    """Size of batches and tasks"""

    max_offsets_per_trigger: MaybeCount = option(
        "maxOffsetsPerTrigger",
        "Maximum offsets in one micro-batch, distributed over the queues in proportion to their backlog. "
        "Each queue with a backlog gets at least one.",
        None,
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    min_offsets_per_trigger: MaybeCount = option(
        "minOffsetsPerTrigger",
        "Minimum offsets in one micro-batch; the query waits for them, up to `maxTriggerDelay`. "
        "`availableNow` does not wait.",
        None,
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    max_trigger_delay_ms: DurationMs = option(
        "maxTriggerDelay",
        "Maximum time for which `minOffsetsPerTrigger` delays messages.",
        DEFAULT_MAX_DELAY_MS,
        default_text="15m",
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    min_partitions: Annotated[int | None, whole_number(1, MAX_TASKS)] = option(
        "minPartitions",
        "Minimum number of tasks; large queues are split. Without it, large queues have one task each.",
        None,
    )
    max_records_per_partition: MaybeCount = option(
        "maxRecordsPerPartition", "Maximum offsets in one task; larger queues are split.", None
    )
    pack_below_records: Annotated[int, whole_number(0)] = option(
        "packBelowRecords",
        "Queues with fewer offsets share a task of up to this size. 0: one task for each queue.",
        DEFAULT_PACK_RECORDS,
    )
    cores: MaybeCount = option(
        "cores",
        "Cores of all executors, which Spark does not tell its sources. Queues that share tasks leave a task "
        "for each core, if there are as many queues. Without it, the cores of the driver's machine count.",
        None,
    )

    @property
    def trigger_limits(self) -> TriggerLimits:
        """The limits of one micro-batch."""
        return TriggerLimits(
            self.max_offsets_per_trigger, self.min_offsets_per_trigger, self.max_trigger_delay_ms
        )

    @property
    def plan_limits(self) -> PlanLimits:
        """The limits of tasks."""
        return PlanLimits(
            self.min_partitions,
            self.max_records_per_partition,
            self.pack_below_records,
            self.cores or os.cpu_count() or 1,
        )

    def check(self, mode: Mode) -> None:
        """Reject a minimum above the maximum."""
        super().check(mode)
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise OptionError("minOffsetsPerTrigger", None, f"at most maxOffsetsPerTrigger ({most})")


class MessageOptions(OptionGroup):
    """Filtering and decoding"""

    sub_expression: MaybeText = option(
        "subExpression",
        "Filter that brokers apply: tags (`a || b`) or an SQL92 expression.",
        None,
        default_text="*",
    )
    sub_expression_type: ExpressionTypeOption = option(
        "subExpressionType", "Syntax of `subExpression`.", "TAG"
    )
    push_down_filters: Flag = option(
        "pushDownFilters",
        "Use the query's filters on time, queue, offset and tags to read fewer messages. Needs the Spark "
        "setting spark.sql.python.filterPushdown.enabled.",
        False,
        only=Mode.BATCH,
    )
    columns: ColumnsPresetOption = option(
        "columns",
        "Columns of a read without a schema: all, or the seven that Spark's Kafka source has, too. Reads of "
        "fewer columns are faster. Spark does not tell Python sources which columns a query uses.",
        "all",
    )
    properties_mode: PropertiesModeOption = option(
        "propertiesMode",
        "Form of the column `properties`: a map, the text as stored, or no such column. Each is faster "
        "than the one before.",
        "map",
    )
    check_crc: Flag = option("checkCrc", "Verify the checksum of each body; a mismatch is an error.", False)
    include_decompressed: Flag = option(
        "includeDecompressed", "Decompress compressed bodies. If false, they are returned as stored.", True
    )

    def check(self, mode: Mode) -> None:
        """Reject an empty expression."""
        super().check(mode)
        text = self.sub_expression
        if self.sub_expression_type == "SQL92":
            if text is None:
                raise OptionError("subExpression", None, "given, because subExpressionType is SQL92")
        elif text is not None and not any(tag.strip() for tag in text.split("||")):
            raise OptionError("subExpression", None, "tags separated by ||, or *", "it has no tag")

    @property
    def expression(self) -> str:
        """The expression that is sent to brokers."""
        return self.sub_expression or "*"


class GroupOptions(OptionGroup):
    """Consumer group"""

    group_id: MaybeGroupName = option(
        "groupId",
        "Consumer group of the pulls, of which the query does not become a member. Without it, the query has "
        "a group of its own (`groupIdPrefix`).",
        None,
    )
    group_id_prefix: MaybeGroupPrefix = option(
        "groupIdPrefix",
        "Beginning of the consumer group of a query without `groupId`. Topics and filter make the rest, and "
        "for a stream the beginning of the query's id, which the checkpoint keeps: a restarted query has the "
        "same group. Batch reads of one topic and filter share a group.",
        None,
        default_text=DEFAULT_GROUP_PREFIX,
    )
    commit_offsets_to_group: Flag = option(
        "commitOffsetsToGroup",
        "Commit the query's offsets to `groupId`, for tools that show lag. The query itself restarts from "
        "its checkpoint.",
        False,
        only=Mode.STREAM,
    )

    def check(self, mode: Mode) -> None:
        """Reject a group together with the beginning of one."""
        super().check(mode)
        reject_alternatives(self, "group_id", "group_id_prefix")


class FailureOptions(OptionGroup):
    """Failures and timeouts"""

    fail_on_data_loss: Flag = option(
        "failOnDataLoss",
        "Fail if messages expired before they were read. If false, log a warning and skip them.",
        True,
    )
    loss_reports: LossReportsOption = option(
        "lossReports",
        "Address of the driver to which tasks report lost messages, with `failOnDataLoss` false. `auto`: the "
        "driver's address towards the name servers, and a free port. Give another address if executors "
        "reach the driver only there; its port must be free on the driver. `off`: the next plan counts the "
        "messages that have expired meanwhile, an upper bound.",
        OWN_ADDRESS,
        only=Mode.STREAM,
        in_other_mode=OtherMode.IGNORED,
    )
    retired_queues: RetiredQueuesOption = option(
        "retiredQueues",
        "What a stream does with queues that are no longer in the route of their topic. `auto`: they leave "
        "the checkpoint; unread messages of theirs are lost as `failOnDataLoss` says. `fail`: the query "
        "fails after `brokerTimeout`.",
        "auto",
        only=Mode.STREAM,
    )
    broker_timeout_ms: DurationMs = option(
        "brokerTimeout",
        "Time after which the query fails if a broker or the name servers do not answer. Also the time after "
        "which the queues of a broker that is no longer registered leave a stream.",
        120_000,
        default_text="2m",
    )
    topic_timeout_ms: DurationMs = option(
        "topicTimeout",
        "Time after which a topic given by name is an error if it is unknown while brokers are registered. A "
        "new topic, or one whose brokers are starting, may be unknown for a moment. A running stream waits "
        "for `brokerTimeout` instead.",
        10_000,
        default_text="10s",
    )

    @property
    def wait_timeouts(self) -> WaitTimeouts:
        """How long the driver retries."""
        return WaitTimeouts(self.broker_timeout_ms / 1000, self.topic_timeout_ms / 1000)


class PullOptions(OptionGroup):
    """Pulling"""

    pull_batch_size: Annotated[int, whole_number(1, 65_536, "messages")] = option(
        "pullBatchSize", "Maximum messages per pull. Brokers have limits of their own.", 1024
    )
    pull_max_bytes: Annotated[int, whole_number(1024, 8 * 1024 * 1024, "bytes")] = option(
        "pullMaxBytes", "Maximum bytes per pull.", 4 * 1024 * 1024
    )
    pulls_in_flight: Annotated[int, whole_number(1, 256)] = option(
        "pullsInFlight", "Maximum pulls in flight per task.", 16
    )
    batch_messages: Annotated[int, whole_number(1, 1_000_000, "messages")] = option(
        "batchMessages", "Maximum messages decoded into one Arrow batch.", 8192
    )
    batch_bytes: Annotated[int, whole_number(64 * 1024, 48 * 1024 * 1024, "bytes")] = option(
        "batchBytes",
        "Maximum bytes as stored in one Arrow batch. A batch ends at the first limit reached.",
        8 * 1024 * 1024,
    )


class ReadOptions(
    # `check` runs the bases from last to first; the reference page lists them from first to last.
    SdkOptions,
    TopicOptions,
    PositionOptions,
    AmountOptions,
    MessageOptions,
    GroupOptions,
    FailureOptions,
    PullOptions,
    WorkerOptions,
):
    """Options of reading"""

    # Names in Spark's Kafka source, and in rocketmq-spark for Spark 2.
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
        """Return the purpose for messages."""
        return "reading"

    @property
    def group(self) -> str:
        """The consumer group of the pulls: the given one, or one for what the query reads.

        Tasks of a stream add the beginning of the query's id. The group is thus the same for each run of a
        query: brokers keep groups for ever, so that a random name per run would accumulate on them.
        """
        if self.group_id is not None:
            return self.group_id
        topics = self.subscribe or sorted({queue.topic for queue in self.assign or ()})
        pattern = "" if self.subscribe_pattern is None else self.subscribe_pattern.pattern
        queues = [str(queue) for queue in self.assign or ()]
        read = repr((sorted(topics), pattern, queues, self.expression, self.sub_expression_type))
        shown = re.sub(r"[^a-zA-Z0-9_-]+", "_", "-".join(topics) or pattern)[:_MAX_TOPICS_IN_GROUP]
        digest = hashlib.sha256(read.encode()).hexdigest()[:8]
        return f"{self.group_id_prefix or DEFAULT_GROUP_PREFIX}-{shown}-{digest}"

    def check(self, mode: Mode) -> None:
        """Reject options that need a group without one, and positions in queues that are not read."""
        super().check(mode)
        if self.group_id is None:
            for name, value in (
                ("commitOffsetsToGroup", self.commit_offsets_to_group),
                ("startingOffsets", self.starting_offsets is Anchor.GROUP),
                ("endingOffsets", self.ending_offsets is Anchor.GROUP),
            ):
                if value:
                    raise OptionError("groupId", None, f"given, because {name} needs a group")
        for name, position in (
            ("startingOffsets", self.starting_offsets),
            ("startingOffsetsByTimestamp", self.starting_timestamps),
            ("endingOffsets", self.ending_offsets),
            ("endingOffsetsByTimestamp", self.ending_timestamps),
        ):
            strange = [key for key in by_queue(position) if not self.wants(key)]
            if strange:
                raise OptionError(name, None, "for queues that are selected for reading", listed(strange))
