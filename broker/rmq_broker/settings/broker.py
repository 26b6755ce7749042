"""The broker's settings: Apache RocketMQ 5.3.3's keys and defaults.

(BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, and what BrokerStartup makes of
them.) A part of the broker takes the group that it needs, not the whole.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from rmq_remoting.daemon.common_settings import (
    DaemonSettings,
    MetricsSettings,
    ServerSettings,
)
from rmq_remoting.daemon.known_keys import NETWORK_TABLE, KnownKey, read_known_keys
from rmq_remoting.daemon.settings import (
    ByteCount,
    Count,
    JavaBoolean,
    JavaInt,
    JavaLong,
    JavaString,
    Milliseconds,
    MillisecondsOrZero,
    Percent,
    Port,
    Seconds,
    SettingsGroup,
    ThreadCount,
    Unacceptable,
    live,
    setting,
)
from rmq_remoting.host import host_name, local_address

from ..store.api import PullSettings, QuerySettings, StoreSettings
from .unsupported import UNSUPPORTED

_TABLE = Path(__file__).with_name("apache_settings.tsv")


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that Apache's broker knows."""
    return read_known_keys(_TABLE, NETWORK_TABLE)


class BrokerRole(enum.StrEnum):
    """A broker's place in its group (Apache RocketMQ 5.3.3, BrokerRole)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _check_addresses(value: str) -> str:
    for address in filter(None, (part.strip() for part in value.split(";"))):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Unacceptable(f"host:port, or several separated by semicolons; {address!r} is not one")
    return value


AddressList = Annotated[JavaString, AfterValidator(_check_addresses)]


class IdentitySettings(SettingsGroup):
    """Identity"""

    broker_cluster_name: JavaString = setting(
        "DefaultCluster", "brokerClusterName", "Cluster that the broker belongs to."
    )
    broker_name: JavaString = setting(
        key="brokerName",
        meaning="Name of the broker; a master and its slaves share it.",
        default_factory=host_name,
        default_text="<host name>",
    )
    broker_id: JavaLong = setting(0, "brokerId", "0 for the master, above 0 for a slave.", minimum=0)
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "brokerRole",
        "The broker's role in its replica group; only ASYNC_MASTER is supported.",
    )

    def settle(self) -> list[str]:
        """A master's id is 0, whatever was set (Apache RocketMQ 5.3.3, BrokerStartup)."""
        notes = super().settle()
        if self.broker_id != 0:
            notes.append(f"brokerId={self.broker_id} is ignored: a master's id is 0")
            self.broker_id = 0
        return notes


