"""The send request for a message that this broker stores with another one.

Source: Apache RocketMQ 5.3.3, EscapeBridge.putMessageToRemoteBroker, BrokerOuterAPI.buildSendMessageRequest,
TransactionalMessageUtil.buildTransactionalMessageFromHalfMessage. Apache's broker leaves the property
TRAN_MSG in messages, so that the other broker takes the retry of a committed message for a half message.
"""

from __future__ import annotations

from typing import Final

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.send import SendMessageRequestHeader, SendTarget
from rmq_remoting.message_properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
    properties_to_string,
)
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.inner_message import InnerMessage
from ..delivery.timer_admission import TIMER_PROPERTIES
from ..topics.names import TRANSACTION_HALF_TOPIC

_DELAY: Final = "DELAY"
_HALF: Final = "TRAN_MSG"
# They would delay the message once more, or prepare it in a transaction, or they tell of this broker alone.
_NOT_SENT: Final = frozenset(
    {
        _DELAY,
        _HALF,
        *TIMER_PROPERTIES,
        PROPERTY_TIMER_OUT_MS,
        PROPERTY_TIMER_ENQUEUE_MS,
        PROPERTY_TIMER_DEQUEUE_MS,
        PROPERTY_TIMER_ROLL_TIMES,
        PROPERTY_TIMER_DEL_UNIQKEY,
        PROPERTY_REAL_TOPIC,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_TRANSACTION_CHECK_TIMES,
        PROPERTY_TRANSACTION_ID,
        PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    }
)
# With which a broker may create the topic (TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC).
_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 8


class Outgoing:
    """A message as it is sent: in its own topic; a half message is prepared there once more."""

    def __init__(self, message: InnerMessage, sender_group: str) -> None:
        """`sender_group`: the producer group of messages without one."""
        fields = decode_properties(message.properties)
        self.topic, self.queue_id = message.topic, message.queue_id
        sent = {name: value for name, value in fields.items() if name not in _NOT_SENT}
        kind = MessageSysFlag.TRANSACTION_NOT
        if message.topic == TRANSACTION_HALF_TOPIC:
            self.topic = fields.get(PROPERTY_REAL_TOPIC, "")
            queue_id = fields.get(PROPERTY_REAL_QUEUE_ID, "")
            self.queue_id = int(queue_id) if queue_id.isdigit() and len(queue_id) < 10 else 0
            sent[_HALF] = "true"
            kind = MessageSysFlag.TRANSACTION_PREPARED
        self._group = fields.get(PROPERTY_PRODUCER_GROUP) or sender_group
        self._properties = properties_to_string(sent).encode("utf-8", "replace")
        self._sys_flag = MessageSysFlag.with_transaction_type(message.sys_flag, kind)
        self._body = message.body
        self._flag = message.flag
        self._reconsume_times = message.reconsume_times
        self._born_timestamp_ms = message.born_timestamp_ms

    def request(self, broker_name: str, queue_id: int) -> RemotingCommand:
        """Return the request (310) that stores the message in a queue of another broker."""
        target = SendTarget(
            self._group,
            self.topic,
            _DEFAULT_TOPIC,
            _DEFAULT_QUEUES,
            queue_id,
            sys_flag=self._sys_flag,
            flag=self._flag,
            reconsume_times=self._reconsume_times,
            broker_name=broker_name,
        )
        header = SendMessageRequestHeader(target, self._born_timestamp_ms, self._properties)
        return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header.encode_v2(), self._body)
