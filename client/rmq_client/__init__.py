"""The RocketMQ SDK for Python: asyncio first, `rmq_client.blocking` for programs without an event loop."""

from __future__ import annotations

from rmq_remoting.command import Serialization
from rmq_remoting.compression import CompressionType
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_errors import InvalidPropertyError, MessageEncodeError
from rmq_remoting.message_queue import MessageQueue

from .admin import Admin
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
    BrokerError,
    BrokerUnreachable,
    Busy,
    ClientError,
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
from .trace.dispatcher import Tracing
from .transactions import TransactionState

__all__ = [
    "Admin",
    "BatchPolicy",
    "BrokerError",
    "BrokerUnreachable",
    "Busy",
    "CallStatus",
    "ClientError",
    "ClientSettings",
    "Compression",
    "CompressionType",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeResult",
    "ConsumerTiming",
    "Credentials",
    "FaultTolerance",
    "FlowControl",
    "HookContext",
    "InFlightLimits",
    "InvalidPropertyError",
    "LastResort",
    "Listener",
    "Message",
    "MessageEncodeError",
    "MessageExt",
    "MessageQueue",
    "NameServerUnreachable",
    "NoQueue",
    "NoReply",
    "NotAuthenticated",
    "NotAuthorized",
    "NotFound",
    "NotRunning",
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
    "RawPull",
    "RawPuller",
    "Recall",
    "ReceiptExpired",
    "Rejected",
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
    "TopicStatistics",
    "Tracing",
    "Transaction",
    "TransactionEnd",
    "TransactionNotBegun",
    "TransactionResult",
    "TransactionState",
    "Unavailable",
    "UnreachableError",
    "UsageError",
    "averagely",
    "by_circle",
    "by_configuration",
    "by_consistent_hash",
    "by_key_hash",
    "by_machine_room",
    "by_random",
    "nearby",
    "reply_to",
]