class RegistrationSettings(SettingsGroup):
    """Addresses and name servers"""

    namesrv_addr: AddressList = setting(
        key="namesrvAddr",
        meaning="Name servers to register with, host:port, separated by semicolons.",
        default_factory=lambda: os.environ.get("NAMESRV_ADDR", ""),
        default_text="${NAMESRV_ADDR}",
    )
    broker_ip1: JavaString = setting(
        key="brokerIP1",
        meaning="Address that clients are told to connect to. Set it where that is not the "
        "broker's own: in a container with published ports, behind address translation.",
        default_factory=local_address,
        default_text="<address of the interface that leads outside>",
    )
    broker_ip2: JavaString = setting(
        key="brokerIP2",
        meaning="Address for slaves to connect to; no effect while replication is not supported.",
        default_factory=local_address,
        default_text="<address of the interface that leads outside>",
    )
    register_name_server_period_ms: Milliseconds = live(
        30_000,
        "registerNameServerPeriod",
        "How often the broker registers; taken as 10000 at least and 60000 at most.",
    )
    register_broker_timeout_ms: Milliseconds = live(
        24_000, "registerBrokerTimeoutMills", "How long a name server may take to answer a registration."
    )
    force_register: JavaBoolean = live(
        True,
        "forceRegister",
        "Register every time; otherwise only with name servers that do not have the newest topics.",
    )
    compressed_register: JavaBoolean = live(False, "compressedRegister", "Compress the registration's body.")
    enable_single_topic_register: JavaBoolean = live(
        False, "enableSingleTopicRegister", "Tell name servers of a new topic by itself."
    )
    enable_split_registration: JavaBoolean = live(
        False,
        "enableSplitRegistration",
        "Register in parts. Not together with deleteTopicWithBrokerRegistration of the name server.",
    )
    split_registration_size: Count = live(800, "splitRegistrationSize", "Topics of one part.")
    enable_slave_acting_master: JavaBoolean = setting(
        False,
        "enableSlaveActingMaster",
        "Send heartbeats as well: a dead broker is found out sooner.",
    )
    broker_heartbeat_interval_ms: Milliseconds = setting(
        1000, "brokerHeartbeatInterval", "How often such a heartbeat is sent."
    )
    broker_not_active_timeout_ms: Milliseconds = setting(
        10_000,
        "brokerNotActiveTimeoutMillis",
        "How long name servers wait for such a heartbeat before they drop the broker.",
    )
    compatible_with_old_name_srv: JavaBoolean = live(
        True, "compatibleWithOldNameSrv", "Send them in the form that name servers before 5.0 know, too."
    )
    ready_wait_ms: MillisecondsOrZero = setting(
        3000,
        "readyWaitMillis",
        "How long a start waits for the first registration before it goes on without one.",
        ours=True,
    )

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers, each as host:port."""
        return [part.strip() for part in self.namesrv_addr.split(";") if part.strip()]

    @property
    def registration_period_ms(self) -> int:
        """The period in force (BrokerController takes it into these bounds)."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000))

    def settle(self) -> list[str]:
        """Notes an address that only this machine can reach."""
        notes = super().settle()
        if self.broker_ip1 == "127.0.0.1" and "broker_ip1" not in self.model_fields_set:
            notes.append("no network found: brokerIP1=127.0.0.1, clients on other machines cannot connect")
        return notes


class TopicSettings(SettingsGroup):
    """Topics and groups"""

    auto_create_topic_enable: JavaBoolean = live(
        True, "autoCreateTopicEnable", "A send to an unknown topic creates it."
    )
    default_topic_queue_nums: Count = setting(
        8, "defaultTopicQueueNums", "Queues of a topic created so, at most."
    )
    auto_create_subscription_group: JavaBoolean = live(
        True, "autoCreateSubscriptionGroup", "An unknown consumer group is created."
    )
    cluster_topic_enable: JavaBoolean = setting(
        True, "clusterTopicEnable", "The topic named after the cluster takes messages."
    )
    broker_topic_enable: JavaBoolean = setting(
        True, "brokerTopicEnable", "The topic named after the broker takes messages."
    )
    broker_permission: JavaInt = live(
        6,
        "brokerPermission",
        "What the whole broker allows: 6 reading and writing, 4 reading, 2 writing.",
        minimum=0,
        maximum=7,
    )
    validate_system_topic_when_update_topic: JavaBoolean = live(
        True, "validateSystemTopicWhenUpdateTopic", "Administration cannot change system topics."
    )
    enable_mixed_message_type: JavaBoolean = live(
        False, "enableMixedMessageType", "Topics may be for messages of all types (`message.type=MIXED`)."
    )
    clear_retry_topic_when_delete_topic: JavaBoolean = live(
        True, "clearRetryTopicWhenDeleteTopic", "Deleting a topic deletes its retry topics."
    )
    trace_topic_enable: JavaBoolean = setting(
        False, "traceTopicEnable", "Create the topic for message traces at start."
    )
    msg_trace_topic_name: JavaString = setting("RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName", "Its name.")
    notify_consumer_ids_changed_enable: JavaBoolean = live(
        True,
        "notifyConsumerIdsChangedEnable",
        "Tell the consumers of a group at once when its members change.",
    )
    channel_expired_timeout_ms: Milliseconds = setting(
        120_000, "channelExpiredTimeout", "A client without a heartbeat for so long is forgotten."
    )
    rebalance_lock_max_live_time_ms: Milliseconds = setting(
        60_000,
        "rebalanceLockMaxLiveTime",
        "The lock of a consumer in order that does not renew it ends after so long. Consumers rely on it for "
        "30 s, and renew it every 20 s: with less, two can have a queue. (Apache: a system property.)",
        minimum=1_000,
        ours=True,
    )
    flush_consumer_offset_interval_ms: Milliseconds = live(
        5000, "flushConsumerOffsetInterval", "How often consumer offsets are written to disk."
    )
    enable_broadcast_offset_store: JavaBoolean = live(
        True,
        "enableBroadcastOffsetStore",
        "Note where members of broadcasting groups are, for those that come with and without a proxy.",
    )
    broadcast_offset_expire_second: JavaLong = live(
        120,
        "broadcastOffsetExpireSecond",
        "Such a member is forgotten when it is not connected and has not pulled for so long.",
        unit="s",
        minimum=1,
    )
    broadcast_offset_expire_max_second: JavaLong = live(
        300,
        "broadcastOffsetExpireMaxSecond",
        "The same for one that is connected.",
        unit="s",
        minimum=1,
    )
    use_server_side_reset_offset: JavaBoolean = live(
        True,
        "useServerSideResetOffset",
        "A reset of offsets is done by the broker, and consumers learn of it with their next pull; off: the "
        "consumers that are connected are told to do it.",
    )


