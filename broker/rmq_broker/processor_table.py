"""Which code is answered by whom, and in which tier: the broker's whole protocol on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.dispatch import Dispatcher, InlineTier, PoolTier, Processor, Tier

if TYPE_CHECKING:
    from .processors.admin.broker import BrokerAdminProcessor
    from .processors.admin.cleaning import CleaningProcessor
    from .processors.admin.clients import ConnectionAdminProcessor
    from .processors.admin.consume_stats import ConsumeStatsProcessor
    from .processors.admin.delays import DelayAdminProcessor
    from .processors.admin.groups import GroupAdminProcessor
    from .processors.admin.offset_reset import OffsetResetProcessor
    from .processors.admin.offsets import OffsetAdminProcessor, OffsetCloneProcessor
    from .processors.admin.queue_view import QueueViewProcessor
    from .processors.admin.relays import ConsumerRelayProcessor
    from .processors.admin.stats_data import StatsDataProcessor
    from .processors.admin.timers import TimerAdminProcessor
    from .processors.admin.topic_stats import TopicStatsProcessor
    from .processors.admin.topics import TopicAdminProcessor
    from .processors.client import ClientProcessor
    from .processors.consumer import ConsumerOffsetProcessor
    from .processors.locks import QueueLockProcessor
    from .processors.offsets import QueueOffsetProcessor
    from .processors.pop_processors import PopProcessors
    from .processors.pull import PullProcessor
    from .processors.query import QueryProcessor
    from .processors.recall import RecallProcessor
    from .processors.reply import ReplyProcessor
    from .processors.send import SendProcessor
    from .processors.send_back import SendBackProcessor
    from .processors.transaction import TransactionProcessor
    from .settings.broker import TierSettings

# Without fast failure a request may wait as long as it likes; a day is as long as that.
_FOREVER_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Tiers:
    """The broker's tiers. Inline work takes microseconds; the pools may block."""

    send: InlineTier
    reply: InlineTier
    pull: InlineTier
    lite_pull: InlineTier
    pull_cold: PoolTier  # what pulls hand on that is not in memory
    ack: InlineTier
    transaction: InlineTier
    heartbeat: InlineTier
    client_manager: InlineTier
    consumer_manager: InlineTier
    admin: InlineTier
    admin_reads: PoolTier
    query: PoolTier

    @classmethod
    def of(cls, settings: TierSettings) -> Tiers:
        """Tiers with the capacities and waits of the settings."""

        def wait_ms(limit_ms: int) -> int:
            return limit_ms if settings.broker_fast_failure_enable else _FOREVER_MS

        def inline(name: str, capacity: int, limit_ms: int) -> InlineTier:
            return InlineTier(name, capacity=capacity, max_wait_ms=wait_ms(limit_ms))

        return cls(
            send=inline("send", settings.send_queue_capacity, settings.send_max_wait_ms),
            # BrokerFastFailure does not look after Apache's pool for replies.
            reply=InlineTier("reply", capacity=settings.reply_queue_capacity, max_wait_ms=_FOREVER_MS),
            pull=inline("pull", settings.pull_queue_capacity, settings.pull_max_wait_ms),
            lite_pull=inline("lite_pull", settings.lite_pull_queue_capacity, settings.lite_pull_max_wait_ms),
            pull_cold=PoolTier(
                "pull_cold",
                threads=settings.pull_cold_threads,
                capacity=settings.pull_cold_queue_capacity,
                max_wait_ms=wait_ms(settings.pull_max_wait_ms),
            ),
            ack=inline("ack", settings.ack_queue_capacity, settings.ack_max_wait_ms),
            transaction=inline(
                "transaction", settings.transaction_queue_capacity, settings.transaction_max_wait_ms
            ),
            heartbeat=inline("heartbeat", settings.heartbeat_queue_capacity, settings.heartbeat_max_wait_ms),
            client_manager=inline(
                "client_manager", settings.client_manager_queue_capacity, settings.heartbeat_max_wait_ms
            ),
            consumer_manager=inline(
                "consumer_manager", settings.consumer_manager_queue_capacity, settings.admin_max_wait_ms
            ),
            admin=inline("admin", settings.admin_queue_capacity, settings.admin_max_wait_ms),
            admin_reads=PoolTier(
                "admin_reads",
                threads=settings.admin_threads,
                capacity=settings.admin_queue_capacity,
                max_wait_ms=wait_ms(settings.admin_max_wait_ms),
            ),
            query=PoolTier(
                "query",
                threads=settings.query_threads,
                capacity=settings.query_queue_capacity,
                max_wait_ms=_FOREVER_MS,  # BrokerFastFailure does not look after Apache's query pool either
            ),
        )


