"""Asking producers what became of their transactions (request 39).

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


class Questions:
    """Sends one producer of a group the half message; what it knows comes as END_TRANSACTION."""

    def __init__(self, producers: ProducerTable, broker_name: str) -> None:
        self.asked = 0
        self.unasked = 0  # nobody of the group was there
        self._producers = producers
        self._broker_name = broker_name
        self._turn = 0

    def ask(self, half: HalfMessage, message: InnerMessage) -> None:
        """Ask one of the group that is connected, each in turn; `message` is the half message as stored."""
        connection = self._anybody(half.group)
        if connection is None:
            self.unasked += 1
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
            body=_as_its_topic_has_it(half, message),
            oneway=True,
        )
        try:
            connection.send_oneway(request)
        except RequestError as error:
            self.unasked += 1
            log.info("producer %s of group %s was not asked: %s", connection.peer, half.group, error)
        else:
            self.asked += 1

    def _anybody(self, group: str) -> Connection | None:
        members = self._producers.find_group(group) or []
        self._turn += 1
        for index in range(len(members)):
            connection = members[(self._turn + index) % len(members)].connection
            if not connection.is_closed and connection.is_writable:
                return connection
        return None


def _as_its_topic_has_it(half: HalfMessage, message: InnerMessage) -> bytes:
    """The half message as a record of the topic that it is for."""
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
