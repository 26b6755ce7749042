"""The RocketMQ SDK for Python: asyncio first, `rmq_client.blocking` for programs without an event loop.

A name is imported at its first use (PEP 562), so that a program loads what it needs and no more.

The SDK logs to loggers that are named by module, below `rmq_client`. Without a configuration of `logging` it
prints nothing.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rmq_remoting.command import Serialization
    from rmq_remoting.compression import CompressionType
    from rmq_remoting.connection import ConnectionSettings
    from rmq_remoting.message import Message, MessageExt
    from rmq_remoting.message_errors import InvalidPropertyError, MessageEncodeError
    from rmq_remoting.message_queue import MessageQueue

    from .admin import Admin
    from .admin.broker_results import (
        BrokerEpochs,
        BrokerRuntime,
        ColdReads,
        ControllerState,
        GroupColdReads,
        GroupMember,
        InSyncSet,
        LogEpoch,
        QueueEntries,
        QueueEntry,
        RequestQueue,
    )
    from .admin.dead_letters import origin_topic
    from .admin.results import (
        AccessRule,
        BrokerAddresses,
        ClientConnection,
        ClusterInfo,
        ConsumeRates,
        ConsumerState,
        Delivery,
        Figure,
        Figures,
        GroupConnections,
        GroupLag,
        GroupSettings,
        MessageTrack,
        OffsetChange,
        QueueLag,
        QueueOffsets,
        QueueSlice,
        QueueTimes,
        ReplicaState,
        ReplicationStatus,
        TopicSettings,
        TrackStatus,
        User,
        UserRules,
    )
    from .admin.static_results import LogicalQueue, QueueMove, QueuePart, StaticTopic
    from .bodies.encoding import decode_body
    from .bodies.serializers import (
        BytesSerializer,
        JsonSerializer,
        PydanticSerializer,
        Serializer,
        StrSerializer,
    )
    from .checks import Seconds
    from .consumer.deduplication.deduplicator import DeduplicatedListener, Deduplicator
    from .consumer.deduplication.keys import DeduplicationKey
    from .consumer.deduplication.store import ClaimResult, DeduplicationStore, MemoryDeduplicationStore
    from .consumer.flow_control import FlowControl
    from .consumer.offsets.lag import ConsumerLag, ConsumerQueueLag
    from .consumer.offsets.start_position import ConsumeFrom
    from .consumer.pop.settings import PopSettings
    from .consumer.processing.body_listener import body_listener
    from .consumer.processing.listener import (
        ConsumeContext,
        ConsumeResult,
        Listener,
        ListenerOutcome,
        OrderlyContext,
    )
    from .consumer.processing.statistics import TopicStatistics
    from .consumer.pull.pull_consumer import PullConsumer
    from .consumer.pull.queue_listeners import QueuesListener
    from .consumer.push.obstacles import ErrorListener
    from .consumer.push.push_consumer import PushConsumer
    from .consumer.rebalancing.allocation import (
        Allocation,
        averagely,
        by_circle,
        by_configuration,
        by_consistent_hash,
        by_machine_room,
        nearby,
    )
    from .consumer.rebalancing.rebalance_listener import RebalanceListener
    from .consumer.rebalancing.share_changes import ShareChange, ShareListener
    from .consumer.requests.pull_client import PullResult, PullSettings
    from .consumer.simple.simple_consumer import SimpleConsumer
    from .consumer.subscription import Sql, Topics
    from .consumer.timing import ConsumerTiming
    from .credentials import Credentials
    from .errors import (
        AlreadyExists,
        BrokerError,
        BrokerUnreachable,
        Busy,
        ClientError,
        GroupNotFound,
        InvalidArgumentError,
        NameServerUnreachable,
        NoQueue,
        NoReply,
        NotAuthenticated,
        NotAuthorized,
        NotFound,
        NotRunning,
        PermissionDenied,
        ReceiptExpired,
        Rejected,
        RouteError,
        SubscriptionError,
        TimedOut,
        TlsFailed,
        TooMuchUnderWay,
        TopicNotFound,
        TopicNotOnBroker,
        TransactionNotBegun,
        Unavailable,
        UnreachableError,
        UnreadableBody,
        UnwritableBody,
        UsageError,
    )
    from .hooks.consume import (
        CallStatus,
        ConsumeHook,
        HookContext,
        Reception,
        Settlement,
        SettlementKind,
    )
    from .hooks.send import Recall, SendBatch, SendContext, SendHook, TransactionEnd
    from .message_queries import QueryResult
    from .network.routing import TopicRoute
    from .producer.backpressure import InFlightLimits
    from .producer.batching import BatchPolicy
    from .producer.fault_tolerance import FaultTolerance, LastResort
    from .producer.policies import Compression, RetryPolicy
    from .producer.producer import Producer
    from .producer.selection import QueueSelector, by_key_hash, by_random
    from .producer.transactions import Transaction, TransactionCheck, TransactionResult, TransactionWork
    from .pull_status import PullStatus
    from .raw_pulls import PullWish, RawPull, RawPuller
    from .replies import reply_to
    from .results import SendResult, SendStatus
    from .settings import ClientSettings
    from .tls import TlsSettings, Verification
    from .trace.decoding import TraceEvent
    from .trace.dispatcher import Tracing
    from .transactions import TransactionState

# The names of this package by the module that defines them: the imports above, for the run time.
_NAMES_BY_MODULE: Final = {
    "rmq_remoting.command": "Serialization",
    "rmq_remoting.compression": "CompressionType",
    "rmq_remoting.connection": "ConnectionSettings",
    "rmq_remoting.message": "Message MessageExt",
    "rmq_remoting.message_errors": "InvalidPropertyError MessageEncodeError",
    "rmq_remoting.message_queue": "MessageQueue",
    ".admin": "Admin",
    ".admin.broker_results": (
        "BrokerEpochs BrokerRuntime ColdReads ControllerState GroupColdReads GroupMember InSyncSet "
        "LogEpoch QueueEntries QueueEntry RequestQueue"
    ),
    ".admin.dead_letters": "origin_topic",
    ".admin.results": (
        "AccessRule BrokerAddresses ClientConnection ClusterInfo ConsumeRates ConsumerState "
        "Delivery Figure Figures GroupConnections GroupLag GroupSettings MessageTrack OffsetChange "
        "QueueLag QueueOffsets QueueSlice QueueTimes ReplicaState ReplicationStatus TopicSettings "
        "TrackStatus User UserRules"
    ),
    ".admin.static_results": "LogicalQueue QueueMove QueuePart StaticTopic",
    ".bodies.encoding": "decode_body",
    ".bodies.serializers": "BytesSerializer JsonSerializer PydanticSerializer Serializer StrSerializer",
    ".checks": "Seconds",
    ".consumer.deduplication.deduplicator": "DeduplicatedListener Deduplicator",
    ".consumer.deduplication.keys": "DeduplicationKey",
    ".consumer.deduplication.store": "ClaimResult DeduplicationStore MemoryDeduplicationStore",
    ".consumer.flow_control": "FlowControl",
    ".consumer.offsets.lag": "ConsumerLag ConsumerQueueLag",
    ".consumer.offsets.start_position": "ConsumeFrom",
    ".consumer.pop.settings": "PopSettings",
    ".consumer.processing.body_listener": "body_listener",
    ".consumer.processing.listener": "ConsumeContext ConsumeResult Listener ListenerOutcome OrderlyContext",
    ".consumer.processing.statistics": "TopicStatistics",
    ".consumer.pull.pull_consumer": "PullConsumer",
    ".consumer.pull.queue_listeners": "QueuesListener",
    ".consumer.push.obstacles": "ErrorListener",
    ".consumer.push.push_consumer": "PushConsumer",
    ".consumer.rebalancing.allocation": (
        "Allocation averagely by_circle by_configuration by_consistent_hash by_machine_room nearby"
    ),
    ".consumer.rebalancing.rebalance_listener": "RebalanceListener",
    ".consumer.rebalancing.share_changes": "ShareChange ShareListener",
    ".consumer.requests.pull_client": "PullResult PullSettings",
    ".consumer.simple.simple_consumer": "SimpleConsumer",
    ".consumer.subscription": "Sql Topics",
    ".consumer.timing": "ConsumerTiming",
    ".credentials": "Credentials",
    ".errors": (
        "AlreadyExists BrokerError BrokerUnreachable Busy ClientError GroupNotFound "
        "InvalidArgumentError NameServerUnreachable NoQueue NoReply NotAuthenticated NotAuthorized "
        "NotFound NotRunning PermissionDenied ReceiptExpired Rejected RouteError SubscriptionError "
        "TimedOut TlsFailed TooMuchUnderWay TopicNotFound TopicNotOnBroker TransactionNotBegun "
        "Unavailable UnreachableError UnreadableBody UnwritableBody UsageError"
    ),
    ".hooks.consume": "CallStatus ConsumeHook HookContext Reception Settlement SettlementKind",
    ".hooks.send": "Recall SendBatch SendContext SendHook TransactionEnd",
    ".message_queries": "QueryResult",
    ".network.routing": "TopicRoute",
    ".producer.backpressure": "InFlightLimits",
    ".producer.batching": "BatchPolicy",
    ".producer.fault_tolerance": "FaultTolerance LastResort",
    ".producer.policies": "Compression RetryPolicy",
    ".producer.producer": "Producer",
    ".producer.selection": "QueueSelector by_key_hash by_random",
    ".producer.transactions": "Transaction TransactionCheck TransactionResult TransactionWork",
    ".pull_status": "PullStatus",
    ".raw_pulls": "PullWish RawPull RawPuller",
    ".replies": "reply_to",
    ".results": "SendResult SendStatus",
    ".settings": "ClientSettings",
    ".tls": "TlsSettings Verification",
    ".trace.decoding": "TraceEvent",
    ".trace.dispatcher": "Tracing",
    ".transactions": "TransactionState",
}
__version__ = "0.1.0"

for _name in ("rmq_client", "rmq_remoting"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_MODULES: Final = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "AccessRule",
    "Admin",
    "Allocation",
    "AlreadyExists",
    "BatchPolicy",
    "BrokerAddresses",
    "BrokerEpochs",
    "BrokerError",
    "BrokerRuntime",
    "BrokerUnreachable",
    "Busy",
    "BytesSerializer",
    "CallStatus",
    "ClaimResult",
    "ClientConnection",
    "ClientError",
    "ClientSettings",
    "ClusterInfo",
    "ColdReads",
    "Compression",
    "CompressionType",
    "ConnectionSettings",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeHook",
    "ConsumeRates",
    "ConsumeResult",
    "ConsumerLag",
    "ConsumerQueueLag",
    "ConsumerState",
    "ConsumerTiming",
    "ControllerState",
    "Credentials",
    "DeduplicatedListener",
    "DeduplicationKey",
    "DeduplicationStore",
    "Deduplicator",
    "Delivery",
    "ErrorListener",
    "FaultTolerance",
    "Figure",
    "Figures",
    "FlowControl",
    "GroupColdReads",
    "GroupConnections",
    "GroupLag",
    "GroupMember",
    "GroupNotFound",
    "GroupSettings",
    "HookContext",
    "InFlightLimits",
    "InSyncSet",
    "InvalidArgumentError",
    "InvalidPropertyError",
    "JsonSerializer",
    "LastResort",
    "Listener",
    "ListenerOutcome",
    "LogEpoch",
    "LogicalQueue",
    "MemoryDeduplicationStore",
    "Message",
    "MessageEncodeError",
    "MessageExt",
    "MessageQueue",
    "MessageTrack",
    "NameServerUnreachable",
    "NoQueue",
    "NoReply",
    "NotAuthenticated",
    "NotAuthorized",
    "NotFound",
    "NotRunning",
    "OffsetChange",
    "OrderlyContext",
    "PermissionDenied",
    "PopSettings",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullSettings",
    "PullStatus",
    "PullWish",
    "PushConsumer",
    "PydanticSerializer",
    "QueryResult",
    "QueueEntries",
    "QueueEntry",
    "QueueLag",
    "QueueMove",
    "QueueOffsets",
    "QueuePart",
    "QueueSelector",
    "QueueSlice",
    "QueueTimes",
    "QueuesListener",
    "RawPull",
    "RawPuller",
    "RebalanceListener",
    "Recall",
    "ReceiptExpired",
    "Reception",
    "Rejected",
    "ReplicaState",
    "ReplicationStatus",
    "RequestQueue",
    "RetryPolicy",
    "RouteError",
    "Seconds",
    "SendBatch",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "Serialization",
    "Serializer",
    "Settlement",
    "SettlementKind",
    "ShareChange",
    "ShareListener",
    "SimpleConsumer",
    "Sql",
    "StaticTopic",
    "StrSerializer",
    "SubscriptionError",
    "TimedOut",
    "TlsFailed",
    "TlsSettings",
    "TooMuchUnderWay",
    "TopicNotFound",
    "TopicNotOnBroker",
    "TopicRoute",
    "TopicSettings",
    "TopicStatistics",
    "Topics",
    "TraceEvent",
    "Tracing",
    "TrackStatus",
    "Transaction",
    "TransactionCheck",
    "TransactionEnd",
    "TransactionNotBegun",
    "TransactionResult",
    "TransactionState",
    "TransactionWork",
    "Unavailable",
    "UnreachableError",
    "UnreadableBody",
    "UnwritableBody",
    "UsageError",
    "User",
    "UserRules",
    "Verification",
    "averagely",
    "body_listener",
    "by_circle",
    "by_configuration",
    "by_consistent_hash",
    "by_key_hash",
    "by_machine_room",
    "by_random",
    "decode_body",
    "nearby",
    "origin_topic",
    "reply_to",
]


def __getattr__(name: str) -> Any:
    """Import a name at its first use. Raises AttributeError."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
