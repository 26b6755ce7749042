"""A controller in memory, as brokers see Apache's (5.3.3): ids, elections, in-sync sets, notifications.

It elects as Apache's does with its defaults: only members of the in-sync set whose heartbeats come. A closed
connection is the death of a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from rmq_remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.base import Header
from rmq_remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmq_remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.ports import LOOPBACK


@dataclass(slots=True)
class Alive:
    """A broker whose heartbeats come."""

    connection: Connection
    epoch: int
    end: int
    priority: int


@dataclass(slots=True)
class Group:
    """A group of brokers, as the controller knows it."""

    addresses: dict[int, str] = field(default_factory=dict)
    codes: dict[int, str] = field(default_factory=dict)
    alive: dict[int, Alive] = field(default_factory=dict)
    master: int | None = None
    epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0


class FakeController:
    """One controller, which leads. `group` is that of broker-a; `refusals` are codes by request code."""

    def __init__(self) -> None:
        self.group = Group()
        self.refusals: dict[int, ResponseCode] = {}
        self.asked: list[int] = []
        self.notifies = True
        self.is_leader = True
        dispatcher = Dispatcher()
        tier = InlineTier("controller", capacity=10_000, max_wait_ms=60_000)
        answers: dict[Code, Callable[[RemotingCommand], RemotingCommand]] = {
            Code.CONTROLLER_GET_METADATA_INFO: self._metadata,
            Code.CONTROLLER_GET_NEXT_BROKER_ID: self._next_id,
            Code.CONTROLLER_APPLY_BROKER_ID: self._apply,
            Code.CONTROLLER_REGISTER_BROKER: self._register,
            Code.CONTROLLER_ELECT_MASTER: self._elect,
            Code.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            Code.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter,
        }
        for code, answer in answers.items():
            dispatcher.register([code], self._answering(answer), tier)
        dispatcher.register([Code.BROKER_HEARTBEAT], self._heartbeat, tier)
        self._server = RemotingServer(dispatcher, on_close=self._closed)
        self._client = RemotingClient()
        self._notifying: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self) -> Self:
        """Listen on a free port."""
        self.address = f"{LOOPBACK}:{await self._server.start(LOOPBACK, 0)}"
        return self

    async def stop(self) -> None:
        """Close all connections."""
        await self._server.stop()
        await self._client.stop()

    @property
    def address_of_master(self) -> str | None:
        """Where the master is, None without one."""
        return None if self.group.master is None else self.group.addresses[self.group.master]

    def elect(self, designated: int | None = None) -> bool:
        """Elect a master, and tell the brokers; return False if there is none to elect."""
        group = self.group
        living = [each for each in group.members if each in group.alive]
        chosen: int | None = None
        if designated is not None:
            chosen = designated if designated in living else None
        elif group.master in living:
            chosen = group.master
        elif living:
            chosen = min(living, key=self._rank)
        if chosen is None:
            return False
        if chosen != group.master:
            self._crown(chosen)
        return True

    # --- answers ---

    def _answering(
        self, answer: Callable[[RemotingCommand], RemotingCommand]
    ) -> Callable[[Connection, RemotingCommand], RemotingCommand]:
        def process(connection: Connection, request: RemotingCommand) -> RemotingCommand:
            self.asked.append(request.code)
            if not self.is_leader and request.code != Code.CONTROLLER_GET_METADATA_INFO:
                return request.response(ResponseCode.CONTROLLER_NOT_LEADER, "not the leader")
            refusal = self.refusals.get(request.code)
            return answer(request) if refusal is None else request.response(refusal, "as the test wants")

        return process

    def _metadata(self, request: RemotingCommand) -> RemotingCommand:
        address = self.address if self.is_leader else ""
        return _success(request, GetMetaDataResponseHeader(controller_leader_address=address, leader=True))

    def _next_id(self, request: RemotingCommand) -> RemotingCommand:
        following = max(self.group.addresses, default=0) + 1
        return _success(request, GetNextBrokerIdResponseHeader(next_broker_id=following))

    def _apply(self, request: RemotingCommand) -> RemotingCommand:
        header = ApplyBrokerIdRequestHeader.decode(request.ext_fields)
        broker_id, code = header.applied_broker_id, header.register_check_code
        assert broker_id is not None and code is not None
        if self.group.codes.setdefault(broker_id, code) != code:
            return request.response(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "Fail to apply brokerId")
        self.group.addresses[broker_id] = code.partition(";")[0]
        return _success(request, ApplyBrokerIdResponseHeader())

    def _register(self, request: RemotingCommand) -> RemotingCommand:
        header, group = RegisterBrokerToControllerRequestHeader.decode(request.ext_fields), self.group
        if header.broker_id not in group.addresses:
            code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
            return request.response(code, "BrokerId hasn't been registered")
        assert header.broker_id is not None and header.broker_address is not None
        group.addresses[header.broker_id] = header.broker_address
        answer = RegisterBrokerToControllerResponseHeader()
        if group.master in group.alive:
            answer = RegisterBrokerToControllerResponseHeader(
                master_address=self.address_of_master,
                master_broker_id=group.master,
                master_epoch=group.epoch,
                sync_state_set_epoch=group.set_epoch,
            )
        return _success(request, answer, self._set().encode())

    def _elect(self, request: RemotingCommand) -> RemotingCommand:
        header, group = ElectMasterRequestHeader.decode(request.ext_fields), self.group
        before = group.master
        if group.epoch == 0:
            self._crown(header.broker_id)
        elif not self.elect(header.broker_id if header.designate_elect else None):
            return request.response(
                ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master"
            )
        answer = ElectMasterResponseHeader(
            master_address=self.address_of_master,
            master_broker_id=group.master,
            master_epoch=group.epoch,
            sync_state_set_epoch=group.set_epoch,
        )
        still = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        code = still if group.master == before else ResponseCode.SUCCESS
        body = ElectMasterResponseBody(sync_state_set=sorted(group.members))
        return request.response(code, ext_fields=answer.encode(), body=body.encode())

    def _replica_info(self, request: RemotingCommand) -> RemotingCommand:
        GetReplicaInfoRequestHeader.decode(request.ext_fields)
        group = self.group
        if not group.addresses:
            return request.response(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "not existed")
        answer = GetReplicaInfoResponseHeader(
            master_address=self.address_of_master, master_broker_id=group.master, master_epoch=group.epoch
        )
        return _success(request, answer, self._set().encode())

    def _alter(self, request: RemotingCommand) -> RemotingCommand:
        header, group = AlterSyncStateSetRequestHeader.decode(request.ext_fields), self.group
        wanted = SyncStateSet.decode(request.body)
        members = frozenset(wanted.sync_state_set)
        if header.master_broker_id != group.master:
            return request.response(ResponseCode.CONTROLLER_INVALID_MASTER, "another master")
        if header.master_epoch != group.epoch:
            return request.response(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "another epoch")
        if wanted.sync_state_set_epoch != group.set_epoch:
            return request.response(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "another set")
        if not members <= set(group.alive):
            return request.response(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "not alive")
        group.members, group.set_epoch = members, group.set_epoch + 1
        answer = AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=group.set_epoch)
        return _success(request, answer, self._set().encode())

    def _heartbeat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = BrokerHeartbeatRequestHeader.decode(request.ext_fields)
        assert header.broker_id is not None
        epoch, end = header.epoch or 0, header.max_offset or 0
        priority = header.election_priority or 0
        self.group.alive[header.broker_id] = Alive(connection, epoch, end, priority)
        return request.response(ResponseCode.SUCCESS)

    # --- inside ---

    def _rank(self, broker_id: int) -> tuple[int, int, int]:
        alive = self.group.alive[broker_id]
        return -alive.epoch, -alive.end, alive.priority

    def _crown(self, broker_id: int) -> None:
        group = self.group
        group.master, group.epoch = broker_id, group.epoch + 1
        group.members, group.set_epoch = frozenset({broker_id}), group.set_epoch + 1
        if self.notifies:
            for each in group.alive:
                task = asyncio.ensure_future(self._notify(group.addresses[each]))
                self._notifying.add(task)
                task.add_done_callback(self._notifying.discard)

    async def _notify(self, address: str) -> None:
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=self.address_of_master,
            master_broker_id=self.group.master,
            master_epoch=self.group.epoch,
            sync_state_set_epoch=self.group.set_epoch,
        )
        request = RemotingCommand.request(
            Code.NOTIFY_BROKER_ROLE_CHANGED, header.encode(), self._set().encode(), oneway=True
        )
        with suppress(RequestError):
            await self._client.oneway(address, request)

    def _set(self) -> SyncStateSet:
        return SyncStateSet(
            sync_state_set=sorted(self.group.members), sync_state_set_epoch=self.group.set_epoch
        )

    def _closed(self, connection: Connection) -> None:
        group = self.group
        for broker_id, alive in list(group.alive.items()):
            if alive.connection is connection:
                del group.alive[broker_id]
                if broker_id == group.master and not self.elect():
                    group.master, group.epoch = None, group.epoch + 1


def _success(request: RemotingCommand, header: Header, body: bytes = b"") -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, ext_fields=header.encode(), body=body)


@asynccontextmanager
async def fake_controller() -> AsyncIterator[FakeController]:
    """A controller that listens."""
    controller = FakeController()
    try:
        yield await controller.start()
    finally:
        await controller.stop()
