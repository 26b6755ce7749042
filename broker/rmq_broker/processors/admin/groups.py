"""Consumer groups: codes 200, 201, 207, 225, 352 and 353."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq_remoting.answers import Result
from rmq_remoting.bodies.group import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupList
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import Persist, answer_when_persisted
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

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...settings.topics import TopicSettings
    from ...statistics.broker_statistics import BrokerStatistics

log = logging.getLogger("rmq.broker.processors")


class GroupAdminProcessor:
    """Creates, changes, deletes and shows groups. Changes are answered when they are persisted.

    `persist` waits for the groups, `persist_deletion` also for the offsets.
    """

    def __init__(
        self,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        statistics: BrokerStatistics,
        settings: TopicSettings,
        persist: Persist,
        persist_deletion: Persist,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._statistics = statistics
        self._settings = settings
        self._persist = persist
        self._persist_deletion = persist_deletion

    def update(self, connection: Connection, request: RemotingCommand) -> Result:
        """200: create or update a group."""
        return self._update(connection, request, [SubscriptionGroupConfig.decode_request(request.body)])

    def update_all(self, connection: Connection, request: RemotingCommand) -> Result:
        """225: create or update several groups, all or none."""
        configs = SubscriptionGroupList.decode_request(request.body).group_config_list
        return self._update(connection, request, configs)

    def delete(self, connection: Connection, request: RemotingCommand) -> Result:
        """207: delete a group, and its offsets on request."""
        header = DeleteSubscriptionGroupRequestHeader.decode(request.ext_fields)
        log.info("consumer group deleted group=%s peer=%s", header.group_name, connection.peer)
        self._groups.delete(header.group_name)
        persist = self._persist
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            persist = self._persist_deletion
        self._statistics.forget_group(header.group_name)
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), persist)

    def get(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """352: one group's configuration; an unknown group is created if auto-creation is enabled."""
        name = GetSubscriptionGroupConfigRequestHeader.decode(request.ext_fields).group
        config = self._groups.find(name)
        if config is None:
            raise unknown_group(name)
        return request.response(ResponseCode.SUCCESS, body=config.encode())

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """201: all groups' configuration."""
        return request.response(ResponseCode.SUCCESS, body=self._groups.encode())

    def forbid(self, connection: Connection, request: RemotingCommand) -> Result:
        """353: allow or forbid a group to read a topic, and return the current state.

        Without `readable` nothing is changed. Raises CommandError for a group that does not exist.
        """
        header = UpdateGroupForbiddenRequestHeader.decode(request.ext_fields)
        group, topic = header.group, header.topic
        if group not in self._groups:
            raise unknown_group(group)
        if header.readable is not None:
            log.info(
                "group permission changed peer=%s readable=%s group=%s topic=%s",
                connection.peer,
                header.readable,
                group,
                topic,
            )
            self._groups.permit_reading(group, topic, readable=header.readable)
        readable = not self._groups.forbidden(group, topic) & READ
        body = GroupForbidden(group=group, topic=topic, readable=readable)
        response = request.response(ResponseCode.SUCCESS, body=body.encode())
        return answer_when_persisted(response, self._persist)

    def _update(
        self, connection: Connection, request: RemotingCommand, configs: list[SubscriptionGroupConfig]
    ) -> Result:
        for config in configs:
            self._check(config)
        names = ", ".join(config.group_name for config in configs)
        log.info("consumer groups created or updated groups=%s peer=%s", names, connection.peer)
        try:
            self._groups.update_all(configs)
        except AttributeProblem as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._persist)

    def _check(self, config: SubscriptionGroupConfig) -> None:
        """Raise CommandError for an invalid group configuration."""
        name, queues = config.group_name, config.retry_queue_nums
        problem = group_name_problem(name)
        most, known = self._settings.max_topic_queue_nums, self._groups.get(name)
        if known is not None:
            most = max(most, known.retry_queue_nums)
        if problem is None and not 0 <= queues <= most:
            problem = (
                f"group {name}: retryQueueNums must be between 0 and {most} (maxTopicQueueNums), not {queues}"
            )
        if problem is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, problem)