class SendSettings(SettingsGroup):
    """Sending"""

    region_id: JavaString = live("DefaultRegion", "regionId", "Region that responses and traces name.")
    trace_on: JavaBoolean = live(True, "traceOn", "Tell clients that messages may be traced.")
    store_reply_message_enable: JavaBoolean = live(
        True, "storeReplyMessageEnable", "Replies are stored in the cluster's reply topic besides."
    )
    message_type_check: JavaBoolean = live(
        False,
        "messageTypeCheck",
        "Refuse messages that are of another type than their topic's attribute `message.type` says; a topic "
        "without it is for NORMAL messages. (Apache: its proxy does.)",
        ours=True,
    )
    start_accept_send_request_timestamp_ms: JavaLong = live(
        0,
        "startAcceptSendRequestTimeStamp",
        "Time since 1970 before which sends are refused.",
        unit="ms",
        minimum=0,
    )


class MessageRequestModeSetting(enum.StrEnum):
    """How consumers get messages (Apache RocketMQ 5.3.3, MessageRequestMode)."""

    PULL = "PULL"
    POP = "POP"


class PopSettings(SettingsGroup):
    """POP"""

    enable_retry_topic_v2: JavaBoolean = live(
        False,
        "enableRetryTopicV2",
        "Messages come back into `%RETRY%GROUP+TOPIC`, not into `%RETRY%GROUP_TOPIC`.",
    )
    retrieve_from_retry_topic_v1: JavaBoolean = live(
        True,
        "retrieveMessageFromPopRetryTopicV1",
        "With `enableRetryTopicV2`: go on reading the retry topics with `_`, too.",
    )
    pop_from_retry_probability: Percent = live(
        20,
        "popFromRetryProbability",
        "Share of pops that look into the retry topic first; the others do where they are not full yet.",
    )
    pop_response_returns_retry_topic: JavaBoolean = live(
        False,
        "popResponseReturnActualRetryTopic",
        "Give messages of a retry topic as they are, not under the topic that they came from.",
    )
    init_pop_offset_by_check_msg_in_mem: JavaBoolean = live(
        True,
        "initPopOffsetByCheckMsgInMem",
        "A new group that asks for the newest gets all of a queue whose first message is still in memory.",
    )
    pop_ck_max_buffer_size: Count = live(
        200_000,
        "popCkMaxBufferSize",
        "Pops whose messages are in consumers' hands, at most; each takes some 620 bytes of memory.",
        unit="pops",
    )
    enable_pop_message_threshold: JavaBoolean = live(
        False, "enablePopMessageThreshold", "Bound what a group has in its hands of one queue."
    )
    pop_inflight_message_threshold: Count = live(
        10_000, "popInflightMessageThreshold", "To how much.", unit="messages"
    )
    max_pop_polling_size: Count = live(100_000, "maxPopPollingSize", "Pops that wait for messages, at most.")
    pop_polling_size: Count = live(
        1024, "popPollingSize", "Pops that wait for the same queue (or any) of a topic, at most."
    )
    pop_polling_map_size: Count = live(
        100_000, "popPollingMapSize", "Topics, groups and queues that pops wait for, at most."
    )
    revive_queue_nums: Count = setting(
        8,
        "reviveQueueNum",
        "Queues of the revive topic; check points are spread over them for Apache's broker.",
    )
    server_load_balancer_enable: JavaBoolean = live(
        True,
        "serverLoadBalancerEnable",
        "Divide queues among the consumers that ask the broker for theirs; otherwise all get all.",
    )
    default_message_request_mode: MessageRequestModeSetting = live(
        MessageRequestModeSetting.PULL,
        "defaultMessageRequestMode",
        "How groups get messages that ask the broker and were told nothing else (setConsumeMode).",
    )
    default_pop_share_queue_num: JavaInt = live(
        -1,
        "defaultPopShareQueueNum",
        "In how many more POP consumers' hands a queue is by default; 0 and less: all consumers'.",
    )
    load_balance_poll_name_server_interval_ms: Milliseconds = live(
        30_000,
        "loadBalancePollNameServerInterval",
        "How old the route may be by which queues are divided.",
    )


