"""Topics: lists (206, 224, 304, 311 to 313), REGISTER_TOPIC_IN_NAMESRV (217), DELETE_TOPIC_IN_NAMESRV (216).

The lists of all topics are built in a thread: with 100,000 topics that takes 10 ms and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rmq_remoting.bodies.route import TopicList, TopicRouteData
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)

from ..brokers import BrokerTable
from ..config import RouteSettings
from ..registry import BrokerRegistry
from ..routes import QueueNumbers, RouteTable

# Bits of a topic's system flag (Apache RocketMQ 5.3.3, TopicSysFlag).
_UNIT: Final = 1
_UNIT_SUBSCRIBED: Final = 2


class TopicProcessor:
    """Lists, registers and deletes topics."""

    def __init__(
        self, routes: RouteTable, brokers: BrokerTable, registry: BrokerRegistry, settings: RouteSettings
    ) -> None:
        self._routes = routes
        self._brokers = brokers
        self._registry = registry
        self._settings = settings

    def get_all_topic_list(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """206. The body of the response is a TopicList, as that of all lists here."""
        _check_enabled(self._settings.enable_all_topic_list, "enableAllTopicList")
        return _listed(request, self._routes.topics())

    def get_topics_by_cluster(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """224."""
        _check_enabled(self._settings.enable_topic_list, "enableTopicList")
        header = GetTopicsByClusterRequestHeader.decode(request.ext_fields)
        names = self._brokers.names_of(header.cluster)
        return _listed(
            request,
            [topic for topic, route in self._routes.items() if not names.isdisjoint(route.queues)],
        )

    def get_system_topic_list(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """304. Topics named after clusters and brokers, and the address of a broker to ask for others."""
        clusters = self._brokers.clusters()
        names = [name for cluster, brokers in clusters.items() for name in (cluster, *brokers)]
        addresses = [address for group in self._brokers.groups() for address in group.addresses.values()]
        body = TopicList(topic_list=list(dict.fromkeys(names)), broker_addr=next(iter(addresses), None))
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def get_unit_topic_list(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """311."""
        return self._by_flag(request, lambda flag: flag & _UNIT != 0)

    def get_has_unit_sub_topic_list(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """312."""
        return self._by_flag(request, lambda flag: flag & _UNIT_SUBSCRIBED != 0)

    def get_has_unit_sub_ununit_topic_list(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """313."""
        return self._by_flag(request, lambda flag: flag & (_UNIT | _UNIT_SUBSCRIBED) == _UNIT_SUBSCRIBED)

    def register_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """217. The body is a TopicRouteData, of which only the queues are used."""
        header = RegisterTopicRequestHeader.decode(request.ext_fields)
        body = TopicRouteData.decode_request(request.body)
        queues = [
            (
                data.broker_name,
                QueueNumbers(data.perm, data.read_queue_nums, data.write_queue_nums, data.topic_sys_flag),
            )
            for data in body.queue_datas
        ]
        self._registry.register_topic(header.topic, queues)
        return request.response(ResponseCode.SUCCESS)

    def delete_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """216. Without a cluster the topic is deleted on all brokers."""
        header = DeleteTopicFromNamesrvRequestHeader.decode(request.ext_fields)
        self._registry.delete_topic(header.topic, header.cluster_name)
        return request.response(ResponseCode.SUCCESS)

    def _by_flag(self, request: RemotingCommand, wanted: Callable[[int], bool]) -> RemotingCommand:
        """Return the topics whose system flag on the first of their brokers is wanted."""
        _check_enabled(self._settings.enable_topic_list, "enableTopicList")
        return _listed(
            request,
            [
                topic
                for topic, route in self._routes.items()
                if any(wanted(queues.numbers.topic_sys_flag) for queues in list(route.queues.values())[:1])
            ],
        )


def _check_enabled(enabled: bool, key: str) -> None:
    if not enabled:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"this list is disabled ({key}=false)")


def _listed(request: RemotingCommand, topics: Iterable[str]) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, body=TopicList(topic_list=list(topics)).encode())
