"""A controller that answers administrators: it leads, and knows the group of broker-a."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from rmq_client.loop_thread import LoopThread
from rmq_remoting.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
)
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.ports import LOOPBACK


class AnsweringController:
    """`asked` are the bodies of requests for in-sync sets; an empty `leader` stands for an election.

    `forgotten` are the headers of requests to forget brokers.
    """

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.leader = ""
        self.master_id = 1
        self.forgotten: list[CleanControllerBrokerDataRequestHeader] = []
        self.settings = b"enableElectUncleanMaster=false\nscanNotActiveBrokerInterval=5000\n"
        dispatcher = Dispatcher()
        tier = InlineTier("controller", capacity=100, max_wait_ms=60_000)
        dispatcher.register((RequestCode.CONTROLLER_GET_METADATA_INFO,), self._state, tier)
        dispatcher.register((RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,), self._sets, tier)
        dispatcher.register((RequestCode.CONTROLLER_ELECT_MASTER,), self._elect, tier)
        dispatcher.register((RequestCode.CLEAN_BROKER_DATA,), self._forget, tier)
        dispatcher.register((RequestCode.GET_CONTROLLER_CONFIG,), self._show, tier)
        dispatcher.register((RequestCode.UPDATE_CONTROLLER_CONFIG,), self._change, tier)
        self.server = RemotingServer(dispatcher)

    @property
    def address(self) -> str:
        """The address for administrators."""
        return f"{LOOPBACK}:{self.server.port}"

    def _state(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetMetaDataResponseHeader(
            group="g",
            controller_leader_id="n0",
            controller_leader_address=self.leader or None,
            leader=True,
            peers="n0:127.0.0.1:9878",
        )
        return request.response(ResponseCode.SUCCESS, ext_fields=header.encode())

    def _sets(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.asked.append(request.body)
        info = ReplicasInfo(
            master_broker_id=self.master_id,
            master_address=f"10.0.0.{self.master_id}:10911",
            master_epoch=3,
            sync_state_set_epoch=7,
            in_sync_replicas=[ReplicaIdentity(broker_id=1, broker_address="10.0.0.1:10911", alive=True)],
            not_in_sync_replicas=[ReplicaIdentity(broker_id=2, broker_address="10.0.0.2:10911", alive=False)],
        )
        body = BrokerReplicasInfo(replicas_info_table={"broker-a": info}).encode()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _elect(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = ElectMasterRequestHeader.decode(request.ext_fields)
        if (header.cluster_name, header.broker_name) != (
            "DefaultCluster",
            "broker-a",
        ) or not header.invoke_time:
            return request.response(ResponseCode.CONTROLLER_INVALID_REQUEST, "no such group")
        if not header.designate_elect or header.broker_id == 2:
            return request.response(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "not alive")
        self.master_id = header.broker_id
        return request.response(ResponseCode.SUCCESS)

    def _forget(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.forgotten.append(CleanControllerBrokerDataRequestHeader.decode(request.ext_fields))
        return request.response(ResponseCode.SUCCESS)

    def _show(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=self.settings)

    def _change(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.settings += request.body
        return request.response(ResponseCode.SUCCESS)


@asynccontextmanager
async def answering_controller() -> AsyncIterator[AnsweringController]:
    """A running controller."""
    controller = AnsweringController()
    await controller.server.start(LOOPBACK, 0)
    try:
        controller.leader = controller.address
        yield controller
    finally:
        await controller.server.stop()


@contextmanager
def controller_in_a_thread() -> Iterator[AnsweringController]:
    """A running controller with a thread of its own, for tests without a loop."""
    thread = LoopThread("controller")
    try:
        context = answering_controller()
        controller = thread.submit(context.__aenter__()).result()
        try:
            yield controller
        finally:
            thread.submit(context.__aexit__(None, None, None)).result()
    finally:
        thread.signal_stop()
        thread.join()
