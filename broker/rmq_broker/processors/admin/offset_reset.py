"""Having a group go on elsewhere: code 222.

Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor and Broker2Client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.bodies.message_queue import MessageQueueForC
from rmq_remoting.bodies.offsets import ResetOffsetBody, ResetOffsetBodyForC
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.errors import CommandError, RequestError
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader

from ...groups.lookup import unknown_group
from .relays import FIRST_VERSION_WITH_RESET, check_version
from .settling import Settle, answer_later, answer_when_settled

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.client import ConnectedClient
    from ...clients.consumers import ConsumerTable
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...settings.topics import TopicSettings
    from .reset_targets import OffsetsByQueue, ResetTargets

log = logging.getLogger("rmq.broker.processors")


class ServerSideReset:
    """The broker keeps the new offsets, and the next pull of each queue is told where to go on.

    Until then commits are not taken: they are from before the reset. Works whether or not members are
    connected. `woken` has pulls looked at that are held for a queue; `settle` waits until the offsets are on
    disk.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        groups: SubscriptionGroupTable,
        woken: Callable[[str, int], None],
        settle: Settle,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._woken = woken
        self._settle = settle

    def check(self, header: ResetOffsetRequestHeader) -> None:
        """Raises CommandError for a group that does not exist."""
        if header.group not in self._groups:
            raise unknown_group(header.group)

    async def apply(
        self, header: ResetOffsetRequestHeader, targets: OffsetsByQueue, request: RemotingCommand
    ) -> Answer:
        """Reset; answered when it is on disk."""
        self.check(header)  # it may have been deleted meanwhile
        for queue, offset in targets.items():
            self._offsets.assign_reset(header.group, queue.topic, queue.queue_id, offset)
            self._woken(queue.topic, queue.queue_id)
        body = ResetOffsetBody(offset_table=targets)
        return await answer_when_settled(
            request.response(ResponseCode.SUCCESS, body=body.encode()), self._settle
        )


class ClientSideReset:
    """The members that are connected are told (220), and commit the new offsets themselves."""

    def __init__(self, offsets: ConsumerOffsetTable, consumers: ConsumerTable) -> None:
        self._offsets = offsets
        self._consumers = consumers

    def check(self, header: ResetOffsetRequestHeader) -> list[ConnectedClient]:
        """The members. Raises CommandError where there are none, or one is too old for this."""
        group = self._consumers.find_group(header.group)
        if group is None:
            remark = f"no consumer of group {header.group} is connected: there is nobody to tell of a reset"
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = list(group.members.values())
        for member in members:
            check_version(member, FIRST_VERSION_WITH_RESET, "3.0.7")
        return members

    async def apply(
        self, header: ResetOffsetRequestHeader, targets: OffsetsByQueue, request: RemotingCommand
    ) -> Answer:
        """Tell all members; without `force` a group is only sent back, never forward."""
        for queue, target in targets.items():
            committed = self._offsets.query(header.group, queue.topic, queue.queue_id)
            if committed < 0:
                remark = f"group {header.group} has no offset for queue {queue.queue_id} of {queue.topic}"
                raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
            if not header.force:
                targets[queue] = min(target, committed)
        body = ResetOffsetBody(offset_table=targets)
        for member in self.check(header):
            for_c = LanguageCode.CPP in (member.language, request.language)
            _tell(member, header, _body_for_c(targets) if for_c else body)
        return request.response(ResponseCode.SUCCESS, body=body.encode())


class OffsetResetProcessor:
    """Resets in one of the two ways (`useServerSideResetOffset`)."""

    def __init__(
        self,
        targets: ResetTargets,
        server_side: ServerSideReset,
        client_side: ClientSideReset,
        settings: TopicSettings,
    ) -> None:
        self._targets = targets
        self._server_side = server_side
        self._client_side = client_side
        self._settings = settings

    def reset(self, connection: Connection, request: RemotingCommand) -> Result:
        """222: have a group go on at an offset or a time, in one queue or in all; the new offsets.

        Raises CommandError for what does not exist, and for an offset outside of its queue.
        """
        header = ResetOffsetRequestHeader.decode(request.ext_fields)
        log.info(
            "%s resets group %s in topic %s, queue %s, to offset %s, time %s, force=%s",
            connection.peer,
            header.group,
            header.topic,
            "all" if header.queue_id < 0 else header.queue_id,
            header.offset,
            header.timestamp,
            header.force,
        )
        return answer_later(self._reset(header, request), "reset offsets")

    async def _reset(self, header: ResetOffsetRequestHeader, request: RemotingCommand) -> Answer:
        way = self._server_side if self._settings.use_server_side_reset_offset else self._client_side
        targets = await self._targets.of(header)
        return await way.apply(header, targets, request)


def _tell(
    member: ConnectedClient, header: ResetOffsetRequestHeader, body: ResetOffsetBody | ResetOffsetBodyForC
) -> None:
    fields = ResetOffsetRequestHeader(
        topic=header.topic, group=header.group, timestamp=header.timestamp, force=header.force
    )
    notice = RemotingCommand.request(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields.encode(), body.encode(), oneway=True
    )
    try:
        member.connection.send_oneway(notice)
    except RequestError as error:
        log.warning("consumer %s not told that group %s was reset: %s", member, header.group, error)


def _body_for_c(targets: OffsetsByQueue) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
            )
            for queue, offset in targets.items()
        ]
    )
