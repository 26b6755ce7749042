"""The name server of a cluster in memory."""

from __future__ import annotations

from rmq_remoting.answers import Answer
from rmq_remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection

from .broker import FakeBroker
from .server import FakeServer, Processors


class FakeNamesrv(FakeServer):
    """Knows the topics of its brokers."""

    def __init__(self, brokers: dict[str, FakeBroker]) -> None:
        super().__init__()
        self.brokers = brokers
        # Names of static topics.
        self.static: set[str] = set()

    def processors(self) -> Processors:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
        }

    def route(self, connection: Connection, request: RemotingCommand) -> Answer:
        topic = request.ext_fields["topic"]
        having = [broker for broker in self.brokers.values() if topic in broker.topics and broker.listed]
        if not having:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
        data = TopicRouteData(
            broker_datas=[self._data(broker) for broker in having],
            queue_datas=[
                QueueData(
                    broker_name=broker.name,
                    perm=broker.permissions.get(topic, 6),
                    read_queue_nums=broker.topics[topic],
                    write_queue_nums=broker.topics[topic],
                )
                for broker in having
            ],
        )
        if topic in self.static:
            data.topic_queue_mapping_by_broker = {
                broker.name: TopicQueueMappingInfo(topic=topic, broker_name=broker.name) for broker in having
            }
        return request.response(ResponseCode.SUCCESS, body=data.encode())

    def cluster(self, connection: Connection, request: RemotingCommand) -> Answer:
        info = ClusterInfo(
            broker_addr_table={broker.name: self._data(broker) for broker in self.brokers.values()},
            cluster_addr_table={"DefaultCluster": list(self.brokers)},
        )
        return request.response(ResponseCode.SUCCESS, body=info.encode())

    def topics(self, connection: Connection, request: RemotingCommand) -> Answer:
        names = {topic for broker in self.brokers.values() for topic in broker.topics}
        return request.response(ResponseCode.SUCCESS, body=TopicList(topic_list=sorted(names)).encode())

    @staticmethod
    def _data(broker: FakeBroker) -> BrokerData:
        address = broker.announced or broker.address
        return BrokerData(broker_name=broker.name, broker_addrs={0: address}, cluster="DefaultCluster")