@dataclass(frozen=True, slots=True)
class Processors:
    """Everybody who answers requests."""

    send: SendProcessor
    send_back: SendBackProcessor
    recall: RecallProcessor
    reply: ReplyProcessor
    transactions: TransactionProcessor
    delay_admin: DelayAdminProcessor
    timer_admin: TimerAdminProcessor
    pull: PullProcessor
    pops: PopProcessors
    client: ClientProcessor
    consumer_offset: ConsumerOffsetProcessor
    queue_offset: QueueOffsetProcessor
    topic_admin: TopicAdminProcessor
    query: QueryProcessor
    queue_view: QueueViewProcessor
    topic_stats: TopicStatsProcessor
    consume_stats: ConsumeStatsProcessor
    stats_data: StatsDataProcessor
    group_admin: GroupAdminProcessor
    connection_admin: ConnectionAdminProcessor
    offset_admin: OffsetAdminProcessor
    offset_clone: OffsetCloneProcessor
    offset_reset: OffsetResetProcessor
    relay: ConsumerRelayProcessor
    locks: QueueLockProcessor
    cleaning: CleaningProcessor
    broker_admin: BrokerAdminProcessor


Row = tuple[Sequence[Code], Processor, Tier]


def table(by: Processors, tiers: Tiers) -> list[Row]:
    """The processor table of the main port."""
    return [
        # sending
        ((Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE), by.send.send, tiers.send),
        ((Code.CONSUMER_SEND_MSG_BACK,), by.send_back.send_back, tiers.send),
        ((Code.RECALL_MESSAGE,), by.recall.recall, tiers.send),
        ((Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2), by.reply.reply, tiers.reply),
        # transactions
        ((Code.END_TRANSACTION,), by.transactions.end, tiers.transaction),
        ((Code.RESUME_CHECK_HALF_MESSAGE,), by.transactions.resume, tiers.admin),
        # messages that were popped
        ((Code.ACK_MESSAGE,), by.pops.ack.ack, tiers.ack),
        ((Code.BATCH_ACK_MESSAGE,), by.pops.ack.ack_batch, tiers.ack),
        ((Code.CHANGE_MESSAGE_INVISIBLETIME,), by.pops.change_invisible.change, tiers.ack),
        # clients and their groups
        ((Code.HEART_BEAT,), by.client.heartbeat, tiers.heartbeat),
        ((Code.UNREGISTER_CLIENT,), by.client.unregister, tiers.client_manager),
        ((Code.CHECK_CLIENT_CONFIG,), by.client.check_config, tiers.client_manager),
        ((Code.GET_CONSUMER_LIST_BY_GROUP,), by.client.list_consumers, tiers.consumer_manager),
        ((Code.QUERY_CONSUMER_OFFSET,), by.consumer_offset.query, tiers.consumer_manager),
        ((Code.UPDATE_CONSUMER_OFFSET,), by.consumer_offset.update, tiers.consumer_manager),
        ((Code.LOCK_BATCH_MQ,), by.locks.lock_batch, tiers.consumer_manager),
        ((Code.UNLOCK_BATCH_MQ,), by.locks.unlock_batch, tiers.consumer_manager),
        ((Code.QUERY_ASSIGNMENT,), by.pops.assignment.query, tiers.client_manager),
        ((Code.SET_MESSAGE_REQUEST_MODE,), by.pops.request_mode.set, tiers.admin),
        ((Code.GET_ALL_MESSAGE_REQUEST_MODE,), by.pops.request_mode.get_all, tiers.admin),
        # queues
        ((Code.GET_MAX_OFFSET,), by.queue_offset.max_offset, tiers.admin),
        ((Code.GET_MIN_OFFSET,), by.queue_offset.min_offset, tiers.admin),
        ((Code.SEARCH_OFFSET_BY_TIMESTAMP,), by.queue_offset.by_time, tiers.admin_reads),
        ((Code.GET_EARLIEST_MSG_STORETIME,), by.queue_offset.earliest_time, tiers.admin_reads),
        ((Code.QUERY_CONSUME_QUEUE,), by.queue_view.query, tiers.admin_reads),
        # messages by key and by place
        ((Code.QUERY_MESSAGE,), by.query.by_key, tiers.query),
        ((Code.VIEW_MESSAGE_BY_ID,), by.query.by_offset, tiers.query),
        # topics
        ((Code.UPDATE_AND_CREATE_TOPIC,), by.topic_admin.create, tiers.admin),
        ((Code.UPDATE_AND_CREATE_TOPIC_LIST,), by.topic_admin.create_all, tiers.admin),
        ((Code.DELETE_TOPIC_IN_BROKER,), by.topic_admin.delete, tiers.admin),
        ((Code.GET_TOPIC_CONFIG,), by.topic_admin.get, tiers.admin),
        ((Code.GET_ALL_TOPIC_CONFIG,), by.topic_admin.get_all, tiers.admin_reads),
        ((Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,), by.topic_admin.system_topics, tiers.admin),
        ((Code.GET_TOPIC_STATS_INFO,), by.topic_stats.get, tiers.admin_reads),
        # groups
        ((Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,), by.group_admin.update, tiers.admin),
        ((Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,), by.group_admin.update_all, tiers.admin),
        ((Code.DELETE_SUBSCRIPTIONGROUP,), by.group_admin.delete, tiers.admin),
        ((Code.GET_SUBSCRIPTIONGROUP_CONFIG,), by.group_admin.get, tiers.admin),
        ((Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,), by.group_admin.get_all, tiers.admin_reads),
        ((Code.UPDATE_AND_GET_GROUP_FORBIDDEN,), by.group_admin.forbid, tiers.admin),
        ((Code.GET_ALL_CONSUMER_OFFSET,), by.offset_admin.get_all, tiers.admin),
        ((Code.GET_ALL_DELAY_OFFSET,), by.delay_admin.get_all, tiers.admin),
        ((Code.GET_TIMER_CHECK_POINT,), by.timer_admin.check_point, tiers.admin),
        ((Code.GET_TIMER_METRICS,), by.timer_admin.counts, tiers.admin),
        ((Code.QUERY_CORRECTION_OFFSET,), by.offset_admin.correction, tiers.admin),
        ((Code.CLONE_GROUP_OFFSET,), by.offset_clone.clone, tiers.admin),
        ((Code.INVOKE_BROKER_TO_RESET_OFFSET,), by.offset_reset.reset, tiers.admin),
        ((Code.GET_CONSUME_STATS,), by.consume_stats.of_group, tiers.admin_reads),
        ((Code.QUERY_CONSUME_TIME_SPAN,), by.consume_stats.time_spans, tiers.admin_reads),
        ((Code.GET_BROKER_CONSUME_STATS,), by.consume_stats.of_all_groups, tiers.admin_reads),
        # who is connected
        ((Code.GET_CONSUMER_CONNECTION_LIST,), by.connection_admin.consumers_of_group, tiers.admin),
        ((Code.GET_PRODUCER_CONNECTION_LIST,), by.connection_admin.producers_of_group, tiers.admin),
        ((Code.GET_ALL_PRODUCER_INFO,), by.connection_admin.all_producers, tiers.admin),
        ((Code.QUERY_TOPIC_CONSUME_BY_WHO,), by.connection_admin.groups_of_topic, tiers.admin),
        ((Code.QUERY_TOPICS_BY_CONSUMER,), by.connection_admin.topics_of_group, tiers.admin),
        ((Code.QUERY_SUBSCRIPTION_BY_CONSUMER,), by.connection_admin.subscription, tiers.admin),
        # asked of a running consumer
        ((Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,), by.relay.status, tiers.admin),
        ((Code.GET_CONSUMER_RUNNING_INFO,), by.relay.running_info, tiers.admin),
        ((Code.CONSUME_MESSAGE_DIRECTLY,), by.relay.consume_directly, tiers.admin),
        # deleting what is old
        ((Code.CLEAN_EXPIRED_CONSUMEQUEUE,), by.cleaning.clean_expired_queues, tiers.admin),
        ((Code.CLEAN_UNUSED_TOPIC,), by.cleaning.clean_unused_topics, tiers.admin),
        ((Code.DELETE_EXPIRED_COMMITLOG,), by.cleaning.delete_expired_files, tiers.admin),
        # the broker itself
        ((Code.UPDATE_BROKER_CONFIG,), by.broker_admin.update_settings, tiers.admin),
        ((Code.GET_BROKER_CONFIG,), by.broker_admin.get_settings, tiers.admin),
        ((Code.GET_BROKER_RUNTIME_INFO,), by.broker_admin.get_runtime_info, tiers.admin_reads),
        ((Code.VIEW_BROKER_STATS_DATA,), by.stats_data.view, tiers.admin_reads),
    ]


def pull_rows(by: Processors, tiers: Tiers) -> list[Row]:
    """What only the main port answers: on the fast port a held pull would delay nobody but find nobody."""
    return [
        ((Code.PULL_MESSAGE,), by.pull.pull, tiers.pull),
        ((Code.LITE_PULL_MESSAGE,), by.pull.pull, tiers.lite_pull),
        ((Code.POP_MESSAGE,), by.pops.pop.pop, tiers.pull),
        ((Code.PEEK_MESSAGE,), by.pops.peek.peek, tiers.pull),
        ((Code.POLLING_INFO,), by.pops.pop.polling_info, tiers.pull),
        ((Code.NOTIFICATION,), by.pops.notification.notify, tiers.pull),
    ]


def register_all(dispatcher: Dispatcher, rows: Sequence[Row]) -> None:
    """Enter rows into a dispatcher."""
    for codes, processor, tier in rows:
        dispatcher.register(codes, processor, tier)
