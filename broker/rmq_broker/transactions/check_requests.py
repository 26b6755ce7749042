"""Check requests: ask a producer for the outcome of a transaction (request 39).

Source: Apache RocketMQ 5.3.3, AbstractTransactionalMessageCheckListener, ProducerManager.getAvailableChannel.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.message_properties import PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX

from ..store.api import RecordTemplate
from ..topics.names import TRANSACTION_HALF_TOPIC
from .half_messages import HalfMessage, property_text

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..clients.producers import ProducerTable
    from ..delivery.inner_message import InnerMessage

log = logging.getLogger("rmq.broker.transactions")


class CheckRequests:
    """Sends half messages to producers of their groups, which answer by END_TRANSACTION requests."""

    def __init__(self, producers: ProducerTable, broker_name: str) -> None:
        self.sent = 0
        self.unsent = 0  # no producer of the group was connected
        self._producers = producers
        self._broker_name = broker_name
        self._turn = 0

    def send(self, half: HalfMessage, message: InnerMessage) -> None:
        """Send a request to a connected producer of the group, round robin; `message`: as stored."""
        connection = self._next_connection(half.group)
        if connection is None:
            self.unsent += 1
            return
        transaction_id = property_text(message.properties, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or None
        header = CheckTransactionStateRequestHeader(
            commit_log_offset=half.physical_offset,
            msg_id=transaction_id,
            offset_msg_id=(message.store_host + half.physical_offset.to_bytes(8, "big")).hex().upper(),
            topic=TRANSACTION_HALF_TOPIC,
            tran_state_table_offset=half.queue_offset,
            transaction_id=transaction_id,
            broker_name=self._broker_name,
        )
        request = RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE,
            header.encode(),
            body=_record_of_its_topic(half, message),
            oneway=True,
        )
        try:
            connection.send_oneway(request)
        except RequestError as error:
            self.unsent += 1
            log.info(
                "transaction check request not sent producer=%s group=%s cause=%s",
                connection.peer,
                half.group,
                error,
            )
        else:
            self.sent += 1

    def _next_connection(self, group: str) -> Connection | None:
        members = self._producers.find_group(group) or []
        self._turn += 1
        for index in range(len(members)):
            connection = members[(self._turn + index) % len(members)].connection
            if not connection.is_closed and connection.is_writable:
                return connection
        return None


def _record_of_its_topic(half: HalfMessage, message: InnerMessage) -> bytes:
    """Encode the half message as a record of its own topic and queue."""
    template = RecordTemplate(
        half.topic,
        half.queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        born_host_bytes=len(message.born_host),
        store_host=message.store_host,
    )
    return template.pack(
        template.fixed_bytes + len(message.body) + len(message.properties),
        message.body,
        message.properties,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=half.stored_ms,
    )
