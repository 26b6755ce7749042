"""Name servers and masters in memory, as a broker's client sees them."""

from __future__ import annotations

from rmq_remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import ConnectError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.send import SendMessageRequestHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from tests.support.frames import decode_all

NAMESRV = "10.0.0.9:9876"


class FakeBrokers(RemotingClient):
    """One name server, and the masters broker-a (this group), broker-b, broker-c of the cluster C.

    `perms`: by topic and broker name. `answers`: codes with which masters answer sends, SUCCESS if there is
    none. A broker in `away` cannot be connected to. Must be made on a running loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.perms: dict[str, dict[str, int]] = {}
        self.answers: dict[str, int] = {}
        self.away: set[str] = set()
        self.asked: list[int] = []
        self.sends: list[tuple[str, SendMessageRequestHeader, bytes]] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        (received,) = decode_all(encode_frame(command))
        self.asked.append(received.code)
        name = "namesrv" if address == NAMESRV else f"broker-{address[0]}"
        if name in self.away:
            raise ConnectError(f"cannot connect to {address}: refused")
        if received.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(received)
        if received.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            names = ["broker-a", "broker-b", "broker-c"]
            info = ClusterInfo(
                broker_addr_table={name: _broker(name) for name in names}, cluster_addr_table={"C": names}
            )
            return received.response(ResponseCode.SUCCESS, body=info.encode())
        assert received.code == RequestCode.SEND_MESSAGE_V2
        code = self.answers.get(name, ResponseCode.SUCCESS)
        if code == ResponseCode.SUCCESS:
            self.sends.append((name, SendHeaderDecoder().decode(received), received.body))
        return received.response(code, "as the test says")

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        perms = self.perms.get(request.ext_fields["topic"])
        if perms is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        queues = [
            QueueData(broker_name=name, perm=perm, read_queue_nums=4, write_queue_nums=4)
            for name, perm in perms.items()
        ]
        route = TopicRouteData(broker_datas=[_broker(name) for name in perms], queue_datas=queues)
        return request.response(ResponseCode.SUCCESS, body=route.encode())


def _broker(name: str) -> BrokerData:
    return BrokerData(broker_name=name, cluster="C", broker_addrs={0: f"{name[-1]}:10911"})
