"""A message that another broker is to store is sent without the properties that would delay it once more."""

from __future__ import annotations

from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.escape.outgoing import Outgoing
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.send import SendMessageRequestHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from rmq_remoting.message_properties import decode_properties
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.clock import START_MS
from tests.unit.broker.timers.parts import with_properties

_OWN = {"UNIQ_KEY": "K", "TAGS": "paid", "KEYS": "a b"}
_OF_A_DELIVERY = {
    "DELAY": "3",
    "TIMER_DELIVER_MS": str(START_MS),
    "TIMER_DELAY_SEC": "9",
    "TIMER_OUT_MS": str(START_MS),
    "TIMER_ROLL_TIMES": "2",
    "REAL_TOPIC": "T",
    "REAL_QID": "1",
    "TRAN_MSG": "true",
}


def _header(message: InnerMessage) -> SendMessageRequestHeader:
    request = Outgoing(message, "InnerProducerGroup_broker-a_1").request("broker-b", 3)
    assert (request.code, request.body) == (RequestCode.SEND_MESSAGE_V2, message.body)
    return SendHeaderDecoder().decode(request)


def test_a_due_message() -> None:
    message = with_properties(_OWN | _OF_A_DELIVERY)
    message.reconsume_times = 2
    header = _header(message)
    target = header.target
    assert (target.topic, target.queue_id, target.broker_name) == ("T", 3, "broker-b")
    assert (target.producer_group, target.reconsume_times) == ("InnerProducerGroup_broker-a_1", 2)
    assert (target.flag, target.sys_flag, header.born_timestamp_ms) == (7, 0, START_MS)
    assert decode_properties(header.properties) == _OWN


def test_the_retry_of_a_committed_message_is_no_half_message() -> None:
    message = with_properties(_OWN | {"PGROUP": "shop", "TRAN_MSG": "true"}, "%RETRY%CG_T")
    message.sys_flag = MessageSysFlag.TRANSACTION_COMMIT | MessageSysFlag.COMPRESSED
    header = _header(message)
    assert header.target.producer_group == "shop"
    assert header.target.sys_flag == MessageSysFlag.COMPRESSED
    assert "TRAN_MSG" not in decode_properties(header.properties)


def test_a_half_message_is_prepared_once_more() -> None:
    half = {"PGROUP": "shop", "TRANSACTION_CHECK_TIMES": "4", "TRAN_PREPARED_QUEUE_OFFSET": "17"}
    header = _header(with_properties(_OWN | half | _OF_A_DELIVERY, "RMQ_SYS_TRANS_HALF_TOPIC"))
    target = header.target
    assert (target.topic, target.producer_group) == ("T", "shop")
    assert target.sys_flag == MessageSysFlag.TRANSACTION_PREPARED
    assert decode_properties(header.properties) == {**_OWN, "PGROUP": "shop", "TRAN_MSG": "true"}
