"""Admission of pulls: may the group read the queue, and which messages does it want?

Source of the rules: Apache RocketMQ 5.3.3, PullMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.pull import ForbiddenType, PullAnswers, PullHeaderDecoder
from rmq_remoting.sys_flags import PullSysFlag

from ..clients.parsed_subscriptions import ParsedSubscriptions
from ..groups.lookup import CREATE_GROUP, existing_group
from ..groups.names import is_system_puller
from ..offsets.table import key_of
from ..topics.lookup import CREATE_TOPIC, existing_topic
from ..topics.permissions import READ
from .request import LogicalQueue, Pull, PullPlan, PullStream

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig
    from rmq_remoting.bodies.topic import TopicConfig
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Change
    from rmq_remoting.headers.pull import PullMessageRequestHeader

    from ..clients.consumers import ConsumerTable
    from ..clients.subscription import Subscription
    from ..filtering.message_filters import MessageFilter, MessageFilters
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.broadcast import BroadcastOffsets
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable

_MASTER_ID: Final = 0


class PullAdmission:
    """Checks pulls against the broker's tables, and keeps the plan of each stream of pulls."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
        filters: MessageFilters,
        broadcast: BroadcastOffsets,
        store: MessageStore,
    ) -> None:
        self._settings = settings
        self._settings_version = 0
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._filters = filters
        self._broadcast = broadcast
        self._store = store
        self._headers = PullHeaderDecoder(PullStream)
        self._parsed = ParsedSubscriptions()
        self.caches = (*self._headers.caches, *self._parsed.caches)

    def settings_changed(self, change: Change) -> None:
        """Let no plan outlive a change of the settings; called after each change."""
        self._settings_version += 1

    def admit(self, connection: Connection, command: RemotingCommand) -> Pull:
        """Return the pull that a command asks for.

        Raises LogicalQueue, CommandError, HeaderError, HeaderDecodeError.
        """
        stream, queue_offset, commit_offset = self._headers.decode(command)
        plan = self._plan_of(stream, connection, command)
        return Pull(connection, command, stream, plan, queue_offset, commit_offset)

    def admit_again(self, pull: Pull) -> Pull:
        """Return the pull by the broker's current tables: the same pull if they did not change.

        Raises CommandError if the pull would be refused now.
        """
        try:
            plan = self._plan_of(pull.stream, pull.connection, pull.command)
        except LogicalQueue:
            raise CommandError(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"topic {pull.stream.header.topic} has become static: ask a name server for its route",
            ) from None
        if plan is pull.plan:
            return pull
        return Pull(pull.connection, pull.command, pull.stream, plan, pull.queue_offset, pull.commit_offset)

    # --- plans ---

    def _plan_of(self, stream: PullStream, connection: Connection, command: RemotingCommand) -> PullPlan:
        plan = stream.plan
        if plan is None or plan.versions != self._versions() or plan.request_code != command.code:
            plan = self._new_plan(stream.header, connection, command)
            stream.plan = plan if self._is_shared(plan) else None
        return plan

    def _versions(self) -> tuple[int, ...]:
        """Return the versions of all tables that plans are made from."""
        return (
            self._topics.version,
            self._groups.version,
            self._consumers.version,
            self._settings_version,
        )

    def _is_shared(self, plan: PullPlan) -> bool:
        """Tell whether a plan holds for every connection until one of the versions changes.

        A filter of properties depends on a table of its own. A plan of a broadcasting group, or under
        `rejectPullConsumerEnable`, depends on the member that asks.
        """
        members = self._consumers.find_group(plan.header.consumer_group)
        return not (
            plan.queue is None
            or plan.wanted.properties is not None
            or plan.broadcast_member is not None
            or (members is not None and members.is_broadcasting)
            or self._settings.reject_pull_consumer_enable
        )

    def _new_plan(
        self, header: PullMessageRequestHeader, connection: Connection, command: RemotingCommand
    ) -> PullPlan:
        group, topic = self._check(header, connection, command)
        flags = (topic.topic_sys_flag, group.group_sys_flag)
        return PullPlan(
            versions=self._versions(),
            request_code=command.code,
            header=header,
            queue=self._store.queues.get(header.topic, header.queue_id),
            offsets_key=key_of(header.consumer_group, header.topic),
            wanted=self._wanted(header, group),
            answers=PullAnswers(_MASTER_ID, *flags),
            broadcast_member=self._broadcast.client_id(connection, header),
            commits=bool(header.sys_flag & PullSysFlag.COMMIT_OFFSET),
            may_be_held=bool(header.sys_flag & PullSysFlag.SUSPEND),
            answers_of_old=(
                PullAnswers(group.which_broker_when_consume_slowly, *flags)
                if self._settings.slave_read_enable
                else None
            ),
        )

    # --- checks; each raises CommandError, and the first one LogicalQueue ---

    def _check(
        self, header: PullMessageRequestHeader, connection: Connection, command: RemotingCommand
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """Return the configurations of the group and the topic, if the group may read the queue."""
        settings = self._settings
        if not settings.broker_permission & READ:
            raise _forbidden(ForbiddenType.BROKER, "pulling messages from this broker is forbidden")
        if command.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise _forbidden(
                ForbiddenType.BROKER, "this broker does not serve lite pulls (litePullMessageEnable)"
            )
        group = existing_group(self._groups, header.consumer_group, CREATE_GROUP)
        if not group.consume_enable:
            raise _forbidden(ForbiddenType.GROUP, f"consumer group {header.consumer_group} may not consume")
        topic = existing_topic(self._topics, header.topic, CREATE_TOPIC)
        if not topic.perm & READ:
            raise _forbidden(ForbiddenType.TOPIC, f"pulling messages from topic {header.topic} is forbidden")
        if header.logical is not False and header.topic in self._topics.mappings:
            raise LogicalQueue
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
        """Refuse a pull that comes neither from a push consumer nor from the system itself."""
        members = self._consumers.find_group(name)
        is_push = members is not None and members.consume_type is not ConsumeType.CONSUME_ACTIVELY
        is_member = members is not None and connection in members.members
        if not (is_push or is_member or is_system_puller(name)):
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"this broker serves push consumers only (rejectPullConsumerEnable), group {name} is none",
            )

    def _wanted(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> MessageFilter:
        """Return the filter of the request's own subscription, or else of the group's."""
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            carried = self._parsed.of(header.topic, header.subscription, header.expression_type)
            return self._filters.of_request(header.consumer_group, carried)
        subscription = self._subscription(header, group)
        return self._filters.of_group(header.consumer_group, subscription, header.sub_version)

    def _subscription(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> Subscription:
        """Return the subscription to the topic from the heartbeats of the group's members."""
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


def _forbidden(kind: ForbiddenType, remark: str) -> CommandError:
    return CommandError(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind.value)})
