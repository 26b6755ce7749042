"""REGISTER_BROKER (103), UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322), BROKER_HEARTBEAT (904)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.register import inflate_registration
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

from ..config import RouteSettings
from ..kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from ..liveness import DEFAULT_TIMEOUT_SECONDS, BrokerIdentity, LiveBrokers
from ..registration_body import (
    RegisteredTopics,
    checksum_and_fingerprint,
    read_compressed,
    read_registration,
)
from ..registry import BrokerRegistry, Departure, MasterOf
from ..slices import SerialLane, Steps

log = logging.getLogger("rmq.namesrv.registration")

# The ext field with a broker's zone (Apache RocketMQ 5.3.3, MixAll).
_ZONE_NAME: Final = "__ZONE_NAME"
_ZLIB_BEGIN: Final = b"\x78"


class RegistrationProcessor:
    """Passes registrations and heartbeats of brokers to the registry, registrations in the lane."""

    def __init__(
        self,
        registry: BrokerRegistry,
        live: LiveBrokers,
        lane: SerialLane,
        kv_config: KvConfig,
        settings: RouteSettings,
    ) -> None:
        self._registry = registry
        self._live = live
        self._lane = lane
        self._kv_config = kv_config
        self._settings = settings

    def register_broker(self, connection: Connection, request: RemotingCommand) -> Result:
        """103. The body is a RegisterBrokerBody, that of the response a KVTable of order topics, if any."""
        header = RegisterBrokerRequestHeader.decode(request.ext_fields)
        # Apache's broker 5.3.3 with compressedRegister=true compresses the body but does not set the flag.
        if header.compressed or request.body[:1] == _ZLIB_BEGIN:
            return asyncio.get_running_loop().create_task(
                self._register_compressed(connection, request, header)
            )
        steps = self._register(connection, request, header, read_registration(request.body))
        return self._lane.run(steps, len(request.body))

    def unregister_broker(self, _: Connection, request: RemotingCommand) -> Result:
        """104. Answered once no route contains the broker any more."""
        header = UnRegisterBrokerRequestHeader.decode(request.ext_fields)
        departure = Departure(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        return self._lane.run(self._unregister(request, departure))

    def query_data_version(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """322. Compare a broker's DataVersion with the known one, which is the body of the response."""
        header = QueryDataVersionRequestHeader.decode(request.ext_fields)
        reported = DataVersion.decode_request(request.body)
        key = (header.cluster_name, header.broker_addr)
        self._live.record_heartbeat(key)
        broker = self._live.get(key)
        known = None if broker is None else broker.data_version
        answer = QueryDataVersionResponseHeader(changed=known != reported)
        body = b"" if known is None else known.encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=answer.encode(), body=body)

    def broker_heartbeat(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """904. Record a heartbeat; that of an unregistered broker is answered with success, too."""
        header = BrokerHeartbeatRequestHeader.decode(request.ext_fields)
        self._live.record_heartbeat((header.cluster_name, header.broker_addr))
        return request.response(ResponseCode.SUCCESS)

    def _register(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: RegisterBrokerRequestHeader,
        reading: Steps[RegisteredTopics],
    ) -> Steps[Answer]:
        checksum, fingerprint = yield from checksum_and_fingerprint(request.body)
        if header.body_crc32 not in (0, checksum):
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"registration of {header.broker_name} refused: the checksum of its body is {checksum}, "
                f"that in the header is {header.body_crc32}",
            )
        identity = _identity(header, request)
        master = self._registry.refresh(identity, connection, fingerprint)
        if master is None:
            registered = yield from reading
            if connection.is_closed:
                return None  # closed while this job waited in the lane: the broker will register again
            master = yield from self._registry.register(identity, connection, registered, fingerprint)
        return self._answer(request, master)

    async def _register_compressed(
        self, connection: Connection, request: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> Answer:
        """Inflate the body in a thread, which other threads do not wait for."""
        stream = await asyncio.to_thread(inflate_registration, request.body)
        steps = self._register(connection, request, header, read_compressed(stream, request.version))
        outcome = self._lane.run(steps, len(stream))
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    def _unregister(self, request: RemotingCommand, departure: Departure) -> Steps[Answer]:
        yield from self._registry.leave([departure], "unregistered")
        return request.response(ResponseCode.SUCCESS)

    def _answer(self, request: RemotingCommand, master: MasterOf) -> RemotingCommand:
        header = RegisterBrokerResponseHeader(ha_server_addr=master.ha_address, master_addr=master.address)
        body = b""
        if self._settings.return_order_topic_config_to_broker:
            order_topics = self._kv_config.table(ORDER_TOPIC_NAMESPACE)
            body = b"" if order_topics is None else KVTable(table=dict(order_topics)).encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=header.encode(), body=body)


def _identity(header: RegisterBrokerRequestHeader, request: RemotingCommand) -> BrokerIdentity:
    timeout_ms = header.heartbeat_timeout_ms
    return BrokerIdentity(
        cluster=header.cluster_name,
        name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        zone_name=request.ext_fields.get(_ZONE_NAME),
        enable_acting_master=header.enable_acting_master,
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS if timeout_ms is None else timeout_ms / 1000,
    )
