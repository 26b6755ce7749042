"""Reset of a group's offsets: code 222.

Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor and Broker2Client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.message_queue import MessageQueueForC
from rmq_remoting.bodies.offsets import ResetOffsetBody, ResetOffsetBodyForC
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import Persist, answer_when_persisted, deferred_answer
from rmq_remoting.errors import CommandError, RequestError
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader

from ...delivery.turns import ITEMS_PER_SLICE
from ...groups.lookup import unknown_group
from ...topics.lookup import existing_topic
from .relays import FIRST_VERSION_WITH_RESET, check_version

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.client import ConnectedClient
    from ...clients.consumers import ConsumerTable
    from ...delivery.turns import LoopSlices
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...settings.topics import TopicSettings
    from ...topics.table import TopicTable
    from .reset_targets import OffsetsByQueue, ResetTargets

log = logging.getLogger("rmq.broker.processors")


class ServerSideReset:
    """The broker stores the new offsets, and answers the next pull of each queue with its new offset.

    Until then commits are refused, because they are from before the reset. This works whether or not members
    are connected. `woken` wakes the held pulls of a queue; `persist` waits until the offsets are persisted.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        slices: LoopSlices,
        woken: Callable[[str, int], None],
        persist: Persist,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._slices = slices
        self._woken = woken
        self._persist = persist

    def check(self, header: ResetOffsetRequestHeader) -> None:
        """Raise CommandError for a group that does not exist."""
        if header.group not in self._groups:
            raise unknown_group(header.group)

    async def apply(
        self, header: ResetOffsetRequestHeader, targets: OffsetsByQueue, request: RemotingCommand
    ) -> Answer:
        """Reset the offsets, a slice of queues at a time; answered when they are persisted."""
        self.check(header)  # the group may have been deleted since
        for number, (queue, offset) in enumerate(targets.items()):
            if number and number % ITEMS_PER_SLICE == 0:
                await self._slices.pause(self)
                self.check(header)
                existing_topic(self._topics, header.topic)
            self._offsets.assign_reset(header.group, queue.topic, queue.queue_id, offset)
            self._woken(queue.topic, queue.queue_id)
        body = await _encoded(ResetOffsetBody(offset_table=targets))
        return await answer_when_persisted(request.response(ResponseCode.SUCCESS, body=body), self._persist)


class ClientSideReset:
    """The broker notifies the connected members (220), which commit the new offsets themselves."""

    def __init__(self, offsets: ConsumerOffsetTable, consumers: ConsumerTable, slices: LoopSlices) -> None:
        self._offsets = offsets
        self._consumers = consumers
        self._slices = slices

    def check(self, header: ResetOffsetRequestHeader) -> list[ConnectedClient]:
        """Return the members. Raises CommandError if there are none, or one is too old for request 220."""
        group = self._consumers.find_group(header.group)
        if group is None:
            remark = (
                f"no consumer of group {header.group} is connected, so the reset reaches no member; "
                "start one or set useServerSideResetOffset=true"
            )
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = list(group.members.values())
        for member in members:
            check_version(member, FIRST_VERSION_WITH_RESET, "3.0.7")
        return members

    async def apply(
        self, header: ResetOffsetRequestHeader, targets: OffsetsByQueue, request: RemotingCommand
    ) -> Answer:
        """Notify all members; without `force` a reset only moves a group back, never forward."""
        for number, (queue, target) in enumerate(targets.items()):
            if number and number % ITEMS_PER_SLICE == 0:
                await self._slices.pause(self)
            committed = self._offsets.query(header.group, queue.topic, queue.queue_id)
            if committed < 0:
                remark = f"group {header.group} has no offset for queue {queue.queue_id} of {queue.topic}"
                raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
            if not header.force:
                targets[queue] = min(target, committed)
        members = self.check(header)
        body, body_for_c = await _encoded(ResetOffsetBody(offset_table=targets)), b""
        if any(_needs_body_for_c(member, request) for member in members):
            body_for_c = await _encoded(_body_for_c(targets))
        for member in members:
            _tell(member, header, body_for_c if _needs_body_for_c(member, request) else body)
        return request.response(ResponseCode.SUCCESS, body=body)


class OffsetResetProcessor:
    """Resets on the server or client side (`useServerSideResetOffset`)."""

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
        """222: reset a group to an offset or a time, in one queue or all; returns the new offsets.

        Raises CommandError for an unknown group, topic or queue, and for an offset outside of its queue.
        """
        header = ResetOffsetRequestHeader.decode(request.ext_fields)
        log.info(
            "offset reset requested peer=%s group=%s topic=%s queue=%s offset=%s time=%s force=%s",
            connection.peer,
            header.group,
            header.topic,
            "all" if header.queue_id < 0 else header.queue_id,
            header.offset,
            header.timestamp,
            header.force,
        )
        return deferred_answer(self._reset(header, request), "reset offsets")

    async def _reset(self, header: ResetOffsetRequestHeader, request: RemotingCommand) -> Answer:
        way = self._server_side if self._settings.use_server_side_reset_offset else self._client_side
        targets = await self._targets.of(header)
        return await way.apply(header, targets, request)


def _needs_body_for_c(member: ConnectedClient, request: RemotingCommand) -> bool:
    return LanguageCode.CPP in (member.language, request.language)


def _tell(member: ConnectedClient, header: ResetOffsetRequestHeader, body: bytes) -> None:
    fields = ResetOffsetRequestHeader(
        topic=header.topic, group=header.group, timestamp=header.timestamp, force=header.force
    )
    notice = RemotingCommand.request(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields.encode(), body, oneway=True
    )
    try:
        member.connection.send_oneway(notice)
    except RequestError as error:
        log.warning("reset not sent client=%s group=%s: %s", member, header.group, error)


async def _encoded(body: ResetOffsetBody | ResetOffsetBodyForC) -> bytes:
    """Encode a body, a large one in a thread."""
    if len(body.offset_table) <= ITEMS_PER_SLICE:
        return body.encode()
    return await asyncio.get_running_loop().run_in_executor(None, body.encode)


def _body_for_c(targets: OffsetsByQueue) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
            )
            for queue, offset in targets.items()
        ]
    )
