"""The RocketMQ SDK for Python: asyncio first; `rmq_client.blocking` for programs without a loop."""

from __future__ import annotations

from rmq_remoting.command import Serialization
from rmq_remoting.compression import CompressionType
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_errors import InvalidPropertyError, MessageEncodeError
from rmq_remoting.message_queue import MessageQueue

from .admin import Admin
from .consumer.allocation import averagely, by_circle
from .consumer.listener import ConsumeResult, Listener
from .consumer.process_queue import FlowControl
from .consumer.pull import PullConsumer
from .consumer.pull_client import PullSettings, PullStatus
from .consumer.pulling import ConsumerTiming
from .consumer.push import PushConsumer
from .errors import (
    BrokerError,
    BrokerUnreachable,
    Busy,
    ClientError,
    NameServerUnreachable,
    NoQueue,
    NotFound,
    NotRunning,
    PermissionDenied,
    Rejected,
    RouteError,
    SubscriptionError,
    TimedOut,
    TooMuchUnderWay,
    TopicNotFound,
    TopicNotOnBroker,
    Unavailable,
    UnreachableError,
    UsageError,
)
from .producer.backpressure import InFlightLimits
from .producer.batching import BatchPolicy
from .producer.policies import Compression, RetryPolicy
from .producer.producer import Producer
from .producer.results import SendResult, SendStatus
from .producer.selection import by_key_hash, by_random
from .queries import QueryResult
from .raw_pulls import PullWish, RawPull, RawPuller
from .routing import TopicRoute
from .settings import ClientSettings

__all__ = [
    "Admin",
    "BatchPolicy",
    "BrokerError",
    "BrokerUnreachable",
    "Busy",
    "ClientError",
    "ClientSettings",
    "Compression",
    "CompressionType",
    "ConsumeResult",
    "ConsumerTiming",
    "FlowControl",
    "InFlightLimits",
    "InvalidPropertyError",
    "Listener",
    "Message",
    "MessageEncodeError",
    "MessageExt",
    "MessageQueue",
    "NameServerUnreachable",
    "NoQueue",
    "NotFound",
    "NotRunning",
    "PermissionDenied",
    "Producer",
    "PullConsumer",
    "PullSettings",
    "PullStatus",
    "PullWish",
    "PushConsumer",
    "QueryResult",
    "RawPull",
    "RawPuller",
    "Rejected",
    "RetryPolicy",
    "RouteError",
    "SendResult",
    "SendStatus",
    "Serialization",
    "SubscriptionError",
    "TimedOut",
    "TooMuchUnderWay",
    "TopicNotFound",
    "TopicNotOnBroker",
    "TopicRoute",
    "Unavailable",
    "UnreachableError",
    "UsageError",
    "averagely",
    "by_circle",
    "by_key_hash",
    "by_random",
]
