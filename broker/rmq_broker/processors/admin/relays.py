"""Admin requests that the broker forwards to a running consumer: codes 223, 307 and 309.

The client answers. Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor and Broker2Client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.offsets import GetConsumerStatusBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import deferred_answer
from rmq_remoting.errors import BodyError, CommandError, RequestError, RequestTimeout
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.headers.consumer import GetConsumerStatusRequestHeader
from rmq_remoting.message_errors import MessageIdError
from rmq_remoting.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.client import ConnectedClient
    from ...clients.consumers import ConsumerTable
    from ...groups.table import SubscriptionGroupTable
    from ...topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")

# Time-out for the client's answer (Broker2Client).
CALL_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 5.0

# Oldest client versions that know the requests (Apache RocketMQ 5.3.3, MQVersion).
FIRST_VERSION_WITH_RESET: Final = 28  # V3_0_7_SNAPSHOT
FIRST_VERSION_WITH_CALLS: Final = 62  # V3_1_8_SNAPSHOT


class ConsumerRelayProcessor:
    """Forwards requests. `record_at` reads a stored message by its physical offset from the disk."""

    def __init__(
        self,
        consumers: ConsumerTable,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        record_at: Callable[[int], bytes | None],
        broker_name: str,
    ) -> None:
        self._consumers = consumers
        self._groups = groups
        self._topics = topics
        self._record_at = record_at
        self._broker_name = broker_name

    def running_info(self, connection: Connection, request: RemotingCommand) -> Result:
        """307: running information of a consumer. Raises CommandError if it is not connected, or too old."""
        header = GetConsumerRunningInfoRequestHeader.decode(request.ext_fields)
        client = self._member(header.consumer_group, header.client_id)
        return deferred_answer(self._call(client, request, request.ext_fields, request.body), "running info")

    def consume_directly(self, connection: Connection, request: RemotingCommand) -> Result:
        """309: let one consumer consume a stored message now, regardless of the group's offsets.

        Raises CommandError if it is not connected or too old, and for an invalid message id.
        """
        header = ConsumeMessageDirectlyResultRequestHeader.decode(request.ext_fields)
        client = self._member(header.consumer_group, header.client_id or "")
        offset = _offset_of(header.msg_id)
        log.info(
            "direct consumption requested peer=%s client=%s message_id=%s",
            connection.peer,
            client,
            header.msg_id,
        )
        fields = {**request.ext_fields, **self._flags(header)}
        return deferred_answer(self._call_with_message(client, request, fields, offset), "consume directly")

    def status(self, connection: Connection, request: RemotingCommand) -> Result:
        """223: the current offsets of a group's members in a topic, by member; of one member or of all.

        A member that does not answer is left out. Raises CommandError if no member is connected.
        """
        header = GetConsumerStatusRequestHeader.decode(request.ext_fields)
        clients = self._members(header.group, header.client_addr or "")
        return deferred_answer(self._statuses(clients, request, header), "consumer status")

    # --- choice of members ---

    def _member(self, group_name: str, client_id: str) -> ConnectedClient:
        group = self._consumers.find_group(group_name)
        client = None if group is None else group.find_client(client_id)
        if client is None:
            remark = f"consumer {client_id!r} of group {group_name} is not connected to this broker"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        check_version(client, FIRST_VERSION_WITH_CALLS, "3.1.8")
        return client

    def _members(self, group_name: str, client_id: str) -> list[ConnectedClient]:
        group = self._consumers.find_group(group_name)
        clients = [] if group is None else list(group.members.values())
        if client_id:
            clients = [client for client in clients if client.client_id == client_id][:1]
        if not clients:
            who = f"consumer {client_id!r}" if client_id else "no consumer"
            problem = "is not connected" if client_id else "is connected"
            remark = f"{who} of group {group_name} {problem} to this broker"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        for client in clients:
            check_version(client, FIRST_VERSION_WITH_RESET, "3.0.7")
        return clients

    # --- requests to members ---

    async def _call(
        self, client: ConnectedClient, request: RemotingCommand, fields: dict[str, str], body: bytes
    ) -> Answer:
        """Return the client's answer. Raises CommandError if there is none."""
        relayed = RemotingCommand.request(request.code, dict(fields), body)
        try:
            answer = await client.connection.send_request(relayed, CALL_SECONDS)
        except RequestTimeout as error:
            remark = f"consumer {client} has not answered in time: {error}"
            raise CommandError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from error
        except RequestError as error:
            remark = f"consumer {client} cannot be asked: {error}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from error
        return request.response(answer.code, answer.remark, answer.ext_fields, answer.body)

    async def _call_with_message(
        self, client: ConnectedClient, request: RemotingCommand, fields: dict[str, str], offset: int
    ) -> Answer:
        record = await asyncio.get_running_loop().run_in_executor(None, self._record_at, offset)
        if record is None:
            remark = (
                f"no message begins at offset {offset} of this broker's commit log: it has been removed, or "
                "the message id is of another broker"
            )
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        return await self._call(client, request, fields, record)

    async def _statuses(
        self,
        clients: list[ConnectedClient],
        request: RemotingCommand,
        header: GetConsumerStatusRequestHeader,
    ) -> Answer:
        fields = {"topic": header.topic, "group": header.group}
        tables = await asyncio.gather(*(_offsets_of(client, fields) for client in clients))
        body = GetConsumerStatusBody(
            consumer_table={
                client.client_id: table.message_queue_table
                for client, table in zip(clients, tables, strict=True)
                if table is not None
            }
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def _flags(self, header: ConsumeMessageDirectlyResultRequestHeader) -> dict[str, str]:
        """Return the additional fields for the client: the broker's name, and flags of topic and group."""
        fields = {"brokerName": self._broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return fields


def check_version(client: ConnectedClient, first: int, name: str) -> None:
    """Raise CommandError for a client that is too old for the request."""
    if client.version < first:
        remark = f"client {client} is too old for this (version {client.version}): it takes {name} or later"
        raise CommandError(ResponseCode.SYSTEM_ERROR, remark)


async def _offsets_of(client: ConnectedClient, fields: dict[str, str]) -> GetConsumerStatusBody | None:
    question = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(fields))
    try:
        answer = await client.connection.send_request(question, STATUS_SECONDS)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            return GetConsumerStatusBody.decode(answer.body)
        log.warning("consumer status refused client=%s: %s %s", client, answer.code, answer.remark)
    except (RequestError, BodyError) as error:
        log.warning("consumer status not received client=%s: %s", client, error)
    return None


def _offset_of(message_id: str | None) -> int:
    """Return the address and physical offset in a message id. Raises CommandError."""
    try:
        offset = parse_offset_message_id(message_id or "").physical_offset
    except MessageIdError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from error
    if offset < 0:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER,
            f"msgId {message_id} contains no physical offset",
        )
    return offset