class TransactionSettings(SettingsGroup):
    """Transactions"""

    transaction_timeout_ms: Milliseconds = live(
        6000, "transactionTimeOut", "For how long a transaction is left alone before its producers are asked."
    )
    transaction_check_interval_ms: Milliseconds = live(
        30_000, "transactionCheckInterval", "How often producers are asked about those that take longer."
    )
    transaction_check_max: Count = live(
        15,
        "transactionCheckMax",
        "How often they are asked about one before it is given up, into `TRANS_CHECK_MAX_TIME_TOPIC`.",
    )
    reject_transaction_message: JavaBoolean = live(
        False, "rejectTransactionMessage", "Refuse messages that are sent in transactions."
    )
    transaction_pending_max: Count = live(
        300_000,
        "transactionPendingMax",
        "Transactions that have not ended, at most; each takes a third of a kilobyte of memory.",
        ours=True,
    )
    transaction_op_message_max_bytes: Count = live(
        4096,
        "transactionOpMsgMaxSize",
        "Ended transactions are noted together; at this size at once.",
        unit="bytes",
    )
    transaction_op_batch_interval_ms: Milliseconds = live(
        100,
        "transactionOpBatchInterval",
        "After this time at the latest; a killed broker asks again about those that it has not noted.",
    )
    transaction_metric_flush_interval_ms: Milliseconds = live(
        3000, "transactionMetricFlushInterval", "How often `config/transactionMetrics` is written."
    )


class TimerSettings(SettingsGroup):
    """Timed messages"""

    timer_wheel_enable: JavaBoolean = live(
        True, "timerWheelEnable", "Take messages that are to come at a time; those that wait come anyway."
    )
    timer_max_delay_seconds: Seconds = live(
        259_200,
        "timerMaxDelaySec",
        "How far ahead the time of a message may be; and the longest invisible time of popped messages.",
    )
    timer_precision_ms: JavaInt = setting(
        1000,
        "timerPrecisionMs",
        "Messages come at the end of the span of this length that they are due in; never too early.",
        unit="ms",
        minimum=10,
        maximum=60_000,
    )
    timer_roll_window_slots: JavaInt = setting(
        172_800,
        "timerRollWindowSlot",
        "A message that is further ahead than this is written to the log again when it comes nearer, so that "
        "it is not deleted with old files; outside of 2 to 604740 it is 604740.",
        unit="times timerPrecisionMs",
    )
    timer_congest_num_each_slot: Count = live(
        2**31 - 1,
        "timerCongestNumEachSlot",
        "So many messages may be due within timerPrecisionMs; above that some are refused, at twice as many "
        "all.",
        unit="messages",
    )
    timer_log_file_bytes: ByteCount = setting(
        100 * 1024 * 1024,
        "mappedFileSizeTimerLog",
        "Size of one file of timerlog; where there are files already, theirs.",
        minimum=4096,
    )
    timer_flush_interval_ms: Milliseconds = live(
        1000, "timerFlushIntervalMs", "How often it is written to disk which messages wait."
    )
    timer_stop_enqueue: JavaBoolean = live(
        False, "timerStopEnqueue", "Leave what is sent with a time in its queue for now."
    )
    timer_stop_dequeue: JavaBoolean = live(
        False, "timerStopDequeue", "Deliver nothing of what waits for its time for now."
    )
    recall_message_enable: JavaBoolean = live(
        False, "recallMessageEnable", "Messages that wait for their time can be taken back."
    )
    allow_recall_when_broker_not_writeable: JavaBoolean = live(
        True,
        "allowRecallWhenBrokerNotWriteable",
        "Also where brokerPermission does not allow writing.",
    )


