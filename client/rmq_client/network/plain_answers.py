"""Routes and statistics as plain values, decoded without pydantic.

The import of pydantic takes a third of the time in which a process of Spark gets ready to read. The checks
here accept the forms that name servers and brokers write. Every other form goes to the typed bodies, which
accept fastjson's spellings and report errors by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.errors import JsonError
from rmq_remoting.integer_bounds import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from rmq_remoting.message_queue import MessageQueue

from .logical_queues import leaders_of

_BROKER_ID: Final = range(10**9)


class PlainHeader:
    """Ext fields of a request by wire name, all of them text."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: str) -> None:
        self._fields = fields

    def encode(self) -> dict[str, str]:
        """Return the ext fields."""
        return self._fields


@dataclass(slots=True)
class QueuesOnBroker:
    """The queues of a topic on one broker (a master and its slaves)."""

    broker_name: str
    perm: int
    read_queue_nums: int
    write_queue_nums: int


@dataclass(frozen=True, slots=True)
class AddressesOfBroker:
    """A broker's addresses by broker id; 0 is the master."""

    broker_name: str
    broker_addrs: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RouteData:
    """The route of one topic. `is_static`: its logical queues have parts on several brokers.

    `leaders`: the broker that leads each logical queue, by the queue's broker name and id.
    """

    broker_datas: list[AddressesOfBroker]
    queue_datas: list[QueuesOnBroker]
    order_topic_conf: str | None = None
    is_static: bool = False
    leaders: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueReach:
    """Offsets of a queue; `max_offset` is the next one, the timestamp that of the last message or 0."""

    last_update_timestamp: int
    max_offset: int
    min_offset: int


def decode_route(body: bytes) -> RouteData:
    """Decode the body of a route. Raises BodyError, JsonError."""
    try:
        return _route(fastjson.loads(body))
    except (_OtherForm, JsonError):
        return _route_of_any_form(body)


def decode_topic_stats(body: bytes) -> dict[MessageQueue, QueueReach]:
    """Decode the statistics of a topic on one broker. Raises BodyError, JsonError."""
    try:
        return _topic_stats(fastjson.loads(body))
    except (_OtherForm, JsonError):
        return _topic_stats_of_any_form(body)


# --- the usual form ---


class _OtherForm(Exception):
    """A body does not have the usual form."""


def _route(members: object) -> RouteData:
    route = _object(members)
    if "brokerDatas" not in route or "queueDatas" not in route:
        raise _OtherForm
    conf = route.get("orderTopicConf")
    # Static topics are rare. Their mappings are left to the typed body.
    if route.get("topicQueueMappingByBroker") or not (conf is None or type(conf) is str):
        raise _OtherForm
    return RouteData(
        [_addresses(each) for each in _list(route["brokerDatas"])],
        [_queues(each) for each in _list(route["queueDatas"])],
        conf,
    )


def _addresses(value: object) -> AddressesOfBroker:
    broker = _object(value)
    by_id = {}
    for key, address in _object(broker.get("brokerAddrs")).items():
        by_id[_broker_id(key)] = _text(address)
    return AddressesOfBroker(_text(broker.get("brokerName")), by_id)


def _broker_id(key: object) -> int:
    if type(key) is str and key.isascii() and key.isdigit():
        key = int(key)
    if type(key) is not int or key not in _BROKER_ID:
        raise _OtherForm
    return key


def _queues(value: object) -> QueuesOnBroker:
    queues = _object(value)
    return QueuesOnBroker(
        _text(queues.get("brokerName")),
        _int32(queues.get("perm")),
        _int32(queues.get("readQueueNums")),
        _int32(queues.get("writeQueueNums")),
    )


def _topic_stats(members: object) -> dict[MessageQueue, QueueReach]:
    reaches = {}
    for key, value in _object(_object(members).get("offsetTable")).items():
        if not isinstance(key, fastjson.ObjectKey):
            raise _OtherForm
        queue, reach = key.to_wire(), _object(value)
        place = MessageQueue(
            _text(queue.get("topic")), _text(queue.get("brokerName")), _int32(queue.get("queueId"))
        )
        reaches[place] = QueueReach(
            _int64(reach.get("lastUpdateTimestamp")),
            _int64(reach.get("maxOffset")),
            _int64(reach.get("minOffset")),
        )
    return reaches


def _object(value: object) -> dict[object, object]:
    if type(value) is not dict:
        raise _OtherForm
    return value


def _list(value: object) -> list[object]:
    if type(value) is not list:
        raise _OtherForm
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise _OtherForm
    return value


def _int32(value: object) -> int:
    if type(value) is not int or not INT32_MIN <= value <= INT32_MAX:
        raise _OtherForm
    return value


def _int64(value: object) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise _OtherForm
    return value


# --- any form ---


def _route_of_any_form(body: bytes) -> RouteData:
    from rmq_remoting.bodies.route import TopicRouteData  # noqa: PLC0415

    route = TopicRouteData.decode(body)
    mappings = route.topic_queue_mapping_by_broker or {}
    return RouteData(
        [AddressesOfBroker(each.broker_name, dict(each.broker_addrs)) for each in route.broker_datas],
        [
            QueuesOnBroker(each.broker_name, each.perm, each.read_queue_nums, each.write_queue_nums)
            for each in route.queue_datas
        ],
        route.order_topic_conf,
        is_static=bool(mappings),
        leaders=leaders_of(mappings.values()),
    )


def _topic_stats_of_any_form(body: bytes) -> dict[MessageQueue, QueueReach]:
    from rmq_remoting.bodies.topic import TopicStatsTable  # noqa: PLC0415

    table = TopicStatsTable.decode(body).offset_table
    return {
        queue: QueueReach(reach.last_update_timestamp, reach.max_offset, reach.min_offset)
        for queue, reach in table.items()
    }
