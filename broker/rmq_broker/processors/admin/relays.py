"""What an administrator wants of a running consumer: codes 223, 307 and 309, passed on to the client.

Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor and Broker2Client. Who answers is the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.offsets import GetConsumerStatusBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.errors import BodyError, CommandError, RequestError, RequestTimeout
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.headers.consumer import GetConsumerStatusRequestHeader
from rmq_remoting.message_errors import MessageIdError
from rmq_remoting.message_ids import parse_offset_message_id

from .settling import answer_later

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.client import ConnectedClient
    from ...clients.consumers import ConsumerTable
    from ...groups.table import SubscriptionGroupTable
    from ...topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")

# How long a client may take (Broker2Client).
CALL_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 5.0

# Clients before these do not know the requests (Apache RocketMQ 5.3.3, MQVersion).
FIRST_VERSION_WITH_RESET: Final = 28  # V3_0_7_SNAPSHOT
FIRST_VERSION_WITH_CALLS: Final = 62  # V3_1_8_SNAPSHOT


class ConsumerRelayProcessor:
    """Passes requests on. `record_at` gives a stored message by its offset in the log; it reads from disk."""

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
        """307: everything about one consumer. Raises CommandError where it is not connected, or too old."""
        header = GetConsumerRunningInfoRequestHeader.decode(request.ext_fields)
        client = self._member(header.consumer_group, header.client_id)
        return answer_later(self._call(client, request, request.ext_fields, request.body), "running info")

    def consume_directly(self, connection: Connection, request: RemotingCommand) -> Result:
        """309: have one consumer consume a stored message now, whatever the group's offsets are.

        Raises CommandError where it is not connected or too old, and for an id that is none.
        """
        header = ConsumeMessageDirectlyResultRequestHeader.decode(request.ext_fields)
        client = self._member(header.consumer_group, header.client_id or "")
        offset = _offset_of(header.msg_id)
        log.info("%s has %s consume message %s", connection.peer, client, header.msg_id)
        fields = {**request.ext_fields, **self._flags(header)}
        return answer_later(self._call_with_message(client, request, fields, offset), "consume directly")

    def status(self, connection: Connection, request: RemotingCommand) -> Result:
        """223: the offsets that a group's members are at in a topic, by member; of one member or of all.

        A member that does not answer is left out. Raises CommandError where there is nobody to ask.
        """
        header = GetConsumerStatusRequestHeader.decode(request.ext_fields)
        clients = self._members(header.group, header.client_addr or "")
        return answer_later(self._statuses(clients, request, header), "consumer status")

    # --- whom to ask ---

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

    # --- asking ---

    async def _call(
        self, client: ConnectedClient, request: RemotingCommand, fields: dict[str, str], body: bytes
    ) -> Answer:
        """The client's own answer. Raises CommandError where there is none."""
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
        """What the client has to know besides: which broker this is, and flags of topic and group."""
        fields = {"brokerName": self._broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return fields


def check_version(client: ConnectedClient, first: int, name: str) -> None:
    """Raises CommandError for a client that is too old to know what it would be asked."""
    if client.version < first:
        remark = f"client {client} is too old for this (version {client.version}): it takes {name} or later"
        raise CommandError(ResponseCode.SYSTEM_ERROR, remark)


async def _offsets_of(client: ConnectedClient, fields: dict[str, str]) -> GetConsumerStatusBody | None:
    question = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(fields))
    try:
        answer = await client.connection.send_request(question, STATUS_SECONDS)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            return GetConsumerStatusBody.decode(answer.body)
        log.warning("consumer %s does not tell its offsets: %s %s", client, answer.code, answer.remark)
    except (RequestError, BodyError) as error:
        log.warning("consumer %s does not tell its offsets: %s", client, error)
    return None


def _offset_of(message_id: str | None) -> int:
    """The place that a message id names. Raises CommandError."""
    try:
        offset = parse_offset_message_id(message_id or "").physical_offset
    except MessageIdError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from error
    if offset < 0:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"msgId {message_id} names no place in the log")
    return offset
