"""Results of `Admin` about brokers: run-time figures, cold reads, epochs, in-sync sets, entries of queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """Requests of one kind that wait at a broker: how many, at most how many, and the longest wait now."""

    waiting: int
    capacity: int
    longest_wait_seconds: float


@dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """What a broker has done since its start, and does now.

    Rates are per second, over the last ten seconds. `longest_read_seconds` and `longest_write_seconds` are of
    one request since the start. `undispatched_bytes` are in the log and not in the queues yet. `disk_ratio`
    is from 0 to 1. `requests` has the waiting requests by kind: send, pull, lite_pull, query, ack. A figure
    that the broker does not know is 0, a time None.
    """

    version: str
    started: datetime | None
    stored_messages: int
    stored_bytes: int
    stored_per_second: float
    delivered_per_second: float
    stored_today: int
    delivered_today: int
    longest_write_seconds: float
    longest_read_seconds: float
    log_start: int
    log_end: int
    oldest_message: datetime | None
    undispatched_bytes: int
    disk_ratio: float
    timers_entered_per_second: float
    timers_delivered_per_second: float
    timers_behind_messages: int
    requests: Mapping[str, RequestQueue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupColdReads:
    """Cold bytes that a group has read in the current period, which is five seconds."""

    group: str
    period_bytes: int
    first_read: datetime | None
    last_read: datetime | None


@dataclass(frozen=True, slots=True)
class ColdReads:
    """The flow control of cold reads on one broker. Thresholds are bytes per period.

    `thresholds` are those of single groups, `adapted` those that the broker has changed by itself.
    """

    period_bytes: int
    group_threshold: int
    total_threshold: int
    groups: tuple[GroupColdReads, ...] = ()
    thresholds: Mapping[str, int] = field(default_factory=dict)
    adapted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogEpoch:
    """The part of a broker's log that one master wrote; `end` is None for the current master's."""

    epoch: int
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class BrokerEpochs:
    """The epochs of a broker's log, the oldest first, and where the log ends."""

    broker_name: str
    broker_id: int
    log_end: int
    epochs: tuple[LogEpoch, ...]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A broker that a controller knows; `alive`: its heartbeats come."""

    broker_id: int
    address: str
    alive: bool
    in_sync: bool


@dataclass(frozen=True, slots=True)
class InSyncSet:
    """A group of brokers with a controller: its master, and which replicas have every acknowledged message.

    `epoch` grows with each change of the set, `master_epoch` with each master. The master is None during an
    election.
    """

    broker_name: str
    master_id: int | None
    master_address: str
    master_epoch: int
    epoch: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class ControllerState:
    """A controller: its group, whether it leads, and the leader. `peers` are `id:host:port`."""

    group: str
    is_leader: bool
    leader_id: str
    leader_address: str
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry of a consume queue: where a message is in the log, its size, and the hash of its tag.

    `matches`: whether the group's filter may accept the message; None where no group was named. `details`
    has what the broker says about an extended entry.
    """

    offset: int
    physical_offset: int
    size_bytes: int
    tags_code: int
    matches: bool | None = None
    details: str = ""


@dataclass(frozen=True, slots=True)
class QueueEntries:
    """Entries of a queue from an offset on. `filter_text` describes the filter of the named group."""

    entries: tuple[QueueEntry, ...]
    min_offset: int
    max_offset: int
    expression: str | None = None
    filter_text: str | None = None
