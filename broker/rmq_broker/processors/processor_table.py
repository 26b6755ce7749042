"""The processor table: the processor and the tier of each request code, the whole protocol on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.dispatch import Dispatcher, Guard, Processor
from rmq_remoting.framing import MAX_FRAME_BYTES, MAX_REQUEST_BODY_BYTES
from rmq_remoting.tiers import Tier

from ..access.signed_times import TIMED_CODES

if TYPE_CHECKING:
    from rmq_remoting.daemon.access.guard import AccessGuard

    from ..access.replays import ReplayProtection
    from ..network.tiers import Tiers
    from .build import Processors

Row = tuple[Sequence[Code], Processor, Tier]

# Their bodies are messages, which `maxMessageSize` bounds.
_WITH_MESSAGES: Final = frozenset(
    {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
    }
)


@dataclass(frozen=True, slots=True)
class Dispatchers:
    """One dispatcher for each port; both run requests in the same tiers."""

    main: Dispatcher
    fast: Dispatcher


def build_dispatchers(
    processors: Processors, tiers: Tiers, guard: AccessGuard | None, replays: ReplayProtection | None
) -> Dispatchers:
    """Register the processors for their request codes.

    `guard` admits or refuses all requests; `replays` lets each signed send pass once.
    """
    rows = _table(processors, tiers)
    if replays is not None:
        rows = [
            (codes, replays.protect(processor) if codes[0] in TIMED_CODES else processor, tier)
            for codes, processor, tier in rows
        ]
    check = None if guard is None else guard.check
    main, fast = _dispatcher([*rows, *_pull_table(processors, tiers)], check), _dispatcher(rows, check)
    for dispatcher in (main, fast):
        dispatcher.answer_together(Code.ACK_MESSAGE, processors.pops.ack.ack_together)
    main.add_tier(tiers.pull_cold)  # without a code of its own: pulls pass their reads on to it
    return Dispatchers(main, fast)


def _table(by: Processors, tiers: Tiers) -> list[Row]:
    """The requests that both ports answer."""
    return [
        # sends
        ((Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE), by.sends.send.send, tiers.send),
        ((Code.CONSUMER_SEND_MSG_BACK,), by.sends.send_back.send_back, tiers.send),
        ((Code.RECALL_MESSAGE,), by.sends.recall.recall, tiers.send),
        ((Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2), by.sends.reply.reply, tiers.reply),
        # transactions
        ((Code.END_TRANSACTION,), by.sends.transactions.end, tiers.transaction),
        ((Code.RESUME_CHECK_HALF_MESSAGE,), by.sends.transactions.resume, tiers.admin),
        # popped messages
        ((Code.ACK_MESSAGE,), by.pops.ack.ack, tiers.ack),
        ((Code.BATCH_ACK_MESSAGE,), by.pops.ack.ack_batch, tiers.ack),
        ((Code.CHANGE_MESSAGE_INVISIBLETIME,), by.pops.change_invisible.change, tiers.ack),
        # clients and their groups
        ((Code.HEART_BEAT,), by.clients.client.heartbeat, tiers.heartbeat),
        ((Code.UNREGISTER_CLIENT,), by.clients.client.unregister, tiers.client_manager),
        ((Code.CHECK_CLIENT_CONFIG,), by.clients.client.check_config, tiers.client_manager),
        ((Code.GET_CONSUMER_LIST_BY_GROUP,), by.clients.client.list_consumers, tiers.consumer_manager),
        ((Code.QUERY_CONSUMER_OFFSET,), by.clients.offsets.query, tiers.consumer_manager),
        ((Code.UPDATE_CONSUMER_OFFSET,), by.clients.offsets.update, tiers.consumer_manager),
        ((Code.LOCK_BATCH_MQ,), by.clients.locks.lock_batch, tiers.consumer_manager),
        ((Code.UNLOCK_BATCH_MQ,), by.clients.locks.unlock_batch, tiers.consumer_manager),
        ((Code.QUERY_ASSIGNMENT,), by.pops.assignment.query, tiers.client_manager),
        ((Code.SET_MESSAGE_REQUEST_MODE,), by.pops.request_mode.set, tiers.admin),
        ((Code.GET_ALL_MESSAGE_REQUEST_MODE,), by.pops.request_mode.get_all, tiers.admin),
        # queues
        ((Code.GET_MAX_OFFSET,), by.clients.offsets.max_offset, tiers.admin),
        ((Code.GET_MIN_OFFSET,), by.clients.offsets.min_offset, tiers.admin),
        ((Code.SEARCH_OFFSET_BY_TIMESTAMP,), by.clients.offsets.by_time, tiers.admin_reads),
        ((Code.GET_EARLIEST_MSG_STORETIME,), by.clients.offsets.earliest_time, tiers.admin_reads),
        ((Code.QUERY_CONSUME_QUEUE,), by.admin.topics.queue_view.query, tiers.admin_reads),
        # messages by key and by offset
        ((Code.QUERY_MESSAGE,), by.clients.query.by_key, tiers.query),
        ((Code.VIEW_MESSAGE_BY_ID,), by.clients.query.by_offset, tiers.query),
        # topics
        ((Code.UPDATE_AND_CREATE_TOPIC,), by.admin.topics.topics.create, tiers.admin),
        ((Code.UPDATE_AND_CREATE_TOPIC_LIST,), by.admin.topics.topics.create_all, tiers.admin),
        ((Code.UPDATE_AND_CREATE_STATIC_TOPIC,), by.admin.topics.topics.create_static, tiers.admin),
        ((Code.DELETE_TOPIC_IN_BROKER,), by.admin.topics.topics.delete, tiers.admin),
        ((Code.GET_TOPIC_CONFIG,), by.admin.topics.topics.get, tiers.admin),
        ((Code.GET_ALL_TOPIC_CONFIG,), by.admin.topics.topics.get_all, tiers.admin_reads),
        ((Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,), by.admin.topics.topics.system_topics, tiers.admin),
        ((Code.GET_TOPIC_STATS_INFO,), by.admin.topics.stats.get, tiers.admin_reads),
        # groups
        ((Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,), by.admin.groups.groups.update, tiers.admin),
        ((Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,), by.admin.groups.groups.update_all, tiers.admin),
        ((Code.DELETE_SUBSCRIPTIONGROUP,), by.admin.groups.groups.delete, tiers.admin),
        ((Code.GET_SUBSCRIPTIONGROUP_CONFIG,), by.admin.groups.groups.get, tiers.admin),
        ((Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,), by.admin.groups.groups.get_all, tiers.admin_reads),
        ((Code.UPDATE_AND_GET_GROUP_FORBIDDEN,), by.admin.groups.groups.forbid, tiers.admin),
        ((Code.GET_ALL_CONSUMER_OFFSET,), by.admin.groups.offsets.get_all, tiers.admin),
        ((Code.GET_ALL_DELAY_OFFSET,), by.admin.delays.get_all, tiers.admin),
        ((Code.GET_TIMER_CHECK_POINT,), by.admin.timers.check_point, tiers.admin),
        ((Code.GET_TIMER_METRICS,), by.admin.timers.counts, tiers.admin),
        ((Code.QUERY_CORRECTION_OFFSET,), by.admin.groups.offsets.correction, tiers.admin_reads),
        ((Code.CLONE_GROUP_OFFSET,), by.admin.groups.offset_clone.clone, tiers.admin),
        ((Code.INVOKE_BROKER_TO_RESET_OFFSET,), by.admin.groups.offset_reset.reset, tiers.admin),
        ((Code.GET_CONSUME_STATS,), by.admin.groups.consume_stats.of_group, tiers.admin_reads),
        ((Code.QUERY_CONSUME_TIME_SPAN,), by.admin.groups.consume_stats.time_spans, tiers.admin_reads),
        ((Code.GET_BROKER_CONSUME_STATS,), by.admin.groups.consume_stats.of_all_groups, tiers.admin_reads),
        # connected clients
        ((Code.GET_CONSUMER_CONNECTION_LIST,), by.admin.groups.connections.consumers_of_group, tiers.admin),
        ((Code.GET_PRODUCER_CONNECTION_LIST,), by.admin.groups.connections.producers_of_group, tiers.admin),
        ((Code.GET_ALL_PRODUCER_INFO,), by.admin.groups.connections.all_producers, tiers.admin),
        ((Code.QUERY_TOPIC_CONSUME_BY_WHO,), by.admin.groups.connections.groups_of_topic, tiers.admin),
        ((Code.QUERY_TOPICS_BY_CONSUMER,), by.admin.groups.connections.topics_of_group, tiers.admin),
        ((Code.QUERY_SUBSCRIPTION_BY_CONSUMER,), by.admin.groups.connections.subscription, tiers.admin),
        # passed on to a running consumer
        ((Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,), by.admin.groups.relay.status, tiers.admin),
        ((Code.GET_CONSUMER_RUNNING_INFO,), by.admin.groups.relay.running_info, tiers.admin),
        ((Code.CONSUME_MESSAGE_DIRECTLY,), by.admin.groups.relay.consume_directly, tiers.admin),
        # deletion of expired files and unused topics
        ((Code.CLEAN_EXPIRED_CONSUMEQUEUE,), by.admin.topics.cleaning.clean_expired_queues, tiers.admin),
        ((Code.CLEAN_UNUSED_TOPIC,), by.admin.topics.cleaning.clean_unused_topics, tiers.admin),
        ((Code.DELETE_EXPIRED_COMMITLOG,), by.admin.topics.cleaning.delete_expired_files, tiers.admin),
        # users and their rules
        ((Code.AUTH_CREATE_USER,), by.admin.users.create, tiers.admin),
        ((Code.AUTH_UPDATE_USER,), by.admin.users.update, tiers.admin),
        ((Code.AUTH_DELETE_USER,), by.admin.users.delete, tiers.admin),
        ((Code.AUTH_GET_USER,), by.admin.users.get, tiers.admin),
        ((Code.AUTH_LIST_USER,), by.admin.users.list, tiers.admin),
        ((Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL), by.admin.acls.set, tiers.admin),
        ((Code.AUTH_DELETE_ACL,), by.admin.acls.delete, tiers.admin),
        ((Code.AUTH_GET_ACL,), by.admin.acls.get, tiers.admin),
        ((Code.AUTH_LIST_ACL,), by.admin.acls.list, tiers.admin),
        # the broker itself
        ((Code.UPDATE_BROKER_CONFIG,), by.admin.broker.update_settings, tiers.admin),
        ((Code.GET_BROKER_CONFIG,), by.admin.broker.get_settings, tiers.admin),
        ((Code.GET_BROKER_RUNTIME_INFO,), by.admin.broker.get_runtime_info, tiers.admin_reads),
        ((Code.VIEW_BROKER_STATS_DATA,), by.admin.stats_data.view, tiers.admin_reads),
        ((Code.POP_ROLLBACK,), by.admin.pop_records.export, tiers.admin),
        # flow control of cold reads
        ((Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,), by.admin.cold_data.set_thresholds, tiers.admin),
        ((Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,), by.admin.cold_data.remove_threshold, tiers.admin),
        ((Code.GET_COLD_DATA_FLOW_CTR_INFO,), by.admin.cold_data.info, tiers.admin),
        ((Code.SET_COMMITLOG_READ_MODE,), by.admin.cold_data.set_read_ahead, tiers.admin),
        # replication
        ((Code.NOTIFY_MIN_BROKER_ID_CHANGE,), by.admin.replication.smallest_id_changed, tiers.admin),
        ((Code.EXCHANGE_BROKER_HA_INFO,), by.admin.replication.exchange, tiers.admin),
        ((Code.GET_BROKER_HA_STATUS,), by.admin.replication.status, tiers.admin),
        ((Code.RESET_MASTER_FLUSH_OFFSET,), by.admin.replication.reset_master_flush_offset, tiers.admin),
        ((Code.GET_BROKER_EPOCH_CACHE,), by.admin.replication.epochs, tiers.admin),
        ((Code.NOTIFY_BROKER_ROLE_CHANGED,), by.admin.replication.role_changed, tiers.admin),
    ]


def _pull_table(by: Processors, tiers: Tiers) -> list[Row]:
    """Requests that may be held: for the main port alone, since clients use the fast port for short ones."""
    return [
        ((Code.PULL_MESSAGE,), by.pull.pull, tiers.pull),
        ((Code.LITE_PULL_MESSAGE,), by.pull.pull, tiers.lite_pull),
        ((Code.POP_MESSAGE,), by.pops.pop.pop, tiers.pull),
        ((Code.PEEK_MESSAGE,), by.pops.peek.peek, tiers.pull),
        ((Code.POLLING_INFO,), by.pops.pop.polling_info, tiers.pull),
        ((Code.NOTIFICATION,), by.pops.notification.notify, tiers.pull),
    ]


def _dispatcher(rows: Sequence[Row], guard: Guard | None) -> Dispatcher:
    dispatcher = Dispatcher(guard=guard)
    for codes, processor, tier in rows:
        most = MAX_FRAME_BYTES if codes[0] in _WITH_MESSAGES else MAX_REQUEST_BODY_BYTES
        dispatcher.register(codes, processor, tier, max_body_bytes=most)
    return dispatcher