class FilterSettings(SettingsGroup):
    """Filters

    Filtering by properties; filters.md says more about it.
    """

    enable_property_filter: JavaBoolean = live(
        False,
        "enablePropertyFilter",
        "Consumers that pull may filter messages by their properties, with SQL92; those that pop may anyway.",
    )
    filter_lenient: JavaBoolean = live(
        False,
        "filterLenient",
        "Take an SQL92 expression as far as it is understood and ignore what follows, as Apache's broker "
        "does, instead of refusing it.",
        ours=True,
    )
    filter_support_retry: JavaBoolean = live(
        False,
        "filterSupportRetry",
        "Messages that come again pass through the group's filter once more: the one of the topic that they "
        "came from, as it is by then.",
    )
    filter_data_clean_time_span_ms: Milliseconds = live(
        24 * 3600 * 1000,
        "filterDataCleanTimeSpan",
        "How long a filter is remembered that nobody is subscribed with any more.",
    )
    enable_calc_filter_bit_map: JavaBoolean = live(
        False,
        "enableCalcFilterBitMap",
        "Note with each message whose filters take it (with enableConsumeQueueExt): old messages that do not "
        "match need not be read from the disk then.",
    )
    max_error_rate_of_bloom_filter: JavaInt = setting(
        20,
        "maxErrorRateOfBloomFilter",
        "How many of 100 bit maps may seem to have a filter in them that they do not have.",
        unit="percent",
        minimum=1,
        maximum=99,
    )
    expect_consumer_num: JavaInt = setting(
        32,
        "expectConsumerNumUseFilter",
        "Filters of one topic that bit maps are made for.",
        minimum=1,
        maximum=10_000,
    )


