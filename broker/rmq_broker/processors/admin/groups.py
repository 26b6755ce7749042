"""Consumer groups: codes 200, 201, 207, 225, 352 and 353."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq_remoting.bodies.group import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupList
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Result
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.consumer import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)

from ...groups.lookup import unknown_group
from ...groups.names import group_name_problem
from ...topics.attributes import AttributeProblem
from ...topics.permissions import READ
from .settling import Settle, answer_when_settled
from .topics import MAX_QUEUE_NUMS

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...statistics.broker_statistics import BrokerStatistics

log = logging.getLogger("rmq.broker.processors")


class GroupAdminProcessor:
    """Creating, changing, deleting and showing groups; changes are answered when they are on disk."""

    def __init__(
        self,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        statistics: BrokerStatistics,
        settle: Settle,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._statistics = statistics
        self._settle = settle

    def update(self, connection: Connection, request: RemotingCommand) -> Result:
        """200: create or update a group."""
        return self._update(connection, request, [SubscriptionGroupConfig.decode(request.body)])

    def update_all(self, connection: Connection, request: RemotingCommand) -> Result:
        """225: create or update several groups, all or none."""
        configs = SubscriptionGroupList.decode(request.body).group_config_list
        return self._update(connection, request, configs)

    def delete(self, connection: Connection, request: RemotingCommand) -> Result:
        """207: delete a group, with its offsets if that is asked for."""
        header = DeleteSubscriptionGroupRequestHeader.decode(request.ext_fields)
        log.info("consumer group %s is deleted by %s", header.group_name, connection.peer)
        self._groups.delete(header.group_name)
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
        self._statistics.forget_group(header.group_name)
        return answer_when_settled(request.response(ResponseCode.SUCCESS), self._settle)

    def get(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """352: one group's configuration; an unknown one is created where that is allowed."""
        name = GetSubscriptionGroupConfigRequestHeader.decode(request.ext_fields).group
        config = self._groups.find(name)
        if config is None:
            raise unknown_group(name)
        return request.response(ResponseCode.SUCCESS, body=config.encode())

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """201: all groups' configuration."""
        return request.response(ResponseCode.SUCCESS, body=self._groups.encode())

    def forbid(self, connection: Connection, request: RemotingCommand) -> Result:
        """353: let a group read a topic or forbid it to, and say which of both holds.

        Without `readable` nothing is changed. Raises CommandError for a group that does not exist.
        """
        header = UpdateGroupForbiddenRequestHeader.decode(request.ext_fields)
        group, topic = header.group, header.topic
        if group not in self._groups:
            raise unknown_group(group)
        if header.readable is not None:
            log.info("%s sets readable=%s for %s and %s", connection.peer, header.readable, group, topic)
            self._groups.permit_reading(group, topic, readable=header.readable)
        readable = not self._groups.forbidden(group, topic) & READ
        body = GroupForbidden(group=group, topic=topic, readable=readable)
        return answer_when_settled(request.response(ResponseCode.SUCCESS, body=body.encode()), self._settle)

    def _update(
        self, connection: Connection, request: RemotingCommand, configs: list[SubscriptionGroupConfig]
    ) -> Result:
        for config in configs:
            _check(config)
        names = ", ".join(config.group_name for config in configs)
        log.info("consumer groups %s are created or updated by %s", names, connection.peer)
        try:
            self._groups.update_all(configs)
        except AttributeProblem as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return answer_when_settled(request.response(ResponseCode.SUCCESS), self._settle)


def _check(config: SubscriptionGroupConfig) -> None:
    """Raises CommandError for a group that cannot be."""
    name, queues = config.group_name, config.retry_queue_nums
    problem = group_name_problem(name)
    if problem is None and not 0 <= queues <= MAX_QUEUE_NUMS:
        problem = f"group {name}: {queues} queues of its retry topic; 0 to {MAX_QUEUE_NUMS} are possible"
    if problem is not None:
        raise CommandError(ResponseCode.INVALID_PARAMETER, problem)
