"""A pull, the stream of pulls that it belongs to, and the plan that the stream shares.

A consumer asks for a queue again and again with a header in which only the queue offset and the commit offset
change. Everything that follows from the rest of the header is a plan, made once per stream and used until
topics, groups, consumers or settings change.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.pull import PullAnswers, PullMessageRequestHeader

from ..filtering.message_filters import MessageFilter
from ..statistics.broker_statistics import GroupStatistics
from ..store.api import ConsumeQueue


class LogicalQueue(Exception):
    """A pull names a logical queue of a static topic, which must be translated into a physical one."""


@dataclass(slots=True, eq=False)
class PullPlan:
    """An admitted header, with all that answering its pulls takes."""

    versions: tuple[int, ...]  # of the tables that the plan was made from
    request_code: int
    header: PullMessageRequestHeader  # its two offsets belong to another pull
    queue: ConsumeQueue | None  # None where no message was stored yet
    offsets_key: str  # key of the group's offsets in the topic
    wanted: MessageFilter
    answers: PullAnswers
    broadcast_member: str | None  # client id, where the group broadcasts and its members' offsets are kept
    commits: bool  # each pull carries an offset to commit
    may_be_held: bool
    # For messages that are no longer in memory, where replicas may serve them.
    answers_of_old: PullAnswers | None = None
    # The group's counters, looked up with the first message: a group that got none has no counters.
    statistics: GroupStatistics | None = None


class PullStream:
    """Pulls of one header; the pull decoder keeps it from pull to pull."""

    __slots__ = ("header", "plan")

    def __init__(self, header: PullMessageRequestHeader) -> None:
        self.header = header
        self.plan: PullPlan | None = None


class Pull:
    """One admitted pull; `queue_offset` is where the client asked to read."""

    __slots__ = ("command", "commit_offset", "connection", "plan", "queue_offset", "stream")

    def __init__(
        self,
        connection: Connection,
        command: RemotingCommand,
        stream: PullStream,
        plan: PullPlan,
        queue_offset: int,
        commit_offset: int,
    ) -> None:
        self.connection = connection
        self.command = command
        self.stream = stream
        self.plan = plan
        self.queue_offset = queue_offset
        self.commit_offset = commit_offset
