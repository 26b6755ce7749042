"""Requests to the controllers. One of them leads, and answers all but heartbeats.

Source: Apache RocketMQ 5.3.3, BrokerOuterAPI, ControllerRequestProcessor.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, HeaderDecodeError, HeaderError, RequestError, RequestTimeout
from rmq_remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)

from .role import Role, SyncState

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

    from ..clock import ClockMs
    from ..settings.controller import ControllerSettings

log = logging.getLogger("rmq.broker.controller")

_REQUEST_SECONDS: Final = 3.0
_HEADER_ERRORS: Final = (HeaderError, HeaderDecodeError, BodyError)


class ControllerUnavailable(Exception):
    """No controller leads, or the leader did not answer: whether it acted is not known."""


class ControllerRefused(Exception):
    """The controller's leader refused a request."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}, {remark}")
        self.code = code


class Controllers:
    """All controllers, as one broker asks them. Each call raises ControllerUnavailable, ControllerRefused."""

    def __init__(
        self,
        settings: ControllerSettings,
        client: RemotingClient,
        cluster: str,
        broker_name: str,
        now_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._client = client
        self._cluster = cluster
        self._broker_name = broker_name
        self._now_ms = now_ms
        self.addresses = settings.controller_addresses
        self.leader = ""  # its address; empty if it is not known
        self._beating: dict[str, asyncio.Future[None]] = {}

    # --- the controllers themselves ---

    async def resolve(self) -> None:
        """Look the controllers up by their common name, if they have one."""
        if not self._settings.fetch_controller_addr_by_dns_lookup:
            return
        host, _, port = self._settings.controller_addresses[0].rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning("controllers not found by name name=%s cause=%s; retried", host, error)
            return
        hosts = sorted({str(address[0]) for *_, address in found})
        self.addresses = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]

    async def find_leader(self) -> str:
        """Ask which controller leads, and return its address. Raises ControllerUnavailable."""
        problems: list[str] = []
        for address in self.addresses:
            request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
            try:
                response = await self._client.request(address, request, _REQUEST_SECONDS)
                if response.code != ResponseCode.SUCCESS:
                    problems.append(f"{address}: code {response.code}, {response.remark}")
                    continue
                header = GetMetaDataResponseHeader.decode(response.ext_fields)
            except (RequestError, *_HEADER_ERRORS) as error:
                problems.append(f"{address}: {error}")
                continue
            leader = header.controller_leader_address
            if leader:
                if leader != self.leader:
                    log.info("controller found leader=%s told_by=%s", leader, address)
                self.leader = leader
                return leader
            problems.append(f"{address}: it knows no leader; do most of the controllers run?")
        self.leader = ""
        raise ControllerUnavailable(
            f"no controller leads ({'; '.join(problems) or 'controllerAddr has no address'}). Start the "
            "controllers, and check controllerAddr"
        )

    async def heartbeat(self, request: RemotingCommand, wait_seconds: float) -> None:
        """Send a heartbeat to all controllers: each of them may be the leader the next moment.

        One that cannot be reached delays the others by `wait_seconds` at most, and gets no further one as
        long as the attempt lasts.
        """
        for address in self.addresses:
            if address not in self._beating:
                beat = asyncio.ensure_future(self._send(address, request))
                self._beating[address] = beat
                beat.add_done_callback(partial(self._beaten, address))
        if self._beating:
            await asyncio.wait(self._beating.values(), timeout=wait_seconds)

    def _beaten(self, address: str, _: asyncio.Future[None]) -> None:
        del self._beating[address]

    async def _send(self, address: str, request: RemotingCommand) -> None:
        beat = RemotingCommand.request(request.code, dict(request.ext_fields), oneway=True)
        try:
            await self._client.oneway(address, beat)
        except RequestError as error:
            log.debug("heartbeat not sent controller=%s cause=%s", address, error)

    # --- requests to the leader ---

    async def next_broker_id(self) -> int:
        """Return an id that a new broker of the group may apply for."""
        header = GetNextBrokerIdRequestHeader(broker_name=self._broker_name, cluster_name=self._cluster)
        response = await self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header.encode())
        found = GetNextBrokerIdResponseHeader.decode(response.ext_fields).next_broker_id
        if found is None:
            raise ControllerUnavailable(f"the controller {self.leader} tells no id for a new broker")
        return found

    async def apply_broker_id(self, broker_id: int, code: str) -> None:
        """Apply for an id."""
        header = ApplyBrokerIdRequestHeader(
            applied_broker_id=broker_id,
            broker_name=self._broker_name,
            cluster_name=self._cluster,
            register_check_code=code,
        )
        await self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header.encode())

    async def register(self, broker_id: int, address: str) -> Role | None:
        """Tell where this broker is; return the master that is alive, None if there is none."""
        header = RegisterBrokerToControllerRequestHeader(
            broker_address=address,
            broker_id=broker_id,
            broker_name=self._broker_name,
            cluster_name=self._cluster,
            invoke_time=self._now_ms(),
        )
        response = await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, header.encode())
        told = RegisterBrokerToControllerResponseHeader.decode(response.ext_fields)
        return _role(broker_id, told, SyncStateSet.decode(response.body))

    async def master(self, broker_id: int) -> Role | None:
        """Return the group's master, which may be down by now; None if there is none."""
        header = GetReplicaInfoRequestHeader(broker_name=self._broker_name)
        response = await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header.encode())
        told = GetReplicaInfoResponseHeader.decode(response.ext_fields)
        return _role(broker_id, told, SyncStateSet.decode(response.body))

    async def elect(self, broker_id: int) -> Role | None:
        """Ask for an election; return the master."""
        header = ElectMasterRequestHeader(
            broker_id=broker_id,
            broker_name=self._broker_name,
            cluster_name=self._cluster,
            invoke_time=self._now_ms(),
        )
        response = await self._ask(
            RequestCode.CONTROLLER_ELECT_MASTER,
            header.encode(),
            accepted=(ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST),
        )
        told = ElectMasterResponseHeader.decode(response.ext_fields)
        body = ElectMasterResponseBody.decode(response.body)
        epoch = told.sync_state_set_epoch or 0
        found = SyncStateSet(sync_state_set=body.sync_state_set, sync_state_set_epoch=epoch)
        return _role(broker_id, told, found)

    async def alter_sync_state(
        self, broker_id: int, epoch: int, members: Iterable[int], state_epoch: int
    ) -> SyncState:
        """Replace the in-sync set of this master of an epoch; return the new one.

        `state_epoch`: that of the set that is replaced.
        """
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._broker_name,
            invoke_time=self._now_ms(),
            master_broker_id=broker_id,
            master_epoch=epoch,
        )
        body = SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=state_epoch)
        response = await self._ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header.encode(), body.encode()
        )
        return _sync_state(SyncStateSet.decode(response.body))

    async def _ask(
        self,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        accepted: tuple[ResponseCode, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask the leader, and the next one once if it leads no longer."""
        for _ in range(2):
            leader = self.leader or await self.find_leader()
            request = RemotingCommand.request(code, fields, body)
            try:
                response = await self._client.request(leader, request, _REQUEST_SECONDS)
            except RequestError as error:
                self.leader = ""
                if isinstance(error, RequestTimeout):
                    self._client.close_address(leader)
                raise ControllerUnavailable(f"the controller {leader} does not answer: {error}") from error
            if response.code in accepted:
                return response
            self.leader = "" if response.code == ResponseCode.CONTROLLER_NOT_LEADER else leader
            if self.leader:
                break
        raise ControllerRefused(response.code, response.remark or "without a reason")


def _sync_state(body: SyncStateSet) -> SyncState:
    return SyncState(frozenset(body.sync_state_set), body.sync_state_set_epoch)


def _role(
    own_id: int,
    told: RegisterBrokerToControllerResponseHeader | GetReplicaInfoResponseHeader | ElectMasterResponseHeader,
    body: SyncStateSet,
) -> Role | None:
    if told.master_broker_id is None or not told.master_address or told.master_epoch is None:
        return None
    return Role(own_id, told.master_broker_id, told.master_address, told.master_epoch, _sync_state(body))
