"""Pulling: codes 11 and 361.

Source: Apache RocketMQ 5.3.3, PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.pull import (
    ForbiddenType,
    PullAnswers,
    PullHeaderDecoder,
    PullMessageRequestHeader,
    PullStream,
)
from rmq_remoting.sys_flags import PullSysFlag

from ..clients.parsed_subscriptions import ParsedSubscriptions
from ..delivery.cold_reads import ClientGone, ColdReads
from ..filtering.message_filters import EVERYTHING
from ..groups.lookup import CREATE_GROUP, existing_group
from ..groups.names import SYSTEM_GROUPS, is_system_group
from ..offsets.table import NO_OFFSET, key_of
from ..store.api import ColdRead, GetResult, GetStatus
from ..topics.lookup import CREATE_TOPIC, existing_topic
from ..topics.permissions import READ

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig
    from rmq_remoting.bodies.topic import TopicConfig
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Change

    from ..clients.consumers import ConsumerTable
    from ..clients.subscription import Subscription
    from ..delivery.held_pulls import HeldPulls
    from ..filtering.message_filters import MessageFilter, MessageFilters
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.broadcast import BroadcastOffsets
    from ..offsets.table import ConsumerOffsetTable
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics, GroupStatistics
    from ..store.api import ConsumeQueue, MessageStore
    from ..topics.table import TopicTable

_MASTER_ID: Final = 0
# After so many looks through messages for others a held pull's client has to ask on: others wait, too.
_MAX_LOOKS: Final = 2

# Groups that may pull where only push consumers are served (Apache RocketMQ 5.3.3, MixAll).
_SYSTEM_PULLERS: Final = frozenset(
    {*SYSTEM_GROUPS, "DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER"}
)

_CODES: Final = {
    GetStatus.FOUND: int(ResponseCode.SUCCESS),
    GetStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetStatus.OFFSET_FOUND_NULL: int(ResponseCode.PULL_NOT_FOUND),
    GetStatus.OFFSET_OVERFLOW_ONE: int(ResponseCode.PULL_NOT_FOUND),
    GetStatus.OFFSET_OVERFLOW_BADLY: int(ResponseCode.PULL_OFFSET_MOVED),
    GetStatus.OFFSET_TOO_SMALL: int(ResponseCode.PULL_OFFSET_MOVED),
    GetStatus.OFFSET_RESET: int(ResponseCode.PULL_OFFSET_MOVED),
}
# What is not given of the messages that were looked through, the filter has kept back.
_LOOKED_THROUGH: Final = (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE)
_NOTHING_YET: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


@dataclass(slots=True, eq=False)
class _Plan:
    """What follows from all of a pull but its offsets, until something changes that it depends on."""

    versions: tuple[int, ...]
    request_code: int
    header: PullMessageRequestHeader  # its offsets are another pull's
    queue: ConsumeQueue | None
    offsets_key: str
    wanted: MessageFilter
    answers: PullAnswers
    broadcast_to: str | None  # the member that it is of, where its group broadcasts
    statistics: GroupStatistics | None = None  # of what it was given; it may be the first


@dataclass(slots=True, eq=False)
class _Pull:
    """One pull under way: what it asked for, and where it looks next."""

    request: RemotingCommand
    stream: PullStream
    plan: _Plan
    queue_offset: int
    commit_offset: int
    offset: int


class PullProcessor:
    """Answers pulls with messages, or holds them until there are some."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
        offsets: ConsumerOffsetTable,
        filters: MessageFilters,
        broadcast: BroadcastOffsets,
        store: MessageStore,
        held: HeldPulls,
        cold: ColdReads,
        statistics: BrokerStatistics,
    ) -> None:
        self._settings = settings
        self._settings_version = 0
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._filters = filters
        self._broadcast = broadcast
        self._store = store
        self._held = held
        self._cold = cold
        self._statistics = statistics
        self._headers = PullHeaderDecoder()
        self._parsed = ParsedSubscriptions()

    def settings_changed(self, change: Change) -> None:
        """To be called after each change of the settings."""
        self._settings_version += 1

    def pull(self, connection: Connection, request: RemotingCommand) -> Result:
        """Messages now, or a promise of them."""
        if connection.is_closed:
            return None  # a reset would be told to nobody
        stream, queue_offset, commit_offset = self._headers.decode(request)
        plan = self._plan(stream, request, connection)
        pull = _Pull(request, stream, plan, queue_offset, commit_offset, queue_offset)
        reset = self._reset(plan.header)
        if reset is not None:
            # What the client would commit is from before the reset.
            return self._respond(pull, reset)
        if plan.broadcast_to is not None:
            header = plan.header.at(queue_offset, commit_offset)
            first = self._broadcast.first_offset(plan.broadcast_to, header)
            if first != NO_OFFSET:
                self._broadcast.pulled(plan.broadcast_to, header, first)
                return self._respond(pull, self._moved(header, first))
        if plan.header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            self._commit(connection, pull)
        result = self._get(pull)
        if isinstance(result, ColdRead):
            return self._when_read(connection, result, partial(self._answer_cold, connection, pull))
        return self._answer(connection, pull, result)

    def _answer(self, connection: Connection, pull: _Pull, result: GetResult) -> Result:
        if result.status is GetStatus.FOUND and pull.plan.broadcast_to is None:
            return self._respond(pull, result)
        plan, header = pull.plan, pull.plan.header
        code = _response_code(result.status, pull.queue_offset)
        if plan.broadcast_to is not None:
            is_moved = code == ResponseCode.PULL_OFFSET_MOVED
            known_to = result.next_offset if is_moved else pull.queue_offset
            self._broadcast.pulled(plan.broadcast_to, header, known_to)
        nothing_yet = code == ResponseCode.PULL_NOT_FOUND
        if nothing_yet and header.sys_flag & PullSysFlag.SUSPEND:
            return self._hold(connection, pull)
        return self._respond(pull, result)

    def _get(self, pull: _Pull) -> GetResult | ColdRead:
        plan, header = pull.plan, pull.plan.header
        return self._store.reader.get_now(
            plan.queue,
            pull.offset,
            header.max_msg_nums,
            plan.wanted.tags_codes,
            header.max_msg_bytes or 0,
            plan.wanted.properties,
        )

    # --- what is not in memory ---

    def _answer_cold(self, connection: Connection, pull: _Pull, result: GetResult) -> Result:
        """Raises CommandError: what has changed during the read counts."""
        pull.plan = self._plan(pull.stream, pull.request, connection)
        return self._answer(connection, pull, result)

    def _when_read(
        self, connection: Connection, cold: ColdRead, then: Callable[[GetResult], Result]
    ) -> asyncio.Future[Answer]:
        """Go on when the disk has been read; a peer that is gone by then gets no answer."""

        async def read() -> Answer:
            try:
                await self._cold.run(connection, cold.run, cold.read_ahead)
            except ClientGone:
                return None
            if connection.is_closed:
                return None
            answer = then(self._store.reader.finish(cold))
            return await answer if isinstance(answer, asyncio.Future) else answer

        return asyncio.get_running_loop().create_task(read(), name="cold pull")

    def _reset(self, header: PullMessageRequestHeader) -> GetResult | None:
        """Where the group has to go on, if it was reset since its last pull."""
        offset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        return None if offset == NO_OFFSET else self._moved(header, offset)

    def _moved(self, header: PullMessageRequestHeader, offset: int) -> GetResult:
        lowest = self._store.min_offset(header.topic, header.queue_id)
        highest = self._store.max_offset(header.topic, header.queue_id)
        return GetResult(GetStatus.OFFSET_RESET, offset, lowest, highest)

    def _commit(self, connection: Connection, pull: _Pull) -> None:
        """Take the offset over that comes with a pull, unless it cannot be: nobody could be told of that."""
        queue, offset = pull.plan.queue, pull.commit_offset
        if 0 <= offset <= (0 if queue is None else queue.max_offset):
            self._offsets.commit_of(pull.plan.offsets_key, pull.plan.header.queue_id, offset, connection)

    # --- waiting for messages ---

    def _hold(self, connection: Connection, pull: _Pull) -> Result:
        settings, header = self._settings, pull.plan.header
        wait_ms = settings.short_polling_time_ms
        if settings.long_polling_enable:
            wait_ms = min(max(0, header.suspend_timeout_ms), settings.long_polling_max_hold_ms)
        queue = self._store.queues.get_or_create(header.topic, header.queue_id)

        def retry(time_is_up: bool) -> Result:
            return self._look_again(connection, pull, time_is_up)

        return self._held.hold(connection, queue, wait_ms / 1000, retry)

    def _look_again(self, connection: Connection, pull: _Pull, time_is_up: bool) -> Result:
        """A held pull's answer, if there is one by now. Raises CommandError.

        What has changed meanwhile counts: the topic may be gone, or the group subscribed to other tags.
        """
        before, pull.plan = pull.plan, self._plan(pull.stream, pull.request, connection)
        if pull.plan is not before and pull.plan.wanted != before.wanted:
            pull.offset = pull.queue_offset
        result = self._reset(pull.plan.header) or self._get(pull)
        return self._look(connection, pull, time_is_up, 1, result)

    def _look(
        self, connection: Connection, pull: _Pull, time_is_up: bool, looks: int, result: GetResult | ColdRead
    ) -> Result:
        """Go on with a look that has given `result`."""
        while True:
            if isinstance(result, ColdRead):
                go_on = partial(self._look, connection, pull, time_is_up, looks)
                return self._when_read(connection, result, go_on)
            if result.status is not GetStatus.NO_MATCHED_MESSAGE:
                break
            # What is not wanted is passed over without telling the client; the next look begins there.
            pull.offset = result.next_offset
            if result.next_offset >= result.max_offset:
                break
            if looks >= _MAX_LOOKS:
                return self._respond(pull, result)
            result = self._get(pull)
            looks += 1
        code = _response_code(result.status, pull.queue_offset)
        if code == ResponseCode.PULL_NOT_FOUND or result.status is GetStatus.NO_MATCHED_MESSAGE:
            if not time_is_up:
                return None
            if pull.offset != pull.queue_offset:
                # The client learns where to go on, or it would have the same looked through again.
                result.status = GetStatus.NO_MATCHED_MESSAGE
        return self._respond(pull, result)

    # --- answering ---

    def _respond(self, pull: _Pull, result: GetResult) -> RemotingCommand | bytes:
        plan, request = pull.plan, pull.request
        following, lowest, highest = result.next_offset, result.min_offset, result.max_offset
        self._offsets.note_pulled(plan.offsets_key, plan.header.queue_id, following)
        if plan.wanted is not EVERYTHING:
            self._count_filtered(pull, result)
        if result.status is GetStatus.FOUND:
            self._statistics.pulls_found += 1
            statistics = self._statistics_of(plan)
            statistics.answers += 1
            statistics.got_messages += result.count
            statistics.got_bytes += len(result.body)
            return plan.answers.found(request, following, lowest, highest, result.body)
        self._statistics.pulls_missed += 1
        code = _response_code(result.status, pull.queue_offset)
        fields = plan.answers.header(following, lowest, highest).encode()
        return request.response(code, result.status.value, fields)

    def _count_filtered(self, pull: _Pull, result: GetResult) -> None:
        if result.status in _LOOKED_THROUGH:
            passed_over = result.next_offset - pull.queue_offset - result.count
            self._statistics_of(pull.plan).filtered_messages += max(0, passed_over)

    def _statistics_of(self, plan: _Plan) -> GroupStatistics:
        if plan.statistics is None:
            header = plan.header
            plan.statistics = self._statistics.of_group(header.consumer_group, header.topic)
        return plan.statistics

    # --- admitting ---

    def _plan(self, stream: PullStream, request: RemotingCommand, connection: Connection) -> _Plan:
        """What is to be known of a pull: as it was found for one before it, or now. Raises CommandError."""
        plan: _Plan | None = stream.plan
        if plan is None or plan.versions != self._versions() or plan.request_code != request.code:
            plan = self._make_plan(stream.header, request, connection)
            stream.plan = plan if self._is_lasting(plan) else None
        return plan

    def _versions(self) -> tuple[int, ...]:
        """Of all that plans are made from."""
        return (
            self._topics.version,
            self._groups.version,
            self._consumers.version,
            self._settings_version,
        )

    def _is_lasting(self, plan: _Plan) -> bool:
        """Whether a plan holds until the versions change, for whatever connection.

        A filter of properties depends on a table of its own, and what is of one member on who asks.
        """
        members = self._consumers.find_group(plan.header.consumer_group)
        return not (
            plan.queue is None
            or plan.wanted.properties is not None
            or plan.broadcast_to is not None
            or (members is not None and members.is_broadcasting)
            or self._settings.reject_pull_consumer_enable
        )

    def _make_plan(
        self, header: PullMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> _Plan:
        """Raises CommandError for a pull that is not to be served."""
        group, topic = self._check(header, request, connection)
        wanted = self._wanted(header, group)
        return _Plan(
            self._versions(),
            request.code,
            header,
            self._store.queues.get(header.topic, header.queue_id),
            key_of(header.consumer_group, header.topic),
            wanted,
            PullAnswers(_MASTER_ID, topic.topic_sys_flag, group.group_sys_flag),
            self._broadcast.client_id(connection, header),
        )

    def _check(
        self, header: PullMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """May this group read this queue? Raises CommandError."""
        settings = self._settings
        if not settings.broker_permission & READ:
            raise _forbidden(ForbiddenType.BROKER, "pulling messages from this broker is forbidden")
        if request.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise _forbidden(
                ForbiddenType.BROKER, "this broker does not serve lite pulls (litePullMessageEnable)"
            )
        group = existing_group(self._groups, header.consumer_group, CREATE_GROUP)
        if not group.consume_enable:
            raise _forbidden(ForbiddenType.GROUP, f"consumer group {header.consumer_group} may not consume")
        topic = existing_topic(self._topics, header.topic, CREATE_TOPIC)
        if not topic.perm & READ:
            raise _forbidden(ForbiddenType.TOPIC, f"pulling messages from topic {header.topic} is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queue id {header.queue_id} is illegal: topic {header.topic} has {topic.read_queue_nums} "
                f"queues to read (asked by {connection.peer})",
            )
        if settings.reject_pull_consumer_enable:
            self._refuse_pull_consumer(header.consumer_group, connection)
        return group, topic

    def _refuse_pull_consumer(self, name: str, connection: Connection) -> None:
        """Raises CommandError for who is neither a push consumer nor the system itself."""
        members = self._consumers.find_group(name)
        is_push = members is not None and members.consume_type is not ConsumeType.CONSUME_ACTIVELY
        is_member = members is not None and connection in members.members
        if not (is_push or is_member or name in _SYSTEM_PULLERS or is_system_group(name)):
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"this broker serves push consumers only (rejectPullConsumerEnable), group {name} is none",
            )

    def _wanted(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> MessageFilter:
        """What the pull wants of the topic. Raises CommandError."""
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            # The request itself carries it.
            carried = self._parsed.of(header.topic, header.subscription, header.expression_type)
            return self._filters.of_request(header.consumer_group, carried)
        subscription = self._subscription(header, group)
        return self._filters.of_group(header.consumer_group, subscription, header.sub_version)

    def _subscription(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> Subscription:
        """What the group's heartbeats say that it wants of the topic. Raises CommandError."""
        members = self._consumers.find_group(header.consumer_group)
        if members is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no member of consumer group {header.consumer_group} has sent a heartbeat here yet",
            )
        if members.is_broadcasting and not group.consume_broadcast_enable:
            raise _forbidden(
                ForbiddenType.BROADCASTING,
                f"consumer group {header.consumer_group} may not consume by broadcast",
            )
        if self._groups.forbidden(header.consumer_group, header.topic) & READ:
            raise _forbidden(
                ForbiddenType.SUBSCRIPTION,
                f"consumer group {header.consumer_group} may not read topic {header.topic}",
            )
        subscription = members.find_subscription(header.topic)
        if subscription is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"consumer group {header.consumer_group} has not subscribed to topic {header.topic}; all "
                "members of a group must subscribe to the same topics and tags",
            )
        if subscription.sub_version < header.sub_version:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of group {header.consumer_group} to {header.topic} known here is older "
                "than the request's",
            )
        return subscription


def _response_code(status: GetStatus, asked_offset: int) -> int:
    if status in _NOTHING_YET:
        return int(ResponseCode.PULL_OFFSET_MOVED if asked_offset != 0 else ResponseCode.PULL_NOT_FOUND)
    return _CODES[status]


def _forbidden(kind: ForbiddenType, remark: str) -> CommandError:
    return CommandError(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind.value)})
