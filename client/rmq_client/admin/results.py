"""Results of `Admin`. Times are datetimes in UTC; None where a broker knows none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue


def time_of(timestamp_ms: int) -> datetime | None:
    """Return ms since 1970 as a time in UTC; None for 0 and less, which stand for no time."""
    return None if timestamp_ms <= 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """A broker with its replicas. `addresses` are `host:port` by broker id; 0 is the master."""

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """The master's address; None while there is no master."""
        return self.addresses.get(0)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All brokers that the name servers know, by name; `clusters` has the brokers of each cluster."""

    brokers: Mapping[str, BrokerAddresses]
    clusters: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """Where a queue begins and ends: `max_offset` is the offset that its next message gets.

    `last_stored` is when its last message was stored.
    """

    min_offset: int
    max_offset: int
    last_stored: datetime | None = None

    @property
    def messages(self) -> int:
        """Number of messages in the queue."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """Store times of messages of a queue: the first, the last, and the last one that a group has consumed.

    `delay_seconds` is the age of the message that the group consumes next, 0 at the end of the queue.
    """

    queue: MessageQueue
    first_stored: datetime | None
    last_stored: datetime | None
    consumed_until: datetime | None
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic on one broker. `permission` is 2 to write, 4 to read, 6 for both."""

    topic: str
    read_queues: int
    write_queues: int
    permission: int
    ordered: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group on one broker.

    `consume_enabled`: false refuses the group's pulls. `ordered`: the group consumes in order. `max_retries`:
    redeliveries before a message becomes a dead letter. `retry_queues`: queues of its retry topic.
    """

    group: str
    consume_enabled: bool = True
    broadcast_enabled: bool = True
    ordered: bool = False
    max_retries: int = 16
    retry_queues: int = 1
    consume_timeout_minutes: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client connected to a broker.

    `address` is its `host:port`, `version` the ordinal of Apache's versions (479 is 5.3.3).
    """

    client_id: str
    address: str
    language: str
    version: int
    brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """The connected consumers of a group. `subscriptions`: filter expressions by topic."""

    group: str
    clients: tuple[ClientConnection, ...]
    subscriptions: Mapping[str, str]
    consume_type: str | None = None
    message_model: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumeRates:
    """Rates of one topic in one consumer: messages per second, and mean times in ms.

    `failed_last_hour` counts messages that the listener refused.
    """

    pulled_per_second: float
    consumed_per_second: float
    failed_per_second: float
    pull_ms: float
    consume_ms: float
    failed_last_hour: int


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The state of a running consumer, as it reports it.

    `queues`: messages buffered by queue; of a POP consumer, unacknowledged ones. `properties` are those of
    the client. `stacks` holds its threads, if they were requested.
    """

    client_id: str
    properties: Mapping[str, str]
    subscriptions: Mapping[str, str]
    queues: Mapping[MessageQueue, int]
    rates: Mapping[str, ConsumeRates]
    stacks: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one message that was given to one consumer. `result` is Apache's CMResult."""

    result: str
    seconds: float
    remark: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the listener consumed the message."""
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A group's progress in one queue.

    `committed` is the next offset that the group consumes, 0 if it has committed none. `end` is the offset of
    the next message. `consumed_until` is the store time of the last consumed message. `in_flight` counts
    messages that consumers have pulled and not committed.
    """

    queue: MessageQueue
    committed: int
    end: int
    consumed_until: datetime | None = None
    in_flight: int = 0

    @property
    def lag(self) -> int:
        """Number of messages that the group has not consumed."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's progress. `consumed_per_second` is of the last minute."""

    group: str
    queues: tuple[QueueLag, ...]
    consumed_per_second: float = 0.0

    @property
    def total(self) -> int:
        """Number of messages that the group has not consumed."""
        return sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A group's offset in one queue, before and after a change; `before` is None if it had none."""

    queue: MessageQueue
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Messages of one queue from an offset on. `next_offset` is where the next slice begins."""

    messages: tuple[MessageExt, ...]
    next_offset: int
    min_offset: int
    max_offset: int


class TrackStatus(Enum):
    """Whether a group has consumed a message."""

    CONSUMED = "consumed"
    FILTERED = "filtered"
    NOT_CONSUMED = "not consumed"
    BROADCAST = "broadcast: brokers do not know"
    NOT_ONLINE = "not online"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """Whether one group has consumed a message."""

    group: str
    status: TrackStatus


@dataclass(frozen=True, slots=True)
class Figure:
    """A statistic over one period: `per_call` is the sum divided by the number of calls."""

    sum: int
    per_second: float
    per_call: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A statistic of a broker over the last minute, hour and day; None for what it has not measured yet."""

    minute: Figure | None
    hour: Figure | None
    day: Figure | None


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica, as its master sees it. `behind_bytes` is the part of the log that it lacks."""

    address: str
    acknowledged_offset: int
    behind_bytes: int
    in_sync: bool
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The replication of one broker: a master lists its replicas, a replica names its master.

    `in_sync` is the number of replicas in sync, without the master.
    """

    is_master: bool
    log_end: int
    replicas: tuple[ReplicaState, ...] = ()
    in_sync: int = 0
    master_address: str = ""
    last_read: datetime | None = None
    bytes_per_second: int = 0


@dataclass(frozen=True, slots=True)
class User:
    """A user of access control. `password` is None unless a super user asked."""

    name: str
    is_super: bool = False
    enabled: bool = True
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What a user may do with a resource, such as `Topic:orders`, `Group:till*` or `Cluster:*`.

    `actions` are All, Pub, Sub, Create, Update, Delete, Get and List. Without `source_ips` the rule counts
    for all addresses.
    """

    resource: str
    actions: tuple[str, ...]
    allow: bool = True
    source_ips: tuple[str, ...] = ()
    policy: str = "Custom"


@dataclass(frozen=True, slots=True)
class UserRules:
    """All rules of a user."""

    user: str
    rules: tuple[AccessRule, ...]