class TierSettings(SettingsGroup):
    """Tiers of work

    How many requests may wait in a tier and for how long; more or longer is answered SYSTEM_BUSY.
    """

    broker_fast_failure_enable: JavaBoolean = setting(
        True, "brokerFastFailureEnable", "Refuse requests that have waited too long."
    )
    send_queue_capacity: Count = setting(10_000, "sendThreadPoolQueueCapacity", "Waiting sends.")
    send_max_wait_ms: Milliseconds = setting(200, "waitTimeMillsInSendQueue", "Longest wait of a send.")
    reply_queue_capacity: Count = setting(
        10_000, "replyThreadPoolQueueCapacity", "Replies that wait for their requesters."
    )
    pull_queue_capacity: Count = setting(100_000, "pullThreadPoolQueueCapacity", "Waiting pulls.")
    pull_max_wait_ms: Milliseconds = setting(5000, "waitTimeMillsInPullQueue", "Longest wait of a pull.")
    lite_pull_queue_capacity: Count = setting(
        100_000, "litePullThreadPoolQueueCapacity", "Waiting lite pulls."
    )
    lite_pull_max_wait_ms: Milliseconds = setting(
        5000, "waitTimeMillsInLitePullQueue", "Longest wait of a lite pull."
    )
    pull_cold_threads: ThreadCount = setting(
        4,
        "pullColdThreadPoolNums",
        "Threads for pulls of messages that have to be read from the disk.",
        ours=True,
    )
    pull_cold_queue_capacity: Count = setting(
        10_000, "pullColdThreadPoolQueueCapacity", "Such pulls that wait for a thread.", ours=True
    )
    ack_queue_capacity: Count = setting(
        100_000, "ackThreadPoolQueueCapacity", "Waiting acknowledgements of popped messages."
    )
    ack_max_wait_ms: Milliseconds = setting(
        3000, "waitTimeMillsInAckQueue", "Longest wait of an acknowledgement."
    )
    transaction_queue_capacity: Count = setting(
        100_000, "endTransactionPoolQueueCapacity", "Waiting ends of transactions."
    )
    transaction_max_wait_ms: Milliseconds = setting(
        3000, "waitTimeMillsInTransactionQueue", "Longest wait of the end of a transaction."
    )
    heartbeat_queue_capacity: Count = setting(
        50_000, "heartbeatThreadPoolQueueCapacity", "Waiting heartbeats."
    )
    heartbeat_max_wait_ms: Milliseconds = setting(
        31_000, "waitTimeMillsInHeartbeatQueue", "Longest wait of a heartbeat."
    )
    client_manager_queue_capacity: Count = setting(
        1_000_000, "clientManagerThreadPoolQueueCapacity", "Waiting requests of clients about themselves."
    )
    consumer_manager_queue_capacity: Count = setting(
        1_000_000, "consumerManagerThreadPoolQueueCapacity", "Waiting requests about groups and offsets."
    )
    query_threads: ThreadCount = setting(
        key="queryMessageThreadPoolNums",
        meaning="Threads for looking messages up.",
        default_factory=lambda: 8 + (os.cpu_count() or 1),
        default_text="8 + cpus",
    )
    query_queue_capacity: Count = setting(
        20_000, "queryThreadPoolQueueCapacity", "Waiting queries; they may wait as long as they like."
    )
    admin_threads: ThreadCount = setting(16, "adminBrokerThreadPoolNums", "Threads for administration.")
    admin_queue_capacity: Count = setting(
        10_000, "adminBrokerThreadPoolQueueCapacity", "Waiting administration."
    )
    admin_max_wait_ms: Milliseconds = setting(
        5000, "waitTimeMillsInAdminBrokerQueue", "Longest wait of administration."
    )


class BrokerSettings(
    IdentitySettings,
    RegistrationSettings,
    TopicSettings,
    SendSettings,
    PopSettings,
    TransactionSettings,
    TimerSettings,
    PullSettings,
    QuerySettings,
    StoreSettings,
    FilterSettings,
    TierSettings,
    ServerSettings,
    MetricsSettings,
    DaemonSettings,
):
    """The broker"""

    unsupported: ClassVar = UNSUPPORTED

    listen_port: Port = setting(10911, "listenPort", "Port that clients connect to; 0: any free port.")
    fast_listen_port: JavaInt = setting(
        -1,
        "fastListenPort",
        "Second port for clients' sends; -1: listenPort - 2, where clients look for it; 0: any free port.",
        minimum=-1,
        maximum=65535,
        ours=True,
    )
    ha_listen_port: JavaInt = setting(
        0,
        "haListenPort",
        "Port for slaves to connect to; 0: listenPort + 1. No effect while replication is not supported.",
        minimum=0,
        maximum=65535,
    )
    config_black_list: JavaString = setting(
        "configBlackList;brokerConfigPath",
        "configBlackList",
        "Keys that nobody can change over the network, separated by semicolons.",
    )

    @property
    def protected_keys(self) -> frozenset[str]:
        """Keys that nobody can change over the network, those that never can included."""
        return super().protected_keys | {"brokerConfigPath"}

    def settle(self) -> list[str]:
        """Ports that follow from the listen port (BrokerStartup, BrokerController)."""
        if self.ha_listen_port == 0 and self.listen_port:
            self.ha_listen_port = self.listen_port + 1
        if self.fast_listen_port < 0:
            self.fast_listen_port = max(self.listen_port - 2, 0)
        return super().settle()
