"""The requests of registration, made from the current topics."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rmq_remoting.bodies.register import RegisterBrokerBody
from rmq_remoting.bodies.route import QueueData, TopicRouteData
from rmq_remoting.bodies.static_topic import TopicConfigAndMappingSerializeWrapper
from rmq_remoting.bodies.topic import DataVersion, TopicConfig
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)

from ..settings.registration import RegistrationSettings
from ..settings.topics import TopicSettings
from ..topics.permissions import READ_WRITE
from ..topics.table import TopicTable

_CRC_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The registering broker; clients connect to `address`, replicas to `ha_address`; both host:port.

    `is_elected`: a controller decides which broker of this name is the master.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    is_elected: bool = False


class Announcements:
    """Makes the requests; all name servers share one."""

    def __init__(
        self,
        identity: BrokerIdentity,
        settings: RegistrationSettings,
        topic_settings: TopicSettings,
        topics: TopicTable,
    ) -> None:
        self.identity = identity
        self._settings = settings
        self._topic_settings = topic_settings
        self._topics = topics
        # The last full body: several name servers get the same one, every 30 s.
        self._full_key: tuple[object, ...] = ()
        self._full_bodies: asyncio.Future[list[bytes]] | None = None

    async def full(self) -> list[RemotingCommand]:
        """Return the registration of all topics: one request, or several in order if it is split."""
        settings = self._settings
        compressed = settings.compressed_register
        part_size = settings.split_registration_size if settings.enable_split_registration else 0
        key = (self._topics.version, self._permission, compressed, part_size)
        if self._full_bodies is None or key != self._full_key:
            make = partial(self._bodies, self._topics.configs(), part_size, self._topics.data_version)
            # Encoding thousands of topics takes tens of milliseconds, too long for the loop.
            self._full_bodies = asyncio.get_running_loop().run_in_executor(
                None, lambda: _encode_all(make(), compressed)
            )
            self._full_key = key
        try:
            encoded = await asyncio.shield(self._full_bodies)
        except BaseException:
            self._full_bodies = None
            raise
        return [self._register(body, compressed) for body in encoded]

    def changed(self, configs: Iterable[TopicConfig]) -> list[RemotingCommand]:
        """Return the registration of some topics: one incremental request, or one for each topic.

        The request for one topic has no place for the mapping of a static topic.
        """
        single: list[RemotingCommand] = []
        if self._settings.enable_single_topic_register:
            mappings, all_configs = self._topics.mappings, list(configs)
            configs = [config for config in all_configs if config.topic_name in mappings]
            single = [
                self._register_topic(self._permitted(config))
                for config in all_configs
                if config.topic_name not in mappings
            ]
            if not configs:
                return single
        compressed = self._settings.compressed_register
        bodies = self._bodies(configs, 0, self._topics.data_version)
        return [*single, *(self._register(body, compressed) for body in _encode_all(bodies, compressed))]

    def query_data_version(self) -> RemotingCommand:
        """Return request 322, which asks whether the name server has the newest topics."""
        identity = self.identity
        header = QueryDataVersionRequestHeader(
            broker_addr=identity.address,
            broker_id=identity.broker_id,
            broker_name=identity.name,
            cluster_name=identity.cluster,
        )
        body = self._topics.data_version.encode()
        return RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, header.encode(), body)

    def heartbeat(self) -> RemotingCommand:
        """Return the heartbeat: request 904, or for old name servers the query 322 that serves as one."""
        if self._settings.compatible_with_old_name_srv:
            return self.query_data_version()
        identity = self.identity
        header = BrokerHeartbeatRequestHeader(
            broker_addr=identity.address, broker_name=identity.name, cluster_name=identity.cluster
        )
        return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header.encode())

    def query_members(self) -> RemotingCommand:
        """Return request 901, which asks for the addresses registered under this broker's name."""
        header = GetBrokerMemberGroupRequestHeader(
            broker_name=self.identity.name, cluster_name=self.identity.cluster
        )
        return RemotingCommand.request(RequestCode.GET_BROKER_MEMBER_GROUP, header.encode())

    def unregister(self) -> RemotingCommand:
        """Return request 104, which unregisters this broker."""
        identity = self.identity
        header = UnRegisterBrokerRequestHeader(
            broker_addr=identity.address,
            broker_id=identity.broker_id,
            broker_name=identity.name,
            cluster_name=identity.cluster,
        )
        return RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header.encode(), oneway=True)

    @property
    def _permission(self) -> int:
        return self._topic_settings.broker_permission

    def _permitted(self, config: TopicConfig) -> TopicConfig:
        """Return the topic restricted to the broker's own permission."""
        if self._permission & READ_WRITE == READ_WRITE:
            return config
        return config.model_copy(update={"perm": config.perm & self._permission})

    def _bodies(
        self, configs: Iterable[TopicConfig], part_size: int, version: DataVersion
    ) -> list[RegisterBrokerBody]:
        topics = [self._permitted(config) for config in configs]
        size = part_size or max(1, len(topics))
        parts = [topics[start : start + size] for start in range(0, len(topics), size)]
        # A name server accepts a part only if its version differs from that of the part before. The last
        # part has the version of the table.
        return [
            self._body(part, _earlier(version, len(parts) - number))
            for number, part in enumerate(parts, start=1)
        ]

    def _body(self, configs: Iterable[TopicConfig], version: DataVersion) -> RegisterBrokerBody:
        """Return the body with topics, and with the logical queues of the static ones among them.

        Thread-safe: a mapping that changes meanwhile is registered again.
        """
        topics = {config.topic_name: config for config in configs}
        mappings = self._topics.mappings
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=version,
                topic_config_table=topics,
                topic_queue_mapping_info_map={
                    name: mapping.info for name in topics if (mapping := mappings.get(name)) is not None
                },
            )
        )

    def _register(self, body: bytes, compressed: bool) -> RemotingCommand:
        identity, settings = self.identity, self._settings
        header = RegisterBrokerRequestHeader(
            body_crc32=zlib.crc32(body) & _CRC_MASK,
            broker_addr=identity.address,
            broker_id=identity.broker_id,
            broker_name=identity.name,
            cluster_name=identity.cluster,
            compressed=compressed,
            enable_acting_master=settings.enable_slave_acting_master,
            ha_server_addr=identity.ha_address,
            heartbeat_timeout_ms=(
                settings.broker_not_active_timeout_ms if settings.enable_slave_acting_master else None
            ),
        )
        return RemotingCommand.request(RequestCode.REGISTER_BROKER, header.encode(), body)

    def _register_topic(self, config: TopicConfig) -> RemotingCommand:
        queues = QueueData(
            broker_name=self.identity.name,
            perm=config.perm,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            topic_sys_flag=config.topic_sys_flag,
        )
        return RemotingCommand.request(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic=config.topic_name).encode(),
            TopicRouteData(queue_datas=[queues]).encode(),
        )


def _encode_all(bodies: Iterable[RegisterBrokerBody], compressed: bool) -> list[bytes]:
    return [body.encode_compressed() if compressed else body.encode() for body in bodies]


def _earlier(version: DataVersion, steps: int) -> DataVersion:
    return version.model_copy(update={"counter": version.counter - steps}) if steps else version
