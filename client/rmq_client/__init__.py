"""The RocketMQ SDK for Python: asyncio first, `rmq_client.blocking` for programs without an event loop.

A name is imported at its first use (PEP 562), so that a program loads what it needs and no more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rmq_remoting.command import Serialization
    from rmq_remoting.compression import CompressionType
    from rmq_remoting.message import Message, MessageExt
    from rmq_remoting.message_errors import InvalidPropertyError, MessageEncodeError
    from rmq_remoting.message_queue import MessageQueue

    from .admin import Admin
    from .admin.dead_letters import origin_topic
    from .admin.results import (
        AccessRule,
        ClientConnection,
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
        QueueSlice,
        ReplicaState,
        ReplicationStatus,
        TopicSettings,
        TrackStatus,
        User,
        UserRules,
    )
    from .consumer.flow_control import FlowControl
    from .consumer.pop.settings import PopSettings
    from .consumer.processing.listener import ConsumeContext, ConsumeResult, Listener, OrderlyContext
    from .consumer.processing.statistics import TopicStatistics
    from .consumer.pull.pull_consumer import PullConsumer
    from .consumer.push.push_consumer import PushConsumer
    from .consumer.rebalancing.allocation import (
        averagely,
        by_circle,
        by_configuration,
        by_consistent_hash,
        by_machine_room,
        nearby,
    )
    from .consumer.rebalancing.share_changes import ShareChange, ShareListener
    from .consumer.requests.pull_client import PullSettings
    from .consumer.simple.simple_consumer import SimpleConsumer
    from .consumer.subscription import Sql
    from .consumer.timing import ConsumerTiming
    from .credentials import Credentials
    from .errors import (
        AlreadyExists,
        BrokerError,
        BrokerUnreachable,
        Busy,
        ClientError,
        GroupNotFound,
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
        UsageError,
    )
    from .hooks.consume import CallStatus, ConsumeHook, HookContext
    from .hooks.send import Recall, SendContext, SendHook, TransactionEnd
    from .message_queries import QueryResult
    from .network.routing import TopicRoute
    from .producer.backpressure import InFlightLimits
    from .producer.batching import BatchPolicy
    from .producer.fault_tolerance import FaultTolerance, LastResort
    from .producer.policies import Compression, RetryPolicy
    from .producer.producer import Producer
    from .producer.selection import by_key_hash, by_random
    from .producer.transactions import Transaction, TransactionResult
    from .pull_status import PullStatus
    from .raw_pulls import PullWish, RawPull, RawPuller
    from .replies import reply_to
    from .results import SendResult, SendStatus
    from .settings import ClientSettings
    from .tls import TlsSettings
    from .trace.decoding import TraceEvent
    from .trace.dispatcher import Tracing
    from .transactions import TransactionState

# The names of this package by the module that defines them: the imports above, for the run time.
_NAMES_BY_MODULE: Final = {
    "rmq_remoting.command": "Serialization",
    "rmq_remoting.compression": "CompressionType",
    "rmq_remoting.message": "Message MessageExt",
    "rmq_remoting.message_errors": "InvalidPropertyError MessageEncodeError",
    "rmq_remoting.message_queue": "MessageQueue",
    ".admin": "Admin",
    ".admin.dead_letters": "origin_topic",
    ".admin.results": (
        "AccessRule ClientConnection ConsumeRates ConsumerState Delivery Figure Figures GroupConnections "
        "GroupLag GroupSettings MessageTrack OffsetChange QueueLag QueueSlice ReplicaState "
        "ReplicationStatus TopicSettings TrackStatus User UserRules"
    ),
    ".consumer.flow_control": "FlowControl",
    ".consumer.pop.settings": "PopSettings",
    ".consumer.processing.listener": "ConsumeContext ConsumeResult Listener OrderlyContext",
    ".consumer.processing.statistics": "TopicStatistics",
    ".consumer.pull.pull_consumer": "PullConsumer",
    ".consumer.push.push_consumer": "PushConsumer",
    ".consumer.rebalancing.allocation": (
        "averagely by_circle by_configuration by_consistent_hash by_machine_room nearby"
    ),
    ".consumer.rebalancing.share_changes": "ShareChange ShareListener",
    ".consumer.requests.pull_client": "PullSettings",
    ".consumer.simple.simple_consumer": "SimpleConsumer",
    ".consumer.subscription": "Sql",
    ".consumer.timing": "ConsumerTiming",
    ".credentials": "Credentials",
    ".errors": (
        "AlreadyExists BrokerError BrokerUnreachable Busy ClientError GroupNotFound "
        "NameServerUnreachable NoQueue NoReply NotAuthenticated NotAuthorized NotFound NotRunning "
        "PermissionDenied ReceiptExpired Rejected RouteError SubscriptionError TimedOut TlsFailed "
        "TooMuchUnderWay TopicNotFound TopicNotOnBroker TransactionNotBegun Unavailable "
        "UnreachableError UsageError"
    ),
    ".hooks.consume": "CallStatus ConsumeHook HookContext",
    ".hooks.send": "Recall SendContext SendHook TransactionEnd",
    ".message_queries": "QueryResult",
    ".network.routing": "TopicRoute",
    ".producer.backpressure": "InFlightLimits",
    ".producer.batching": "BatchPolicy",
    ".producer.fault_tolerance": "FaultTolerance LastResort",
    ".producer.policies": "Compression RetryPolicy",
    ".producer.producer": "Producer",
    ".producer.selection": "by_key_hash by_random",
    ".producer.transactions": "Transaction TransactionResult",
    ".pull_status": "PullStatus",
    ".raw_pulls": "PullWish RawPull RawPuller",
    ".replies": "reply_to",
    ".results": "SendResult SendStatus",
    ".settings": "ClientSettings",
    ".tls": "TlsSettings",
    ".trace.decoding": "TraceEvent",
    ".trace.dispatcher": "Tracing",
    ".transactions": "TransactionState",
}
_MODULES: Final = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "AccessRule",
    "Admin",
    "AlreadyExists",
    "BatchPolicy",
    "BrokerError",
    "BrokerUnreachable",
    "Busy",
    "CallStatus",
    "ClientConnection",
    "ClientError",
    "ClientSettings",
    "Compression",
    "CompressionType",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeRates",
    "ConsumeResult",
    "ConsumerState",
    "ConsumerTiming",
    "Credentials",
    "Delivery",
    "FaultTolerance",
    "Figure",
    "Figures",
    "FlowControl",
    "GroupConnections",
    "GroupLag",
    "GroupNotFound",
    "GroupSettings",
    "HookContext",
    "InFlightLimits",
    "InvalidPropertyError",
    "LastResort",
    "Listener",
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
    "PullSettings",
    "PullStatus",
    "PullWish",
    "PushConsumer",
    "QueryResult",
    "QueueLag",
    "QueueSlice",
    "RawPull",
    "RawPuller",
    "Recall",
    "ReceiptExpired",
    "Rejected",
    "ReplicaState",
    "ReplicationStatus",
    "RetryPolicy",
    "RouteError",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "Serialization",
    "ShareChange",
    "ShareListener",
    "SimpleConsumer",
    "Sql",
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
    "TraceEvent",
    "Tracing",
    "TrackStatus",
    "Transaction",
    "TransactionEnd",
    "TransactionNotBegun",
    "TransactionResult",
    "TransactionState",
    "Unavailable",
    "UnreachableError",
    "UsageError",
    "User",
    "UserRules",
    "averagely",
    "by_circle",
    "by_configuration",
    "by_consistent_hash",
    "by_key_hash",
    "by_machine_room",
    "by_random",
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
